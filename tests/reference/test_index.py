"""Laws of the prefix index: identity is the whole path, and eviction is least recent, children before parents."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.reference.index import Prefix, PrefixIndex
from pagedkv.reference.manager import BlockManager
from pagedkv.spec.words import Config, Identity, Ok, Reason, Refused

from tests.conformance.illegal import ILLEGAL

BIT = st.integers(0, 1)
PATHS = st.lists(st.tuples(BIT, BIT), min_size=1, max_size=5)


def chain(namespace: str, blocks: list[tuple[int, int]]) -> Prefix:
    prefix: Prefix | None = None
    for tokens in blocks:
        prefix = Prefix(namespace, prefix, tokens)
    assert prefix is not None
    return prefix


@settings(max_examples=200, deadline=None)
@given(st.sampled_from("xy"), PATHS, st.sampled_from("xy"), PATHS)
def test_prefixes_are_equal_iff_their_identities_are(
    one: str, path: list[tuple[int, int]], other: str, other_path: list[tuple[int, int]]
) -> None:
    a, b = chain(one, path), chain(other, other_path)
    assert (a == b) == (a.identity() == b.identity())
    assert a != b or hash(a) == hash(b)
    assert a.identity() == Identity(one, tuple(token for block in path for token in block))


def test_a_collision_of_hashes_is_no_hit() -> None:
    index = PrefixIndex(block_size=1)
    stored, asked = Prefix("", None, (1,)), Prefix("", None, (2,))
    asked._hash = stored._hash
    index.insert(stored, 0)
    assert index.block_of.get(asked) is None
    assert index.match("", [1]) == [0]


def test_long_equal_paths_are_compared_without_recursion_and_once() -> None:
    """5,000 blocks built twice: the second chain is compared link by link, not from the root at every link."""
    tokens = [n % 7 for n in range(5_000)]
    manager = BlockManager(Config(num_blocks=10_000, block_size=1))
    for request in "ab":
        manager.admit(request, tokens)
    for request in "ab":
        manager.commit(request, len(tokens))
    assert manager.lookup(tokens) == Ok(cached_tokens=5_000)
    assert manager.requests["a"].prefixes[-1] is manager.requests["b"].prefixes[-1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(BIT, min_size=1, max_size=8), max_size=6), st.lists(BIT, max_size=8))
def test_match_is_the_longest_chain_of_whole_blocks(prompts: list[list[int]], asked: list[int]) -> None:
    """Against the definition: whole blocks whose paths were all committed."""
    manager, size = BlockManager(Config(num_blocks=64, block_size=2)), 2
    for number, prompt in enumerate(prompts):
        manager.admit(number, prompt)
        manager.commit(number, len(prompt))
    committed = {tuple(prompt[: n * size]) for prompt in prompts for n in range(1, len(prompt) // size + 1)}
    expected = 0
    while expected + size <= len(asked) and tuple(asked[: expected + size]) in committed:
        expected += size
    before = list(manager.pool.index.idle)
    assert manager.lookup(asked) == Ok(cached_tokens=expected)
    assert list(manager.pool.index.idle) == before, "lookup moves no recency"


def idle_manager(*prompts: list[int], num_blocks: int = 8, kind: type[BlockManager] = BlockManager) -> BlockManager:
    """A pool of blocks of 1 in which the prompts were computed and freed in this order."""
    manager = kind(Config(num_blocks=num_blocks, block_size=1))
    for number, prompt in enumerate(prompts):
        manager.admit(number, prompt)
        manager.commit(number, len(prompt))
    for number in range(len(prompts)):
        manager.free(number)
    return manager


def evicted(manager: BlockManager) -> list[tuple[int, ...]]:
    """The paths in the order in which they are evicted one by one."""
    order = []
    while manager.pool.index.idle:
        before = manager.observe().index or {}
        assert manager.evict(1) == Ok(evicted=1)
        after = manager.observe().index or {}
        order += [identity.tokens for block, identity in before.items() if block not in after]
    return order


def test_least_recently_released_goes_first_children_before_parents() -> None:
    manager = idle_manager([1, 2], [3, 4])
    assert evicted(manager) == [(1, 2), (1,), (3, 4), (3,)]


def test_a_hit_and_a_release_make_recent() -> None:
    manager = idle_manager([1, 2], [3, 4])
    manager.admit("again", [1, 2, 9])  # hits both blocks of the older prompt
    manager.free("again")
    assert evicted(manager) == [(3, 4), (3,), (1, 2), (1,)]


def test_a_shared_parent_outlives_its_children() -> None:
    manager = idle_manager([1, 2], [1, 3])
    assert evicted(manager) == [(1, 2), (1, 3), (1,)]


def test_a_parent_released_before_its_child_still_goes_after_it() -> None:
    """A sliding window releases from the front, so recency alone would cut the path at its root."""
    manager = BlockManager(Config(num_blocks=8, block_size=1, sliding_window=2))
    manager.admit("a", [1, 2, 3])
    manager.commit("a", 3)
    manager.free("a")
    assert evicted(manager) == [(1, 2, 3), (1, 2), (1,)]


def test_a_parent_whose_child_is_used_can_be_evicted() -> None:
    manager = BlockManager(Config(num_blocks=3, block_size=1, sliding_window=2))
    manager.admit("a", [1, 2, 3])
    manager.commit("a", 3)
    assert evicted(manager) == [(1, 2), (1,)]
    assert manager.lookup([1, 2, 3]) == Ok(), "the chain is broken at its root"


def test_taking_prefers_free_blocks_to_idle_ones() -> None:
    manager = idle_manager([1, 2], num_blocks=4)
    manager.admit("new", [7, 8])
    assert manager.lookup([1, 2]) == Ok(cached_tokens=2)
    manager.append("new", [9])
    assert manager.lookup([1, 2]) == Ok(cached_tokens=1), "the child was evicted"


def recency_after_a_refusal(kind: type[BlockManager]) -> list[tuple[int, ...]]:
    """`big` hits the older prompt and is refused, while all 4 blocks are idle."""
    manager = idle_manager([1, 2], [3, 4], num_blocks=4, kind=kind)
    manager.admit("used", [8])  # (1, 2) is evicted for it
    assert manager.admit("big", [1, 2, 9, 9]) == Refused(Reason.CAPACITY)
    manager.free("used")
    return evicted(manager)


def test_a_refusal_moves_no_recency() -> None:
    assert recency_after_a_refusal(BlockManager) == [(1,), (3, 4), (3,)]


@pytest.mark.parametrize("name", [name for name, mutant in ILLEGAL.items() if "policy" in mutant.needs])
def test_mutants_of_the_policy_are_noticed(name: str) -> None:
    assert recency_after_a_refusal(ILLEGAL[name].load()) != recency_after_a_refusal(BlockManager)


def test_a_hit_is_never_evicted_by_its_own_admission() -> None:
    manager = idle_manager([1, 2], num_blocks=3)
    assert manager.admit("b", [1, 2, 9]) == Ok(cached_tokens=2)
    assert len(set(manager.observe().tables["b"])) == 3


def test_nothing_to_evict_is_an_error_of_the_caller() -> None:
    with pytest.raises(LookupError, match="no idle block"):
        PrefixIndex(block_size=1).least_recent(skip=())
