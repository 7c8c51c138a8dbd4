"""A batch equals its rows in order, and a plan says what the tables say."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec import Batch, Config, Misuse, Reason, Refused, Reserve, ceil_div

from tests.optimized.manager_programs import CONFIGS, answer, canonical, operation, run, view


@settings(max_examples=150, deadline=None)
@given(config=CONFIGS, rng=st.randoms(use_true_random=True), count=st.integers(20, 80))
def test_a_batch_equals_its_rows_in_order(config: Config, rng: random.Random, count: int) -> None:
    """Two managers, one gets batches and the other their rows one by one: nothing tells them apart but placement."""
    batched, scalar = OptimizedSubject(config), OptimizedSubject(config)
    for _ in range(count):
        op = operation(rng, view(batched))
        ours = run(batched, op)
        if not isinstance(op, Batch):
            theirs = run(scalar, op)
            assert type(ours) is type(theirs)
        elif isinstance(ours, Misuse):
            twin = scalar.copy()
            assert any(isinstance(run(twin, row), Misuse) for row in op.rows)
        else:
            answers = [run(scalar, row) for row in op.rows]
            assert [answer(one) for one in ours] == [answer(row[0]) for row in answers if isinstance(row, tuple)]
        assert canonical(batched) == canonical(scalar)
        batched.check()


def decoding(num_blocks: int, lengths: list[int], **options: Any) -> BlockManager:
    """Requests 0, 1, … of these lengths, computed to their ends, with different tokens."""
    manager = BlockManager(num_blocks, 4, **options)
    for request, length in enumerate(lengths):
        manager.admit(request, np.arange(length) + 1000 * request)
        manager.commit(request, length)
    return manager


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=20, unique=True), steps=st.integers(1, 10))
@settings(max_examples=50, deadline=None)
def test_a_plan_is_what_the_tables_say(lengths: list[int], steps: int) -> None:
    """Slot = table[p // bs] * bs + p % bs of each appended position, and no slot is handed out twice."""
    manager = decoding(400, lengths)
    rows = manager.rows(range(len(lengths)))
    known = np.array(lengths)
    for step in range(steps):
        counts = np.array([1 + (step + row) % 3 for row in range(len(rows))])
        plan = manager.append_batch(rows, np.zeros(counts.sum(), np.int32), counts)
        expected = [
            plan.block_tables[row, p // 4] * 4 + p % 4
            for row in range(len(rows))
            for p in range(known[row], known[row] + counts[row])
        ]
        known += counts
        assert plan.slot_mapping.tolist() == expected
        assert len(set(expected)) == len(expected)
        assert plan.seq_lens.tolist() == known.tolist()
        assert plan.block_tables.shape == (len(rows), max(ceil_div(int(n), 4) for n in known))
        manager.commit_batch(rows, plan.seq_lens)
        manager.check()
    assert [a.dtype for a in (plan.block_tables, plan.seq_lens, plan.slot_mapping, plan.copies, plan.refused)] == [
        np.int32, np.int32, np.int64, np.int32, np.int32,
    ]  # fmt: skip


def test_rows_and_ids_are_the_same() -> None:
    """A batch over handles is the batch over ids."""
    ours, theirs = decoding(40, [3, 4, 9]), decoding(40, [3, 4, 9])
    a, b = ours.append_batch([2, 0, 1], [7, 8, 9]), theirs.append_batch(theirs.rows([2, 0, 1]), [7, 8, 9])
    for field in ("block_tables", "seq_lens", "slot_mapping", "copies", "refused"):
        assert np.array_equal(getattr(a, field), getattr(b, field))


def test_a_refused_row_is_untouched_and_later_rows_that_fit_go_on() -> None:
    """Two of three rows need a block and one is available: row order decides, and the third needs none."""
    manager = decoding(4, [4, 8, 3][:3], prefix_cache=False)
    plan = manager.append_batch([0, 2, 1], [1, 2, 3])
    assert (plan.refused.tolist(), plan.reasons) == ([0, 2], (Reason.CAPACITY, Reason.CAPACITY))
    assert plan.slot_mapping.tolist()[0] == plan.slot_mapping.tolist()[2] == -1
    assert plan.seq_lens.tolist() == [4, 4, 8]
    manager.check()


def test_a_refused_reservation_has_no_slots_however_much_it_asked_for() -> None:
    manager = decoding(6, [4, 3])
    plan = manager.reserve_batch([0, 1], [2**62, 6])
    assert (plan.refused.tolist(), plan.reasons) == ([0], (Reason.UNSERVABLE,))
    assert plan.slot_counts.tolist() == [0, 3]
    assert plan.slot_mapping.tolist() == [plan.block_tables[1, p // 4] * 4 + p % 4 for p in (3, 4, 5)]


@pytest.mark.parametrize("length", [2**31, 2**63, 10**30])
def test_what_never_fits_is_refused_however_much_it_is(length: int) -> None:
    subject = OptimizedSubject(Config(6, 4, sliding_window=2))
    subject.admit("a", range(9))
    subject.commit("a", 9)
    before = subject.observe()
    assert subject.reserve("a", length) == Refused(Reason.UNSERVABLE)
    assert subject.batch([Reserve("a", length), Reserve("a", 10)])[0] == Refused(Reason.UNSERVABLE)
    subject.truncate("a", 9)
    assert subject.observe() == before


def test_no_request_outgrows_int32() -> None:
    """A window makes room for blocks past position 2**31, which lengths and plans could not name."""
    manager = BlockManager(2**21 - 1, 2**10, sliding_window=1)
    manager.admit("a", range(1025))
    manager.commit("a", 1025)  # the first block is a hole, so that another one would fit
    assert manager.reserve("a", 2**31) == Refused(Reason.UNSERVABLE)
    assert manager.reserve_batch(["a"], [2**31]).reasons == (Reason.UNSERVABLE,)
    assert manager.stats().used == 1


APPENDS: dict[str, Callable[[BlockManager], object]] = {
    "scalar": lambda m: m.append(0, range(9_000)),
    "batch": lambda m: m.append_batch([0, 1], range(9_000), [8_999, 1]),
    "batch in turn": lambda m: m.append_batch([0, 0], range(9_000), [8_999, 1]),
}


@pytest.mark.parametrize("name", APPENDS)
def test_a_refused_append_takes_no_memory(name: str) -> None:
    manager = decoding(6, [4, 3])
    before = manager._state.rows.tokens.shape
    APPENDS[name](manager)
    assert manager._state.rows.tokens.shape == before
    manager.check()


def test_plans_keep_what_they_said() -> None:
    """Buffers rotate, but no step writes the arrays of a plan that is in use."""
    manager = decoding(60, [3, 7, 11])
    plans = [manager.append_batch([0, 1, 2], [step] * 3) for step in range(3)]
    before = [plan.to_bytes() for plan in plans]
    manager.append_batch([0, 1, 2], [9] * 3)
    manager.free_batch([0, 1, 2])
    assert [plan.to_bytes() for plan in plans] == before


def test_parent_and_child_append_in_one_batch() -> None:
    """The first copies, the second writes in place: one copy, listed for the first row."""
    manager = decoding(9, [6])
    manager.fork(0, "child")
    plan = manager.append_batch([0, "child"], [1, 2])
    ((source, destination),) = plan.copies.tolist()
    assert plan.copy_rows.tolist() == [0]
    assert plan.block_tables[:, 1].tolist() == [destination, source]
    manager.check()


def test_a_batched_write_into_an_indexed_block_drops_its_entry() -> None:
    manager = decoding(9, [8, 3])
    manager.truncate(0, 6)  # the second block keeps its entry …
    assert manager.lookup(range(8)).cached_tokens == 8
    plan = manager.append_batch([0, 1], [99, 99])  # … until it is written
    assert len(plan.copies) == 0
    assert manager.lookup(range(8)).cached_tokens == 4
    manager.check()


INT32, MAX = np.int32, 2**63 - 1
BAD_BATCHES: dict[str, tuple[str, Callable[[Any], object]]] = {
    "unknown id": ("requests", lambda m: m.append_batch([0, "x"], [1, 1])),
    "preempted": ("requests", lambda m: m.append_batch([0, "gone"], [1, 1])),
    "unhashable id": ("requests", lambda m: m.append_batch([0, []], [1, 1])),
    "one id": ("requests", lambda m: m.append_batch("0", [1])),
    "no ids": ("requests", lambda m: m.free_batch(None)),
    "row out of range": ("requests", lambda m: m.append_batch(np.array([99], INT32), [1])),
    "negative row": ("requests", lambda m: m.append_batch(np.array([-1], INT32), [1])),
    "unused row": ("requests", lambda m: m.append_batch(np.array([9], INT32), [1])),
    "rows of another dtype": ("requests", lambda m: m.append_batch(np.array([0.0]), [1])),
    "2-D rows": ("requests", lambda m: m.append_batch(np.zeros((1, 1), INT32), [1])),
    "too few tokens": ("tokens", lambda m: m.append_batch([0, 1], [1])),
    "too many tokens": ("tokens", lambda m: m.append_batch([0, 1], [1, 2, 3])),
    "negative token": ("tokens", lambda m: m.append_batch([0, 1], [1, -2])),
    "float tokens": ("tokens", lambda m: m.append_batch([0], np.zeros(1))),
    "zero count": ("counts", lambda m: m.append_batch([0, 1], [1], [1, 0])),
    "counts of other length": ("counts", lambda m: m.append_batch([0, 1], [1, 2], [2])),
    "counts whose sum wraps to more": ("counts", lambda m: m.append_batch([0, 1, 2, 3], [9, 9], [MAX, MAX, 1, 3])),
    "counts whose sum wraps, one row twice": ("counts", lambda m: m.append_batch([0, 1, 0], [7], [MAX, MAX, 3])),
    "bool counts": ("counts", lambda m: m.append_batch([0, 1], [1, 2], [True, 1])),
    "float counts": ("counts", lambda m: m.append_batch([0], [1], np.ones(1))),
    "zero length": ("lengths", lambda m: m.reserve_batch([0, 1], [9, 0])),
    "length past int64": ("lengths", lambda m: m.reserve_batch([0, 1], [9, 2**63])),
    "ragged lengths": ("lengths", lambda m: m.reserve_batch([0, 1], [9, [1, 2]])),
    "commit backwards": ("computed", lambda m: m.commit_batch([0, 1], [6, 0])),
    "commit past the end": ("computed", lambda m: m.commit_batch([0, 1], [7, 6])),
    "commit twice, backwards": ("computed", lambda m: m.commit_batch([2, 2], [5, 4])),
    "free twice": ("requests", lambda m: m.free_batch([0, 0])),
    "free unknown": ("requests", lambda m: m.free_batch([0, "x"])),
    "handles of unknown": ("requests", lambda m: m.rows(["x"])),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_misuse_names_the_argument_and_changes_nothing(name: str) -> None:
    subject = OptimizedSubject(Config(20, 4))
    for request, length in ((0, 6), (1, 6), (2, 6), (3, 6), ("gone", 3)):
        subject.admit(request, range(length))
        if request != 2:
            subject.commit(request, length)
    subject.preempt("gone")
    before = subject.observe(), subject.stats()
    argument, call = BAD_BATCHES[name]
    with pytest.raises(Misuse) as raised:
        call(subject)
    assert raised.value.argument == argument
    assert (subject.observe(), subject.stats()) == before
    subject.check()


def test_an_empty_batch_is_an_empty_plan() -> None:
    plan = decoding(4, [3]).append_batch([], [])
    assert (plan.block_tables.shape, len(plan.slot_mapping), len(plan.refused)) == ((0, 0), 0, 0)


def test_a_batch_of_commits_ends_with_the_tokens_though_slots_go_on() -> None:
    """Lookahead has slots and no tokens: nothing of it can have been computed."""
    manager = BlockManager(8, 4)
    for request in ("a", "b"):
        manager.admit(request, range(5))
        manager.reserve(request, 8)
    before = manager.snapshot()
    with pytest.raises(Misuse, match="computed"):
        manager.commit_batch(["a", "b"], [5, 6])
    assert manager.snapshot() == before
    manager.commit_batch(["a", "b"], [5, 5])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 5))
def test_what_a_plan_shows_is_what_may_be_committed(length: int, ends: list[int], block_size: int) -> None:
    """Chunks of a prefill and lookahead alike: positions that have a token and a slot."""
    manager = BlockManager(64, block_size)
    manager.admit("a", range(length), reserve=0)
    for end in ends:
        plan = manager.reserve_batch(["a"], [end])
        lengths = manager.snapshot().lengths["a"]
        assert plan.seq_lens.tolist() == [min(lengths.length, lengths.reserved)]
        manager.commit_batch(["a"], plan.seq_lens)
        assert manager.snapshot().lengths["a"].computed == plan.seq_lens[0]
