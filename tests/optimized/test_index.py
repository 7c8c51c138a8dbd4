"""The prefix index finds exactly what was published, whatever the hash does."""

import random
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.hashing import HashFunction, keyed_hash
from pagedkv.optimized.journal import Journal
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.paths import PathTree
from pagedkv.optimized.recency import BlockQueue
from pagedkv.optimized.state import ManagerState
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec import Config

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


@settings(max_examples=150, deadline=None)
@given(
    wanted=st.lists(st.tuples(st.sampled_from("xy"), st.lists(BITS, max_size=8)), max_size=8),
    asked=st.tuples(st.sampled_from("xy"), st.lists(BITS, max_size=8)),
    name=st.sampled_from([*COLLIDING, "keyed"]),
    rng=st.randoms(use_true_random=True),
)
def test_what_is_found_is_the_longest_path_that_somebody_needs(
    wanted: list[tuple[str, list[int]]], asked: tuple[str, list[int]], name: str, rng: random.Random
) -> None:
    """Against a set of whole paths; blocks of two tokens; paths come, some go again, in any order."""
    paths = PathTree(2, 1, COLLIDING.get(name) or keyed_hash(), Journal())
    needed: list[tuple[str, tuple[int, ...], int]] = []
    for namespace, tokens in wanted:
        full = tokens[: len(tokens) // 2 * 2]
        root = paths.root(namespace)
        paths.hold(root)
        end = paths.extend(root, np.array(tokens, np.int32)).end
        assert (paths.path_of(end)[0], paths.path_of(end)[1].tolist()) == (namespace, full)
        needed.append((namespace, tuple(full), end))
        if rng.random() < 0.3:
            paths.drop([needed.pop(rng.randrange(len(needed)))[2]])
    known = {(namespace, path[:i]) for namespace, path, _ in needed for i in range(0, len(path) + 1, 2)}
    namespace, tokens = asked
    length = max((i for i in range(0, len(tokens) + 1, 2) if (namespace, tuple(tokens[:i])) in known), default=-1)
    found = paths.find(namespace, np.array(tokens, np.int32), len(tokens) // 2)
    assert len(found.nodes) == max(0, length // 2)
    if length >= 0:
        assert (paths.path_of(found.end)[0], paths.path_of(found.end)[1].tolist()) == (namespace, tokens[:length])
    paths.drop([end for _, _, end in needed])
    assert not paths.nodes()


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


@settings(max_examples=150, deadline=None)
@given(num_blocks=st.integers(1, 12), rng=st.randoms(use_true_random=True))
def test_a_queue_is_an_ordered_set(num_blocks: int, rng: random.Random) -> None:
    """Against an OrderedDict, long enough to compact many times."""
    queue, model = BlockQueue(num_blocks), OrderedDict[int, None]()

    def belongs(blocks: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        return np.isin(blocks, list(model))

    for _ in range(60):
        absent = [block for block in range(num_blocks) if block not in model]
        match rng.choice(("push", "push", "remove", "pop", "refill")):
            case "push":
                blocks = rng.sample(absent, rng.randint(0, len(absent)))
                queue.push(np.array(blocks, np.int64), belongs)
                model.update(dict.fromkeys(blocks))
            case "remove":
                for block in rng.sample(list(model), rng.randint(0, len(model))):
                    del model[block]
            case "pop":
                count = rng.randint(0, len(model))
                popped = queue.pop(count, belongs).tolist()
                assert popped == [model.popitem(last=False)[0] for _ in range(count)]
            case "refill":
                model = OrderedDict.fromkeys(rng.sample(range(num_blocks), rng.randint(0, num_blocks)))
                queue.refill(np.array(list(model), np.int64))
        assert queue.blocks(belongs).tolist() == list(model)
