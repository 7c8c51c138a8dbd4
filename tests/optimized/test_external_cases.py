"""KV from elsewhere, scenario by scenario: it arrives, or not, or only in part, or is found to be wrong."""

from collections.abc import Callable

import pytest
from pagedkv.optimized.external import Affected, Invalidated
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec import HOLE, Identity, Misuse, Ok, Outcome, Reason, Refused
from pagedkv.spec.subject import Lengths

from tests.optimized.feature_programs import drain, entries


def ok(outcome: Outcome) -> Ok:
    assert isinstance(outcome, Ok)
    return outcome


def arrived(request: str, manager: BlockManager, count: int, namespace: str = "") -> None:
    """`count` tokens 0, 1, 2, … whose KV came from elsewhere."""
    assert isinstance(manager.admit_external(request, range(count), count, namespace), Ok)
    manager.commit(request, count)


def went_on(request: str, manager: BlockManager, *tokens: int) -> None:
    """A request is extended and computed."""
    manager.append(request, tokens)
    manager.commit(request, manager.snapshot().lengths[request].length)


def fork_fills_the_last_block(manager: BlockManager) -> None:
    """The child copies the partly filled block, and fills its own."""
    arrived("a", manager, 6)
    manager.fork("a", "k")
    went_on("k", manager, 6, 7)


def parent_leaves_the_last_block(manager: BlockManager) -> None:
    """The parent copies the partly filled block, and the child fills the one that was written to."""
    arrived("a", manager, 6)
    manager.fork("a", "k")
    manager.append("a", [9])
    went_on("k", manager, 6, 7)


def fork_takes_back_half_a_block(manager: BlockManager) -> None:
    """The child keeps two positions of a full block in a copy, and goes on with tokens of its own."""
    arrived("a", manager, 8)
    manager.fork("a", "k")
    manager.truncate("k", 6)
    went_on("k", manager, 66, 77)


def another_copy_is_found(manager: BlockManager) -> None:
    """The index holds the block of somebody who computed it right; what goes on from the wrong one is in it, too."""
    manager.admit("b", range(4))
    assert isinstance(manager.admit_external("a", range(4), 4), Ok)
    for request in ("b", "a"):
        manager.commit(request, 4)
    manager.fork("a", "k")
    went_on("k", manager, 4, 5, 6, 7)
    manager.free("k")


def the_index_was_reset(manager: BlockManager) -> None:
    """What goes on from a block that cannot be found is found as soon as somebody computes that block anew."""
    arrived("a", manager, 4)
    manager.reset_prefix_index()
    manager.fork("a", "k")
    went_on("k", manager, 4, 5, 6, 7)
    manager.free("k")


WAYS: tuple[tuple[Callable[[BlockManager], None], int, tuple[int, ...]], ...] = (
    (fork_fills_the_last_block, 4, (0, 1, 2, 3, 4, 5, 6, 7)),
    (parent_leaves_the_last_block, 4, (0, 1, 2, 3, 4, 5, 6, 7)),
    (fork_takes_back_half_a_block, 4, (0, 1, 2, 3, 4, 5, 66, 77)),
    (another_copy_is_found, 0, (0, 1, 2, 3, 4, 5, 6, 7)),
    (the_index_was_reset, 0, (0, 1, 2, 3, 4, 5, 6, 7)),
)
"""How wrong KV gets into other blocks than those that it came to: (what happens, where it is wrong, what is wrong)."""


@pytest.mark.parametrize(("happens", "position", "wrong"), WAYS, ids=[way[0].__name__ for way in WAYS])
def test_wrong_kv_is_followed_into_other_blocks(
    happens: Callable[[BlockManager], None], position: int, wrong: tuple[int, ...]
) -> None:
    manager = BlockManager(20, 4)
    happens(manager)
    found = manager.invalidate("a", position)
    assert isinstance(found, Invalidated)
    others = {request for request in manager.snapshot().lengths if request not in ("a", "b")}
    assert others <= {affected.request for affected in found.affected}
    assert Identity("", wrong) not in {identity for _, identity in entries(manager)}
    manager.check()


