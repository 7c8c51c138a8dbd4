"""Cache groups: what has gone wrong with them in public projects, and must not here."""

from collections.abc import Sequence
from typing import Any

import pytest
from pagedkv.optimized.external import Affected, Invalidated
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec import HOLE, Admit, Identity, Misuse, Ok

from tests.optimized.feature_programs import FULL, WINDOW, drain, entries, forget, tables


def admitted(manager: BlockManager, request: str, length: int, tokens: Sequence[int] = range(100)) -> int:
    """Admit the first `length` tokens; how many positions were found."""
    outcome = manager.admit(request, tokens[:length])
    assert isinstance(outcome, Ok)
    return outcome.cached_tokens


def written(manager: BlockManager, request: str, tokens: list[int]) -> int:
    """Admit and compute a request; how much of it was found."""
    cached = admitted(manager, request, len(tokens), tokens)
    manager.commit(request, len(tokens))
    return cached


@pytest.mark.parametrize("lookahead", [0, 3])
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_gives_back_the_tables_of_every_group(lookahead: int, mode: Any) -> None:
    """https://github.com/vllm-project/vllm/pull/10013: one of two tables was kept."""
    manager = BlockManager(12, 2, groups=(FULL, WINDOW), swap_blocks=12, prefix_cache=False)
    written(manager, "a", [1, 2, 3, 4, 5])
    manager.reserve("a", 5 + lookahead)
    assert manager.available_blocks == 12 - sum(block != HOLE for table in tables(manager, "a") for block in table)
    manager.preempt("a", mode)
    assert manager.available_blocks == 12
    assert isinstance(manager.resume("a"), Ok)
    manager.check()
    first, second = tables(manager, "a")
    assert len(first) == len(second) == (3 if mode == "recompute" else -(-(5 + lookahead) // 2))
    assert HOLE not in first
    drain(manager)


def without(manager: BlockManager, group: int, *ends: int) -> None:
    """Make the manager forget what one group holds of the prompt 0, 1, 2, … at these block ends."""
    found = entries(manager)
    forget(manager, [found[group, Identity("", tuple(range(end)))] for end in ends])


@pytest.mark.parametrize(("present", "hit"), [((0, 8, 12), 0), ((12, 8, 4), 4), ((12, 12, 12), 12), ((4, 12, 8), 4)])
def test_the_hit_is_what_all_groups_have(present: tuple[int, ...], hit: int) -> None:
    """https://github.com/vllm-project/vllm/issues/51771: one group without any block, and what the others have."""
    manager = BlockManager(30, 4, groups=(FULL, FULL, FULL))
    written(manager, "a", list(range(12)))
    manager.free("a")
    for group, length in enumerate(present):
        without(manager, group, *range(length + 4, 13, 4))
    assert manager.lookup(range(12)).cached_tokens == hit
    assert admitted(manager, "b", 13) == hit
    manager.check()


def test_the_hit_shrinks_to_the_next_common_length() -> None:
    """A block of one group goes, then one of another one."""
    manager = BlockManager(30, 4, groups=(FULL, FULL, FULL))
    written(manager, "a", list(range(12)))
    manager.free("a")
    for group, end, left in ((1, 12, 8), (2, 12, 8), (0, 8, 4), (2, 4, 0)):
        without(manager, group, end)
        assert manager.lookup(range(12)).cached_tokens == left


def test_a_group_never_lengthens_the_hit_of_another() -> None:
    """https://github.com/vllm-project/vllm-ascend/pull/12038. The window group keeps blocks 2 and 3 of 4 only: they
    are good for 16 tokens, and of no shorter prefix that ends before block 3 does anything hold."""
    manager = BlockManager(30, 4, groups=(FULL, CacheGroup(8)))
    written(manager, "a", list(range(16)))
    manager.free("a")
    without(manager, 1, 4, 8)
    assert manager.lookup(range(16)).cached_tokens == 16
    assert admitted(manager, "c", 16) == 0  # 12 at most, which would look at blocks 1 and 2
    manager.free("c")
    without(manager, 0, 16)
    assert manager.lookup(range(16)).cached_tokens == 0  # full attention has 12, and that wants block 1
    manager.check()


def test_what_is_out_of_the_window_is_neither_wanted_nor_kept() -> None:
    """https://github.com/NVIDIA/TensorRT-LLM/pull/10183: blocks of a window were reused as if attention were full."""
    manager = BlockManager(14, 2, groups=(CacheGroup(4), FULL))
    written(manager, "a", list(range(12)))
    assert tables(manager, "a")[0][:4] == (HOLE,) * 4
    assert len([block for block in tables(manager, "a")[0] if block != HOLE]) == 2
    manager.free("a")
    without(manager, 0, 2, 4, 6)
    before = manager.available_blocks
    assert manager.blocks_needed(Admit("b", tuple(range(12)))) == 6 + 3
    assert admitted(manager, "b", 12) == 10
    assert before - manager.available_blocks == 6 + 3  # five idle hits and a fresh block; two idle ones and a fresh one
    assert tables(manager, "b")[0][:3] == (HOLE,) * 3
    drain(manager)


def test_what_is_invalid_takes_along_what_goes_on_from_it_in_every_group() -> None:
    """One group holds a block after a hole that another one forgot: nothing above the wrong position is found."""
    manager = BlockManager(30, 2, groups=(FULL, CacheGroup(3)), max_rollback=2)
    written(manager, "a", list(range(8)))
    written(manager, "b", list(range(10)))
    assert manager.invalidate("a", 6) == Invalidated((Affected("b", 6),))
    assert manager.lookup(range(10)).cached_tokens == 6
    manager.invalidate("b", 6)
    assert all(len(identity.tokens) <= 6 for _, identity in entries(manager))
    manager.check()


def test_the_arrays_of_several_groups_are_asked_of_each() -> None:
    manager = BlockManager(8, 2, groups=(FULL, WINDOW))
    written(manager, "a", [1, 2, 3])
    plan = manager.append_batch(["a"], [4])
    assert [group.slot_mapping.shape for group in plan.groups] == [(1,), (1,)]
    assert plan.groups[0].slot_mapping != plan.groups[1].slot_mapping
    for name in ("block_tables", "slot_mapping", "copies", "copy_rows", "update_blocks"):
        with pytest.raises(Misuse, match="groups"):
            getattr(plan, name)
