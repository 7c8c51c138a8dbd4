"""Arguments that look right and are not, or the other way round; and sizes that nobody tries by hand."""

import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagedkv.optimized import BlockManager, CacheGroup, StepPlan
from pagedkv.optimized.journal import MOST_LINES
from pagedkv.optimized.wire import _COUNTS, _HEADER, _Counts
from pagedkv.spec import Admit, Misuse

MASKED = np.ma.array([1, 2], np.int32, mask=[False, True])

REFUSED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "masked tokens": ("tokens", lambda m: m.admit("b", MASKED)),
    "masked counts": ("counts", lambda m: m.append_batch(["a"], [1, 2], MASKED[:1])),
    "masked rows": ("requests", lambda m: m.append_batch(np.ma.array([0], np.int32), [1])),
    "masked lengths": ("lengths", lambda m: m.reserve_batch(["a"], np.ma.array([5], np.int32))),
    "2-D buffer of tokens": ("tokens", lambda m: m.admit("b", np.ones((2, 2), np.int32).data)),
    "buffer of floats": ("tokens", lambda m: m.admit("b", np.ones(2).data)),
    "2-D buffer of ids": ("requests", lambda m: m.append_batch(np.ones((2, 2), np.int32).data, [1])),
    "bytes that change": ("tokens", lambda m: m.admit("b", bytearray(b"12"))),
    "NumPy's True among tokens": ("tokens", lambda m: m.admit("b", [1, np.True_])),
    "NumPy's float among tokens": ("tokens", lambda m: m.admit("b", [1, np.float32(2)])),
    "a token that is too large for NumPy": ("tokens", lambda m: m.admit("b", [2**70])),
    "unhashable request to look at": ("requests", lambda m: m.snapshot([[]])),
    "flag that only counts as one": ("read_cache", lambda m: m.blocks_needed(Admit("b", (1,)), read_cache=1)),
    "more external than there is": ("external", lambda m: m.blocks_needed(Admit("b", (1,)), external=2)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_misuse(case: str) -> None:
    argument, call = REFUSED[case]
    manager = BlockManager(8, 4)
    manager.admit("a", range(4))
    before = manager.snapshot()
    with pytest.raises(Misuse, match=argument):
        call(manager)
    assert manager.snapshot() == before
    manager.check()


@pytest.mark.parametrize(
    "tokens",
    [[np.int32(4), 5], (np.uint8(4), np.int64(5)), np.array([4, 5], np.int32).data, np.array([4, 5], ">i4"),
     np.array([5, 4], np.int32)[::-1]],
    ids=lambda tokens: type(tokens).__name__,
)  # fmt: skip
def test_integers_are_integers_whatever_holds_them(tokens: Any) -> None:
    manager = BlockManager(8, 1)
    manager.admit("a", tokens)
    manager.commit("a", 2)
    assert manager.lookup([4, 5]).cached_tokens == 2


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32, np.uint64])
def test_windows_and_sinks_may_be_numbers_of_numpy(kind: type) -> None:
    group, plain = CacheGroup(kind(100), kind(120)), CacheGroup(100, 120)
    assert group == plain
    assert {type(group.sliding_window), type(group.sink_tokens)} == {int}
    windows = BlockManager(8, 16, groups=(group, group), max_rollback=1000)._state.windows
    assert (windows.sinks, windows.holes(0, 1), windows.holes(0, 2000)) == ((8, 8), 0, 48)


def test_a_step_that_is_not_equal_to_itself_ends_all_the_same() -> None:
    manager, step = BlockManager(4, 2, overlapped_steps=True), float("nan")
    manager.begin_step(step)
    manager.admit("a", [1, 2, 3])
    manager.free("a")
    manager.end_step(step)
    manager.check()
    assert manager.available_blocks == 4
    with pytest.raises(Misuse, match="step"):
        manager.end_step(step)


