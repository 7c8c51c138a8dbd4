"""The prefix index finds exactly what was published, whatever the hash does."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.optimized.events import BlocksStored
from pagedkv.optimized.groups import CacheGroup, Windows
from pagedkv.optimized.hashing import HashFunction, keyed_hash, prefix_digests
from pagedkv.optimized.journal import Journal
from pagedkv.optimized.loops.memory import OTHERS, Memory, new_memory
from pagedkv.optimized.loops.paths import make
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.paths import PathTree
from pagedkv.optimized.state import ManagerState
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec import Config

from tests.optimized.feature_programs import Featured, forget
from tests.optimized.feature_programs import operation as any_operation
from tests.optimized.feature_programs import run as run_any
from tests.optimized.manager_programs import CONFIGS, operation, run, view

BITS = st.integers(0, 1)
COLLIDING: dict[str, HashFunction] = {
    "always": lambda parent, tokens: b"",
    "parents ignored": lambda parent, tokens: tokens,
    "tokens ignored": lambda parent, tokens: bytes([len(parent) % 7]) * (len(parent) % 7 + 1),
    "two values": lambda parent, tokens: bytes([sum(tokens) % 2]),
}


@pytest.mark.parametrize("name", COLLIDING)
@settings(max_examples=60, deadline=None)
@given(config=CONFIGS, rng=st.randoms(use_true_random=True), count=st.integers(1, 60))
def test_collisions_change_nothing(name: str, config: Config, rng: random.Random, count: int) -> None:
    """Under any hash the manager answers and looks the same: a collision is neither a wrong hit nor even a miss."""
    subject, collided = OptimizedSubject(config), OptimizedSubject(config)
    groups = (CacheGroup(config.sliding_window, config.sink_tokens),)
    collided._state = ManagerState(config, groups, COLLIDING[name])
    for _ in range(count):
        op = operation(rng, view(subject))
        ours, theirs = run(subject, op), run(collided, op)
        assert type(ours) is type(theirs)
        assert isinstance(ours, Exception) or ours == theirs
        assert subject.observe() == collided.observe()
        collided.check()
        collided = collided.copy()  # the nodes of one digest stay together


NAMESPACES = st.sampled_from("xy")
WANTED = st.lists(st.tuples(NAMESPACES, st.lists(BITS, max_size=8)), max_size=8)
ASKED = st.tuples(NAMESPACES, st.lists(BITS, max_size=8))


def extend(paths: PathTree, start: int, tokens: list[int]) -> int:
    """Go on from a path along the full blocks of `tokens`. One user of `start` becomes a user of the end."""
    node = start
    for i in range(0, len(tokens) - 1, 2):
        block = np.array(tokens[i : i + 2], np.int32)
        known = paths.follow(node, block, 1)
        if len(known.nodes):
            child = known.end
            paths.hold(child)
            paths.drop(node)
        else:
            assert paths.child(node, block) == OTHERS
            child = make(Memory(*paths._journal.fields()), node, block, 0)
        node = child
    return node


def check_found(paths: PathTree, needed: list[tuple[str, tuple[int, ...]]], namespace: str, tokens: list[int]) -> None:
    """The longest path along these tokens that begins one that is needed, and no longer one."""
    known = {(namespace, path[:i]) for namespace, path in needed for i in range(0, len(path) + 1, 2)}
    length = max((i for i in range(0, len(tokens) + 1, 2) if (namespace, tuple(tokens[:i])) in known), default=-1)
    found = paths.find(namespace, np.array(tokens, np.int32), len(tokens) // 2)
    assert len(found.nodes) == max(0, length // 2)
    if length >= 0:
        assert (paths.path_of(found.end)[0], paths.path_of(found.end)[1].tolist()) == (namespace, tokens[:length])


@settings(max_examples=150, deadline=None)
@given(wanted=WANTED, asked=ASKED, name=st.sampled_from([*COLLIDING, "keyed"]), rng=st.randoms(use_true_random=True))
def test_what_is_found_is_the_longest_path_that_somebody_needs(
    wanted: list[tuple[str, list[int]]], asked: tuple[str, list[int]], name: str, rng: random.Random
) -> None:
    """Against a set of whole paths; blocks of two tokens; paths come, some go again, in any order."""
    windows = Windows((CacheGroup(),), 2, 0).as_array()
    journal = Journal(new_memory(1, 2, windows, num_swap_blocks=0, overlapped_steps=False))
    paths = PathTree(COLLIDING.get(name) or keyed_hash(), journal)
    needed: list[tuple[str, tuple[int, ...], int]] = []
    for namespace, tokens in wanted:
        full = tokens[: len(tokens) // 2 * 2]
        root = paths.root(namespace)
        paths.hold(root)
        end = extend(paths, root, tokens)
        assert (paths.path_of(end)[0], paths.path_of(end)[1].tolist()) == (namespace, full)
        needed.append((namespace, tuple(full), end))
        if rng.random() < 0.3:
            paths.drop(needed.pop(rng.randrange(len(needed)))[2])
    check_found(paths, [(namespace, path) for namespace, path, _ in needed], *asked)
    for _, _, end in needed:
        paths.drop(end)
    assert not paths.nodes()


@settings(max_examples=150, deadline=None)
@given(wanted=WANTED, asked=ASKED, name=st.sampled_from([*COLLIDING, "keyed"]), rng=st.randoms(use_true_random=True))
def test_likewise_what_commits_have_walked(
    wanted: list[tuple[str, list[int]]], asked: tuple[str, list[int]], name: str, rng: random.Random
) -> None:
    """The same of requests that have computed their tokens, in one batch or in pieces, and of blocks without entry."""
    manager = BlockManager(64, 2, hash_function=COLLIDING.get(name) or keyed_hash())
    paths, needed = manager._state.paths, dict[int, tuple[str, tuple[int, ...]]]()
    for number, (namespace, tokens) in enumerate(wanted):
        manager.admit(number, [*tokens, 7], namespace, read_cache=rng.random() < 0.5)
        done = int(manager._state.rows.computed[manager._state.rows.row_of[number]])
        for computed in sorted(rng.choices(range(done, len(tokens) + 1), k=2)):
            manager.commit_batch([number], [computed])
        manager.commit(number, len(tokens))
        needed[number] = namespace, tuple(tokens[: len(tokens) // 2 * 2])
        if rng.random() < 0.3:
            gone = rng.choice(list(needed))
            manager.free(gone)
            del needed[gone]
    forget(manager, np.flatnonzero(manager._state.index.entry >= 0).tolist())
    check_found(paths, list(needed.values()), *asked)
    manager.free_batch(list(needed))
    assert not paths.nodes()


@settings(max_examples=100, deadline=None)
@given(config=CONFIGS, rng=st.randoms(use_true_random=True), count=st.integers(1, 60))
def test_who_is_forgotten_leaves_no_name_behind(config: Config, rng: random.Random, count: int) -> None:
    """Else the next path in its place would go by a name that is not its own."""
    manager = Featured(config, events=True)
    paths = manager._state.paths
    for _ in range(count):
        run_any(manager, any_operation(rng, manager))
        nodes = set(paths.nodes())
        assert set(paths.roots.values()) == paths._namespace.keys() <= nodes
        assert paths._path_digest.keys() | paths._digest.keys() | paths._twin.keys() <= nodes


def test_a_path_in_the_place_of_one_that_a_reset_forgot_has_its_own_name() -> None:
    """Of a branch of which only the part that is idle is forgotten, in silence."""
    manager = BlockManager(8, 1, events=True, hash_seed=b"names")
    for request, tokens in (("a", [1]), ("b", [1, 2])):
        manager.admit(request, tokens)
        manager.commit(request, len(tokens))
    manager.free("b")
    manager.reset_prefix_index()
    manager.take_events()
    manager.admit("c", [1, 3])
    manager.commit("c", 2)
    (stored,) = manager.take_events()
    assert isinstance(stored, BlocksStored)
    assert stored.digests == tuple(prefix_digests([1, 3], 1, hash_seed=b"names"))


def test_a_path_is_found_again_below_a_parent_that_was_overwritten() -> None:
    """The entry of the first block goes and comes back; the second, idle all the while, is hit again."""
    manager = BlockManager(8, 2)
    manager.admit("a", [1, 2, 3, 4])
    manager.commit("a", 4)
    manager.truncate("a", 1)
    manager.append("a", [9])  # writes into the first block
    assert manager.lookup([1, 2, 3, 4]).cached_tokens == 0
    manager.admit("b", [1, 2])
    manager.commit("b", 2)
    assert manager.lookup([1, 2, 3, 4]).cached_tokens == 4
    manager.check()


def test_namespaces_are_the_same_if_they_are_equal_however_they_look() -> None:
    """As keys of a dictionary; what looks alike and differs shares nothing."""
    manager = BlockManager(8, 2)
    one, other = Alike(), Alike()
    for request, namespace in (("a", 1), ("b", one)):
        manager.admit(request, [1, 2], namespace)
        manager.commit(request, 2)
    assert [manager.lookup([1, 2], ns).cached_tokens for ns in (1, 1.0, True, "1", one, other)] == [2, 2, 2, 0, 2, 0]
    manager.check()


class Alike:
    def __repr__(self) -> str:
        return "alike"


def test_seeds_agree_and_chance_does_not() -> None:
    digests = [keyed_hash(seed)(b"parent", b"tokens") for seed in (b"s", b"s", b"t", None, None)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4
    assert {len(digest) for digest in digests} == {16}