def test_who_has_forgotten_the_wrong_block_has_still_looked_at_it() -> None:
    """The window of `k` has released it, and its last block is not full, so that no entry tells."""
    manager = BlockManager(20, 2, sliding_window=2)
    arrived("a", manager, 2)
    manager.fork("a", "k")
    for token in (3, 4, 5):
        went_on("k", manager, token)
    found = manager.invalidate("a", 1)
    assert isinstance(found, Invalidated)
    assert [affected.request for affected in found.affected] == ["k"]


def test_what_arrives_is_found_once_it_is_committed_and_not_before() -> None:
    manager = BlockManager(8, 4)
    outcome = manager.admit_external("a", range(12), 8)
    assert isinstance(outcome, Ok)
    assert (outcome.cached_tokens, len(outcome.slots)) == (0, 8)
    assert manager.lookup(range(12)).cached_tokens == 0
    manager.commit("a", 8)
    assert manager.lookup(range(12)).cached_tokens == 8
    drain(manager)


@pytest.mark.parametrize("arrived_first", [0, 3, 4, 6])
def test_what_fails_to_arrive_can_be_computed_or_tried_again(arrived_first: int) -> None:
    """Nothing was promised, no slot is taken back, and the same slots are good for who writes there then."""
    manager = BlockManager(8, 4)
    slots = ok(manager.admit_external("a", range(10), 8)).slots
    manager.commit("a", arrived_first)
    before = manager.snapshot()
    assert manager.invalidate("a", arrived_first) == Invalidated(())  # the rest has not come: nothing is wrong
    assert manager.snapshot() == before
    manager.commit("a", 8)
    table = before.tables["a"]
    assert slots == tuple(table[p // 4] * 4 + p % 4 for p in range(8))
    assert manager.lookup(range(10)).cached_tokens == 8
    manager.commit("a", 10)
    drain(manager)


def test_a_request_is_computed_again_from_where_it_was_wrong() -> None:
    """It keeps its tokens, `reserve` gives slots, and the commit makes it found, by others too."""
    manager = BlockManager(8, 4)
    arrived("a", manager, 10)
    manager.admit("b", range(9))
    assert manager.invalidate("a", 5) == Invalidated((Affected("b", 5),))
    assert manager.snapshot().lengths["a"] == Lengths(10, 5, 5, True)
    assert manager.snapshot().lengths["b"] == Lengths(9, 9, 8, True)  # as it was
    assert manager.lookup(range(10)).cached_tokens == 4
    assert manager.invalidate("b", 5) == Invalidated(())
    assert len(ok(manager.reserve("a", 10)).slots) == 5
    manager.commit("a", 10)
    assert manager.lookup(range(10)).cached_tokens == 8
    drain(manager)


@pytest.mark.parametrize("namespace", ["", "other"])
def test_who_has_other_tokens_or_another_namespace_is_not_affected(namespace: str) -> None:
    manager = BlockManager(20, 4)
    arrived("a", manager, 8)
    manager.admit("b", range(8), "other")
    manager.admit("c", [0, 1, 2, 3, 4, 9, 6, 7])  # hits the first block, which is right
    for request in ("b", "c"):
        manager.commit(request, 8)
    assert manager.invalidate("a", 5) == Invalidated(())
    assert manager.lookup(range(8), namespace).cached_tokens == (8 if namespace else 4)
    assert manager.lookup([0, 1, 2, 3, 4, 9, 6, 7]).cached_tokens == 8


def test_below_a_window_nothing_can_be_rolled_back() -> None:
    """A refusal changes nothing; from where the window still looks it goes through."""
    manager = BlockManager(8, 2, sliding_window=3, max_rollback=2)
    arrived("a", manager, 9)
    before = manager.snapshot()
    assert before.tables["a"][:2] == (HOLE, HOLE)
    for position in range(6):
        assert manager.invalidate("a", position) == Refused(Reason.RELEASED)
        assert manager.snapshot() == before
    assert manager.invalidate("a", 6) == Invalidated(())
    manager.check()


def test_who_is_swapped_out_is_affected_and_invalidated_when_it_is_back() -> None:
    manager = BlockManager(8, 4, swap_blocks=4)
    arrived("a", manager, 8)
    manager.fork("a", "k")
    manager.preempt("k", "swap")
    assert manager.invalidate("a", 4) == Invalidated((Affected("k", 4),))
    with pytest.raises(Misuse, match="request"):
        manager.invalidate("k", 4)
    manager.resume("k")
    assert manager.invalidate("k", 4) == Invalidated(())
    assert manager.snapshot().lengths["k"] == Lengths(8, 4, 4, True)
    drain(manager)


@pytest.mark.parametrize(("position", "wrong"), [(-1, "from_position"), (9, "from_position"), (True, "from_position")])
def test_positions_that_make_no_sense_are_misuse(position: int, wrong: str) -> None:
    manager = BlockManager(8, 4)
    for external in (-1, 9, 2.0, True):
        with pytest.raises(Misuse, match="external"):
            manager.admit_external("a", range(8), external)  # type: ignore[arg-type]  # 2.0 is none on purpose
    arrived("a", manager, 8)
    with pytest.raises(Misuse, match=wrong):
        manager.invalidate("a", position)


# What has gone wrong in public projects, and must not here.


@pytest.mark.parametrize("length", [8, 9, 11])
@pytest.mark.parametrize("own", [0, 4, 8])
def test_what_comes_begins_where_the_own_hit_ends(length: int, own: int) -> None:
    """https://github.com/LMCache/LMCache/issues/5151: a prompt that is whole chunks, all of them outside. At least one
    position stays to be computed here, so of 8 tokens 4 at most are a hit, and the transfer fills up the rest."""
    manager = BlockManager(8, 4)
    if own:
        arrived("first", manager, own)
    shared = set(manager.snapshot().tables.get("first", ()))
    outcome = ok(manager.admit_external("a", range(length), 8))
    assert outcome.cached_tokens == min(own, (length - 1) // 4 * 4)
    assert outcome.cached_tokens + len(outcome.slots) == 8
    table = manager.snapshot().tables["a"]
    assert outcome.slots == tuple(table[p // 4] * 4 + p % 4 for p in range(outcome.cached_tokens, 8))
    assert {slot // 4 for slot in outcome.slots}.isdisjoint(shared)
    manager.commit("a", 8)
    manager.check()


def test_a_transfer_that_ends_within_a_block_begins_at_the_own_hit() -> None:
    """https://github.com/LMCache/LMCache/issues/2206: 8 positions are here, 14 are outside."""
    manager = BlockManager(12, 4)
    arrived("first", manager, 8)
    outcome = ok(manager.admit_external("a", range(20), 14, reserve=14))
    table = manager.snapshot().tables["a"]
    assert outcome.cached_tokens == 8
    assert outcome.slots == tuple(table[p // 4] * 4 + p % 4 for p in range(8, 14))
    manager.commit("a", 14)
    assert manager.lookup(range(20)).cached_tokens == 12  # the last block is not full yet
    assert len(ok(manager.reserve("a", 20)).slots) == 6


def test_drafts_lie_behind_what_is_still_to_come() -> None:
    """https://github.com/vllm-project/vllm/pull/46694. Slots for drafts may be had before the KV has arrived. They lie
    at the positions after it, one of its blocks is theirs too, and no draft makes that block be found."""
    manager = BlockManager(8, 4)
    awaited = ok(manager.admit_external("a", range(6), 6)).slots
    drafts = ok(manager.reserve("a", 9)).slots
    table = manager.snapshot().tables["a"]
    assert (*awaited, *drafts) == tuple(table[p // 4] * 4 + p % 4 for p in range(9))
    with pytest.raises(Misuse, match="computed"):
        manager.commit("a", 7)  # a draft is no token of the request
    manager.commit("a", 6)
    assert manager.lookup(range(8)).cached_tokens == 4
    manager.truncate("a", 6)  # every draft is rejected
    assert ok(manager.append("a", [96, 97])).slots == drafts[:2]  # in place: nobody else has seen the block
    manager.commit("a", 8)
    assert manager.lookup(range(8)).cached_tokens == 4
    assert manager.lookup([0, 1, 2, 3, 4, 5, 96, 97]).cached_tokens == 8
    drain(manager)