def test_a_namespace_that_is_not_equal_to_itself_is_one_all_the_same() -> None:
    manager, namespace = BlockManager(8, 2), float("nan")
    for request in ("a", "b"):
        manager.admit(request, [1, 2, 3], namespace)
        manager.commit(request, 3)
    manager.check()
    assert manager.lookup([1, 2], namespace).cached_tokens == 2
    assert [each.request for each in manager.invalidate("a", 0).affected] == ["b"]  # type: ignore[union-attr]  # not refused


@pytest.mark.parametrize("digest", [b"", None, 0])
def test_any_collision_is_harmless_also_with_listeners(digest: Any) -> None:
    manager = BlockManager(64, 2, hash_function=lambda parent, tokens: digest, events=True)
    for request in range(3):
        manager.admit(request, [request, 1, 2, 3])
        manager.commit(request, 4)
    manager.free_batch([0, 1, 2])
    manager.evict(3)
    manager.check()


def test_a_namespace_that_cannot_be_named_is_refused_at_the_door() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "\ud800"

    manager = BlockManager(8, 2, events=True)
    with pytest.raises(UnicodeEncodeError):
        manager.admit("a", [1, 2], Odd())
    assert not manager.snapshot().lengths
    manager.check()


def test_a_plan_that_is_written_into_harms_no_memory() -> None:
    manager = BlockManager(64, 4)
    manager.admit("a", [1, 2, 3])
    rows = manager.rows(["a"])
    held = manager.append_batch(rows, [1])
    plan = manager.append_batch(rows, [1] * 5, [5])
    plan.update_rows[:], plan.update_columns[:], plan.update_blocks[:] = 2**30, -(2**30), 77
    del held
    assert manager.append_batch(rows, [1]).block_tables.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("width", [2**31, 2**62, 2**63])
def test_bytes_of_a_plan_that_nobody_can_have_are_misuse(width: int) -> None:
    manager = BlockManager(8, 4)
    manager.admit("a", range(4))
    data = manager.append_batch([], []).to_bytes()
    body = bytearray(data[_HEADER.size :])
    counts = _Counts(*_COUNTS.unpack_from(body))._replace(width=width)
    _COUNTS.pack_into(body, 0, *counts)
    magic, version, _ = _HEADER.unpack_from(data)
    with pytest.raises(Misuse, match="data"):
        StepPlan.from_bytes(_HEADER.pack(magic, version, zlib.crc32(body)) + body)


def test_check_hashes_each_path_once_at_most() -> None:
    """However long the path is that it is the end of."""
    calls = 0

    def count(parent: bytes, tokens: bytes) -> bytes:
        nonlocal calls
        calls += 1
        return parent + tokens

    manager = BlockManager(9000, 1, hash_function=count)
    for request in range(3):
        manager.admit(request, [request, *range(2500)])
        manager.commit(request, 2501)
    calls = 0
    manager.check()
    assert calls <= 3 * 2501


def test_a_log_that_had_to_be_long_is_not_kept() -> None:
    manager = BlockManager(2**17, 1)
    manager.admit("a", np.zeros(2**17, np.int32))
    manager.commit("a", 2**17)
    manager.free("a")
    manager.reset_prefix_index()
    longest = len(manager._state.journal.memory.log)
    assert longest > MOST_LINES
    manager.admit("b", [1])
    assert len(manager._state.journal.memory.log) == MOST_LINES
    manager.check()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what is resident is read as Linux says it")
def test_a_long_prompt_among_many_short_ones_takes_memory_for_itself_only() -> None:
    """Four thousand requests, and one of 600,000 tokens: the rectangle of all is ten gigabytes."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    manager = BlockManager(2**17, 16)
    for request in range(4100):
        manager.admit(request, [1, 2, 3])
    before = resident()
    manager.admit("long", np.arange(600_000, dtype=np.int32) % 1000)
    manager.permute(np.roll(np.arange(2**17), 1))
    assert resident() - before < 2**28
    manager.free("long")
