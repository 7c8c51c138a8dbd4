"""Events: whoever follows them knows at all times exactly what can be found, and can name it from the tokens alone."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.optimized.events import BlocksRemoved, BlocksStored, Event, IndexCleared
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.hashing import DIGEST_SIZE, chained, keyed_hash, namespace_digest, prefix_digests
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec import Config, Misuse, Permute, Refused, ResetPrefixIndex

from tests.optimized.feature_programs import (
    FULL, SEED, SHORT, SINKS, WINDOW, AdmitApart, AdmitExternal, Featured, Invalidate, entries, operation, run,
)  # fmt: skip
from tests.optimized.manager_programs import CONFIGS

SEEDS = st.integers(0, 2**32)
MORE = (AdmitApart, AdmitExternal, Invalidate)


class Router:
    """Follows the events of one manager, and trusts nothing in them that it can verify."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.found: set[tuple[int, bytes]] = set()
        """(group, digest) of what can be found."""
        self._tokens: dict[bytes, tuple[int, ...]] = {}
        """Of each path that was ever named."""

    def hear(self, events: tuple[Event, ...]) -> None:
        for event in events:
            match event:
                case BlocksStored(digests, parent, tokens, namespace, group):
                    if parent == namespace_digest(keyed_hash(SEED), namespace):
                        self._tokens[parent] = ()
                    path = self._tokens[parent] + tokens  # its parent has been named, or is the empty path
                    assert prefix_digests(path, self.block_size, SEED, namespace)[-len(digests) :] == list(digests)
                    for i, digest in enumerate(digests, 1):
                        self._tokens[digest] = path[: len(path) - (len(digests) - i) * self.block_size]
                    self._enter({(group, digest) for digest in digests}, len(digests))
                case BlocksRemoved(digests, group):
                    gone = {(group, digest) for digest in digests}
                    assert len(gone) == len(digests)
                    assert gone <= self.found
                    self.found -= gone
                case IndexCleared():
                    self.found.clear()

    def _enter(self, stored: set[tuple[int, bytes]], count: int) -> None:
        assert len(stored) == count > 0
        assert not stored & self.found
        self.found |= stored


def named(manager: BlockManager) -> set[tuple[int, bytes]]:
    """(group, digest) of every entry, computed from its identity."""
    return {
        (group, prefix_digests(identity.tokens, manager.config.block_size, SEED, identity.namespace)[-1])
        for group, identity in entries(manager)
    }


def followed(manager: Featured, rng: random.Random, count: int) -> None:
    """A random program that a router follows."""
    router = Router(manager.config.block_size)
    for _ in range(count):
        op = operation(rng, manager, MORE)
        answer = run(manager, op)
        events = manager.take_events()
        router.hear(events)
        assert router.found == named(manager)
        if isinstance(answer, Misuse) or isinstance(answer[0], Refused) or isinstance(op, Permute):
            assert events == () or len(answer) > 1  # type: ignore[arg-type]  # of a batch some rows went through
        if isinstance(op, ResetPrefixIndex) and not isinstance(answer, Misuse) and not isinstance(answer[0], Refused):
            assert events == (IndexCleared(),)
    assert manager.take_events() == ()


