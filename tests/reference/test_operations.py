"""What the specification promises of each operation, on the reference manager, one small example each."""

import pytest
from pagedkv.reference.manager import BlockManager
from pagedkv.spec.words import HOLE, Config, Copy, Misuse, Ok, Reason, Refused


def committed(manager: BlockManager, request: str, tokens: list[int], namespace: str = "") -> None:
    assert isinstance(manager.admit(request, tokens, namespace), Ok)
    manager.commit(request, len(tokens))


def test_fork_then_append_copies_once() -> None:
    """Kwon et al., Figure 8: the first of two owners to write copies the shared block, the second writes in place."""
    manager = BlockManager(Config(num_blocks=4, block_size=4))
    committed(manager, "a", [1, 2])
    manager.fork("a", "b")
    assert manager.append("b", [3]) == Ok(slots=(6,), copies=(Copy(0, 1),))
    assert manager.append("a", [4]) == Ok(slots=(2,))
    assert manager.observe().tables == {"a": (0,), "b": (1,)}


def test_no_block_for_the_copy_refuses() -> None:
    manager = BlockManager(Config(num_blocks=1, block_size=4))
    committed(manager, "a", [1, 2])
    manager.fork("a", "b")
    assert manager.append("b", [3]) == Refused(Reason.CAPACITY)
    manager.free("a")
    assert manager.append("b", [3]) == Ok(slots=(2,))


def test_a_wholly_cached_prompt_leaves_a_token_to_compute() -> None:
    manager = BlockManager(Config(num_blocks=4, block_size=2))
    committed(manager, "a", [1, 2, 3, 4])
    assert manager.lookup([1, 2, 3, 4]) == Ok(cached_tokens=4)
    assert manager.admit("b", [1, 2, 3, 4]) == Ok(cached_tokens=2)
    assert manager.observe().lengths["b"].computed == 2


def test_namespaces_share_nothing() -> None:
    manager = BlockManager(Config(num_blocks=4, block_size=2))
    committed(manager, "a", [1, 2, 3], "x")
    assert manager.lookup([1, 2, 3], "y") == Ok()
    assert manager.lookup([1, 2, 3], "x") == Ok(cached_tokens=2)


def test_a_released_block_waits_for_the_steps_begun_before() -> None:
    manager = BlockManager(Config(num_blocks=1, block_size=2, overlapped_steps=True, prefix_cache=False))
    manager.admit("a", [1])
    manager.begin_step(1)
    manager.free("a")
    manager.begin_step(2)
    assert manager.admit("b", [1]) == Refused(Reason.IN_FLIGHT)
    manager.end_step(1)  # step 2 began after the release
    assert manager.admit("b", [1]) == Ok()


def test_a_held_block_can_be_hit() -> None:
    manager = BlockManager(Config(num_blocks=3, block_size=2, overlapped_steps=True))
    committed(manager, "a", [1, 2, 3])
    manager.begin_step(1)
    manager.free("a")
    assert manager.observe().available_blocks == 1
    assert manager.pin([1, 2]) == Ok(cached_tokens=2)
    assert manager.observe().references == {0: 1}
    assert 0 not in manager.pool.held


def test_window_leaves_aligned_holes() -> None:
    """W = 4: at 7 computed positions the next query sees 4..7, so the blocks of 0..3 are dead."""
    manager = BlockManager(Config(num_blocks=4, block_size=2, sliding_window=4))
    manager.admit("a", list(range(7)))
    manager.commit("a", 6)
    assert manager.observe().tables["a"] == (HOLE, 1, 2, 3)
    manager.commit("a", 7)
    assert manager.observe().tables["a"] == (HOLE, HOLE, 2, 3)
    assert manager.observe().available_blocks == 2
    assert manager.truncate("a", 6) == Refused(Reason.RELEASED)
    assert manager.lookup(list(range(7))) == Ok(cached_tokens=6), "released blocks can still be hit"


def test_sinks_stay_before_the_holes() -> None:
    """Three sinks take two blocks; whoever hits the prefix gets these, and what its window sees."""
    manager = BlockManager(Config(num_blocks=8, block_size=2, sliding_window=2, sink_tokens=3, swap_blocks=4))
    committed(manager, "a", list(range(10)))
    assert manager.observe().tables["a"] == (0, 1, HOLE, HOLE, 4)
    assert manager.admit("b", list(range(10))) == Ok(cached_tokens=8)
    assert manager.observe().tables["b"] == (0, 1, HOLE, 3, 5)
    assert manager.truncate("b", 3) == Refused(Reason.RELEASED)
    out, back = manager.preempt("a", "swap"), manager.resume("a")
    assert isinstance(out, Ok)
    assert isinstance(back, Ok)
    assert len(out.swapped) == len(back.swapped) == 3
    assert manager.observe().tables["a"][2:4] == (HOLE, HOLE)
    assert manager.fork("a", "c") == Ok()
    assert manager.observe().tables["c"] == manager.observe().tables["a"]


