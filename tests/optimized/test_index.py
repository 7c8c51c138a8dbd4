"""The prefix index finds exactly what was published, whatever the hash does."""

import random
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.optimized.index import HashFunction, PrefixIndex, keyed_hash, path_tokens
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.recency import IdleQueue
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
    collided._state = ManagerState(config, COLLIDING[name])
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
    published=st.lists(st.tuples(st.sampled_from("xy"), st.lists(BITS, min_size=2, max_size=8)), max_size=8),
    asked=st.tuples(st.sampled_from("xy"), st.lists(BITS, max_size=8)),
    name=st.sampled_from([*COLLIDING, "keyed"]),
)
def test_a_match_is_the_longest_published_prefix(
    published: list[tuple[str, list[int]]], asked: tuple[str, list[int]], name: str
) -> None:
    """Against a dictionary of whole paths; blocks of two tokens, each path published without its ancestors."""
    index, model = PrefixIndex(8, 2, COLLIDING.get(name) or keyed_hash()), set()
    for block, (namespace, tokens) in enumerate(published):
        node = index.root(namespace)
        for i in range(0, len(tokens) - 1, 2):
            node = index.child(node, np.array(tokens[i : i + 2], np.int32).tobytes())
        index.publish(node, block)
        assert path_tokens(node).tolist() == tokens[: len(tokens) // 2 * 2]
        model.add((namespace, tuple(tokens[: len(tokens) // 2 * 2])))
    namespace, tokens = asked
    count = 0
    while 2 * count + 2 <= len(tokens) and (namespace, tuple(tokens[: 2 * count + 2])) in model:
        count += 1
    nodes = index.match(namespace, np.array(tokens, np.int32), len(tokens))
    assert [path_tokens(node).tolist() for node in nodes] == [tokens[: 2 * i + 2] for i in range(count)]
    assert all(node.namespace == namespace for node in nodes)


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
def test_the_idle_queue_is_an_ordered_set(num_blocks: int, rng: random.Random) -> None:
    """Against an OrderedDict, long enough to compact many times."""
    queue, model = IdleQueue(num_blocks), OrderedDict[int, None]()
    for _ in range(60):
        absent = [block for block in range(num_blocks) if block not in model]
        match rng.choice(("push", "push", "remove", "pop", "relabel")):
            case "push":
                blocks = rng.sample(absent, rng.randint(0, len(absent)))
                queue.push(np.array(blocks, np.int32))
                model.update(dict.fromkeys(blocks))
            case "remove":
                blocks = rng.sample(list(model), rng.randint(0, len(model)))
                queue.remove(np.array(blocks, np.int32))
                for block in blocks:
                    del model[block]
            case "pop":
                count = rng.randint(0, len(model))
                assert queue.pop(count).tolist() == [model.popitem(last=False)[0] for _ in range(count)]
            case "relabel":
                labels = rng.sample(range(num_blocks), num_blocks)
                queue.relabel(np.array(labels, np.int32))
                model = OrderedDict.fromkeys(labels[block] for block in model)
        assert len(queue) == len(model)
        assert queue.blocks().tolist() == list(model)