@given(config=CONFIGS, seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_a_router_knows_what_can_be_found(config: Config, seed: int) -> None:
    followed(Featured(config, events=True), random.Random(seed), 50)


@given(
    groups=st.sampled_from([(FULL, WINDOW), (SHORT, SINKS), (SINKS, WINDOW, FULL), (SINKS,)]),
    block_size=st.integers(1, 4),
    seed=SEEDS,
)
@settings(max_examples=60, deadline=None)
def test_a_router_knows_it_of_each_group(groups: tuple[CacheGroup, ...], block_size: int, seed: int) -> None:
    rng = random.Random(seed)
    followed(Featured(Config(rng.randint(1, 20), block_size, swap_blocks=4), groups=groups, events=True), rng, 50)


@given(config=CONFIGS, seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_events_that_nobody_has_asked_for_yet_wait_in_order(config: Config, seed: int) -> None:
    """Taken at the end they are what was taken one by one; and who does not listen gets the same answers."""
    often, once, never = Featured(config, events=True), Featured(config, events=True), Featured(config)
    rng, heard = random.Random(seed), tuple[Event, ...]()
    for _ in range(30):
        op = operation(rng, often, MORE)
        answers = [run(manager, op) for manager in (often, once, never)]
        assert str(answers[0]) == str(answers[1]) == str(answers[2])
        heard += often.take_events()
        assert never.take_events() == ()
    assert once.take_events() == heard
    assert once.take_events() == ()


def test_a_copy_tells_its_own_story() -> None:
    manager = Featured(Config(4, 2), events=True)
    manager.admit("a", [1, 2])
    manager.commit("a", 2)
    twin = manager.copy()
    assert isinstance(twin, Featured)
    assert len(manager.take_events()) == 1
    manager.reset_prefix_index()
    assert [type(event) for event in twin.take_events()] == [BlocksStored]
    assert manager.take_events() == (IndexCleared(),)


@given(
    tokens=st.lists(st.integers(0, 2**31 - 1), max_size=40),
    block_size=st.integers(1, 8),
    seed=st.binary(max_size=8),
    namespace=st.sampled_from(["", "tenant", ("lora", 3), 7]),
)
def test_digests_can_be_computed_elsewhere(tokens: list[int], block_size: int, seed: bytes, namespace: object) -> None:
    """By block size, seed and namespace alone. Every one differs from that of another path."""
    digests = prefix_digests(tokens, block_size, seed, namespace)
    assert [len(digest) for digest in digests] == [DIGEST_SIZE] * (len(tokens) // block_size)
    manager = BlockManager(40, block_size, hash_seed=seed, events=True)
    if tokens:
        manager.admit("a", tokens, namespace)
        manager.commit("a", len(tokens))
    told = [digest for event in manager.take_events() if isinstance(event, BlocksStored) for digest in event.digests]
    assert told == digests
    if digests:
        last = [*tokens[: len(digests) * block_size - 1], tokens[len(digests) * block_size - 1] ^ 1]
        others = [
            prefix_digests(tokens, block_size, seed + b"!", namespace),
            prefix_digests(last, block_size, seed, namespace),
        ]
        others.append(prefix_digests(tokens, block_size, seed, "another"))
        assert len({digests[-1], *(other[-1] for other in others)}) == 4
        assert others[1][:-1] == digests[:-1]


def test_digests_follow_a_hash_function_of_ones_own() -> None:
    def sum_of(parent: bytes, tokens: bytes) -> bytes:
        return bytes([(sum(parent) + sum(tokens)) % 256])

    manager = BlockManager(4, 2, hash_function=sum_of, events=True)
    manager.admit("a", [1, 2, 3, 4])
    manager.commit("a", 4)
    (event,) = manager.take_events()
    assert isinstance(event, BlocksStored)
    assert event.parent == namespace_digest(sum_of, "")
    assert list(event.digests) == [bytes([(event.parent[0] + 3) % 256]), bytes([(event.parent[0] + 10) % 256])]


@pytest.mark.parametrize(
    ("argument", "arguments"),
    [
        ("tokens", ([-1], 2, b"")),
        ("block_size", ([1], 0, b"")),
        ("hash_seed", ([1], 2, "s")),
        ("namespace", ([1], 2, b"", [])),
    ],
)
def test_digests_of_what_makes_no_sense_are_misuse(argument: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(Misuse, match=argument):
        prefix_digests(*arguments)  # type: ignore[arg-type]  # which is what the test is about


def copies(manager: BlockManager) -> None:
    """Two requests compute the same block at the same time."""
    for request in ("a", "b"):
        manager.admit(request, [1, 2, 3])
    for request in ("a", "b"):
        manager.commit(request, 3)


@pytest.mark.parametrize("first", ["a", "b"])
def test_what_has_another_copy_is_told_once_and_removed_once(first: str) -> None:
    """https://github.com/vllm-project/vllm/pull/55092: a removal was told while a copy could still be found."""
    manager = BlockManager(4, 2, hash_seed=SEED, events=True)
    copies(manager)
    digest = prefix_digests([1, 2], 2, SEED)[0]
    assert [event.digests for event in manager.take_events() if isinstance(event, BlocksStored)] == [(digest,)]
    for request in (first, "b" if first == "a" else "a"):
        manager.free(request)
        assert manager.take_events() == ()
        assert manager.lookup([1, 2]).cached_tokens == 2
    manager.evict(4)
    assert manager.take_events() == (BlocksRemoved((digest,), 0),)
    assert manager.lookup([1, 2]).cached_tokens == 0


def test_a_block_that_is_written_again_is_removed_before_it_is_stored() -> None:
    """A rollback into a block that can be found, and on with other tokens."""
    manager = BlockManager(4, 2, hash_seed=SEED, events=True)
    manager.admit("a", [1, 2])
    manager.commit("a", 2)
    manager.truncate("a", 1)
    assert len(manager.take_events()) == 1
    manager.append("a", [9])
    manager.commit("a", 2)
    old, new = prefix_digests([1, 2], 2, SEED)[0], prefix_digests([1, 9], 2, SEED)[0]
    root = namespace_digest(keyed_hash(SEED), "")
    assert manager.take_events() == (BlocksRemoved((old,), 0), BlocksStored((new,), root, (1, 9), "", 0))
    assert chained(keyed_hash(SEED), root, manager._state.rows.tokens[0, :2], 2) == [new]


def test_after_a_reset_new_paths_have_digests_of_their_own() -> None:
    """What the cleared index has called its paths is forgotten with them, though nobody was told of each."""
    manager = BlockManager(8, 2, events=True, hash_seed=SEED)
    manager.admit("keeps the empty path", [9])
    manager.admit("a", [1, 2, 3, 4])
    manager.commit("a", 4)
    manager.free("a")
    manager.reset_prefix_index()
    manager.take_events()
    manager.admit("b", [5, 6, 7, 8])
    manager.commit("b", 4)
    (stored,) = manager.take_events()
    assert isinstance(stored, BlocksStored)
    assert list(stored.digests) == prefix_digests([5, 6, 7, 8], 2, SEED)