def test_a_hit_on_a_held_block_takes_nothing() -> None:
    manager = BlockManager(Config(num_blocks=2, block_size=2, overlapped_steps=True))
    committed(manager, "a", [1, 2])
    manager.admit("b", [7])
    manager.begin_step(1)
    manager.free("a")
    assert manager.admit("c", [1, 2, 3]) == Refused(Reason.CAPACITY), "the end of the step would not help"
    assert manager.admit("d", [7, 7]) == Refused(Reason.IN_FLIGHT)
    assert manager.admit("c", [1, 2, 3], reserve=2) == Ok(cached_tokens=2)


def test_swap_gives_private_blocks_and_bounded_space() -> None:
    manager = BlockManager(Config(num_blocks=4, block_size=2, swap_blocks=2))
    committed(manager, "a", [1, 2, 3])
    manager.fork("a", "b")
    table = manager.observe().tables["a"]
    out = manager.preempt("a", "swap")
    assert isinstance(out, Ok)
    assert [copy.source for copy in out.swapped] == list(table)
    assert {copy.destination for copy in out.swapped} == {0, 1}
    assert manager.preempt("b", "swap") == Refused(Reason.SWAP_SPACE)
    lengths = manager.observe().lengths["a"]
    assert (lengths.reserved, lengths.computed, lengths.resident) == (3, 3, False)
    back = manager.resume("a")
    assert isinstance(back, Ok)
    assert [copy.source for copy in back.swapped] == [copy.destination for copy in out.swapped]
    assert [copy.destination for copy in back.swapped] == list(manager.observe().tables["a"])
    assert not set(manager.observe().tables["a"]) & set(manager.observe().tables["b"])
    assert isinstance(manager.preempt("b", "swap"), Ok)


def test_pins_nest_and_the_latest_goes_first() -> None:
    manager = BlockManager(Config(num_blocks=4, block_size=2))
    committed(manager, "a", [1, 2])
    assert manager.pin([1, 2, 3, 4]) == Ok(cached_tokens=2)
    manager.append("a", [3, 4])
    manager.commit("a", 4)
    assert manager.pin([1, 2, 3, 4]) == Ok(cached_tokens=4)
    assert manager.observe().references == {0: 3, 1: 2}
    assert manager.reset_prefix_index() == Refused(Reason.PINNED)
    manager.unpin([1, 2, 3, 4])
    assert manager.observe().references == {0: 2, 1: 1}
    manager.unpin([1, 2, 3, 4])
    with pytest.raises(Misuse, match="pinned"):
        manager.unpin([1, 2, 3, 4])


def test_a_pinned_block_is_copied_before_it_is_written() -> None:
    manager = BlockManager(Config(num_blocks=4, block_size=2))
    committed(manager, "a", [1, 2])
    manager.pin([1, 2])
    manager.truncate("a", 1)
    assert manager.append("a", [9]) == Ok(slots=(3,), copies=(Copy(0, 1),))
    assert manager.lookup([1, 2]) == Ok(cached_tokens=2)


def test_a_sole_owner_that_writes_drops_the_entry() -> None:
    manager = BlockManager(Config(num_blocks=4, block_size=2))
    committed(manager, "a", [1, 2])
    manager.truncate("a", 1)
    assert manager.lookup([1, 2]) == Ok(cached_tokens=2), "kept until it is written"
    assert manager.append("a", [9]) == Ok(slots=(1,))
    assert manager.lookup([1, 2]) == Ok()


def test_deduplication_gives_one_block_up() -> None:
    manager = BlockManager(Config(num_blocks=4, block_size=2, dedup=True))
    manager.admit("a", [1, 2])
    manager.admit("b", [1, 2])
    assert manager.commit("a", 2) == Ok()
    assert manager.commit("b", 2) == Ok(remapped=(Copy(1, 0),))
    assert manager.observe().tables == {"a": (0,), "b": (0,)}


def test_an_entry_scheduled_and_never_written_goes_with_its_owners() -> None:
    manager = BlockManager(Config(num_blocks=4, block_size=2, publish="schedule"))
    manager.admit("a", [1, 2, 3])
    assert manager.admit("b", [1, 2, 3]) == Ok(cached_tokens=2)
    manager.free("a")
    assert manager.lookup([1, 2]) == Ok(cached_tokens=2)
    manager.free("b")
    assert manager.lookup([1, 2]) == Ok()
