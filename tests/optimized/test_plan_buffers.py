"""Plans share buffers, and nobody can tell: what is held stays as it was, what is dropped is used again. And a mirror
of all tables on a device stays right by what plans say has changed."""

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.plan import StepPlan
from pagedkv.spec import HOLE, Append, Config

from tests.optimized.feature_programs import (
    FULL, SHORT, SINKS, WINDOW, AdmitApart, AdmitExternal, Featured, Invalidate, operation, run, tables,
)  # fmt: skip
from tests.optimized.manager_programs import CONFIGS

SEEDS = st.integers(0, 2**32)
MORE = (AdmitApart, AdmitExternal, Invalidate)
GROUPS: Any = st.sampled_from([None, None, (FULL, WINDOW), (SHORT, SINKS), (SINKS, WINDOW, FULL)])


def made(config: Config, groups: Any) -> Featured:
    return Featured(config) if groups is None else Featured(config, groups=groups)


def arrays(plan: StepPlan) -> list[np.ndarray[Any, Any]]:
    """Every array of a plan."""
    own: list[np.ndarray[Any, Any]] = [plan.rows, plan.seq_lens, plan.slot_counts, plan.refused]
    own += [plan.update_rows, plan.update_columns]
    for group in plan.groups:
        own += [group.block_tables, group.slot_mapping, group.copies, group.copy_rows, group.update_blocks]
    return own


def decoding(num_requests: int = 4, **options: Any) -> tuple[BlockManager, Callable[[], StepPlan]]:
    """Requests of different lengths, and a function that runs a step over all of them."""
    manager = BlockManager(600, 2, **options)
    for request in range(num_requests):
        manager.admit(request, [100 * request + i for i in range(2 + request)])
        manager.commit(request, 2 + request)
    rows = manager.rows(range(num_requests))

    def step() -> StepPlan:
        plan = manager.append_batch(rows, [7] * num_requests)
        manager.commit_batch(rows, plan.seq_lens)
        return plan

    return manager, step


@pytest.mark.parametrize("held", [2, 10, 20])
@pytest.mark.parametrize("groups", [None, (FULL, WINDOW)])
def test_plans_that_are_held_stay_as_they_were(held: int, groups: Any) -> None:
    """So many at once, over three times as many steps in which some of them are dropped by chance."""
    _, step = decoding(groups=groups)
    rng, kept = random.Random(held), list[tuple[StepPlan, list[np.ndarray[Any, Any]]]]()
    for _ in range(3 * held):
        plan = step()
        kept.append((plan, [array.copy() for array in arrays(plan)]))
        if len(kept) > held:
            kept.pop(rng.randrange(len(kept)))
        for earlier, copies in kept:
            assert all(np.array_equal(a, b) for a, b in zip(arrays(earlier), copies, strict=True))


@given(config=CONFIGS, groups=GROUPS, seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_plans_stay_as_they_were_whatever_happens(config: Config, groups: Any, seed: int) -> None:
    manager, rng, kept = made(config, groups), random.Random(seed), list[tuple[StepPlan, list[np.ndarray[Any, Any]]]]()
    for _ in range(50):
        run(manager, operation(rng, manager, MORE))
        if manager.plan is not None and rng.random() < 0.7:
            kept.append((manager.plan, [array.copy() for array in arrays(manager.plan)]))
        manager.plan = None
        if len(kept) > 10 or (kept and rng.random() < 0.1):
            kept.pop(rng.randrange(len(kept)))
        for earlier, copies in kept:
            assert all(np.array_equal(a, b) for a, b in zip(arrays(earlier), copies, strict=True))


@pytest.mark.parametrize(
    "view_of",
    [
        lambda plan: plan.block_tables,
        lambda plan: plan.block_tables[1:],
        lambda plan: plan.block_tables.T[::2],
        lambda plan: plan.block_tables.reshape(-1),
        lambda plan: memoryview(plan.block_tables),
        lambda plan: plan.slot_mapping,
    ],
)
def test_a_view_outlives_its_plan(view_of: Callable[[StepPlan], Any]) -> None:
    """Nothing but the view is kept; many steps later it shows what it showed."""
    _, step = decoding()
    for _ in range(3):
        step()
    view = view_of(step())
    copy = np.array(view)
    for _ in range(40):
        step()
    assert np.array_equal(np.array(view), copy)


def test_what_is_dropped_is_used_again() -> None:
    """Steps whose plans are dropped live from a few buffers; steps whose plans are all held need more."""
    manager, step = decoding()
    step()
    addresses, sizes = set(), set()
    for _ in range(50):
        addresses.add(step().block_tables.__array_interface__["data"][0])
        sizes.add(manager._state.buffers.num_bytes)
    assert len(addresses) <= 2
    assert len(sizes) == 1
    held = [step() for _ in range(5)]
    assert len({plan.block_tables.__array_interface__["data"][0] for plan in held}) == 5
    most = manager._state.buffers.num_bytes
    assert most > max(sizes)
    held.clear()
    gc.collect()
    for _ in range(20):
        step()
    assert manager._state.buffers.num_bytes <= most


def test_many_held_plans_are_not_kept_by_the_manager() -> None:
    """Of a hundred that are held, the manager refers to a few; when they go, their memory goes."""
    manager, step = decoding()
    held = [step() for _ in range(100)]
    assert len({plan.block_tables.__array_interface__["data"][0] for plan in held}) == 100
    assert manager._state.buffers.num_bytes < sum(plan.block_tables.nbytes for plan in held)
    alive = [weakref.ref(plan.block_tables.base) for plan in held if plan.block_tables.base is not None]
    held.clear()
    gc.collect()
    assert len(alive) == 100
    assert sum(array() is not None for array in alive) <= 10


def decode(manager: Featured, rng: random.Random) -> None:
    """The common step: what was appended before is written, and there is one token more for each of many requests."""
    names = list(manager.snapshot().tables)
    if not names:
        return
    names = rng.sample(names, rng.randint(1, len(names)))
    lengths = manager.snapshot().lengths
    if rng.random() < 0.8:
        manager.commit_batch(names, [min(lengths[name].length, lengths[name].reserved) for name in names])
    manager.batch([Append(name, (0,)) for name in names])


@given(config=CONFIGS, groups=GROUPS, seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_a_plan_shows_the_tables_as_they_are(config: Config, groups: Any, seed: int) -> None:
    """Each row of `block_tables` is the table of its request, from whatever buffer; of random programs, in which the
    same batch comes again and again between other operations."""
    manager, rng = made(config, groups), random.Random(seed)
    for _ in range(60):
        run(manager, operation(rng, manager, MORE))
        if rng.random() < 0.5:
            decode(manager, rng)
        names = list(manager.snapshot().tables)
        if names and rng.random() < 0.6:
            lengths = [manager.snapshot().lengths[name].reserved for name in names]
            manager.plan = manager.reserve_batch(names, [max(1, length) for length in lengths])
        if manager.plan is None:
            continue
        by_row = {int(manager.rows([name])[0]): name for name in manager.snapshot().tables}
        for i, row in enumerate(manager.plan.rows.tolist()):
            for shown, table in zip(manager.plan.groups, tables(manager, by_row[row]), strict=True):
                assert shown.block_tables[i, : len(table)].tolist() == list(table)
        manager.plan = None


@given(config=CONFIGS, groups=GROUPS, seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_a_mirror_on_a_device_is_kept_by_updates_alone(config: Config, groups: Any, seed: int) -> None:
    """Whatever operations lie between two plans: the mirror is the tables, at every plan, for all requests."""
    manager, rng = made(config, groups), random.Random(seed)
    mirror = np.full((len(manager.groups), 64, 64), -7, np.int32)
    for _ in range(60):
        manager.plan = None
        run(manager, operation(rng, manager, MORE))
        if manager.plan is None and rng.random() < 0.5:
            decode(manager, rng)
        elif manager.plan is None and rng.random() < 0.3:
            manager.plan = manager.reserve_batch([], [])
        if manager.plan is None:
            continue
        for copy, group in zip(mirror, manager.plan.groups, strict=True):
            copy[manager.plan.update_rows, manager.plan.update_columns] = group.update_blocks
        for name in manager.snapshot().tables:
            row = int(manager.rows([name])[0])
            for copy, table in zip(mirror, tables(manager, name), strict=True):
                assert copy[row, : len(table)].tolist() == list(table), (name, HOLE)


def test_a_step_that_changes_no_table_says_so() -> None:
    """And one in which a row gets a block names that entry only."""
    manager, step = decoding(2, prefix_cache=False)  # of lengths 2 and 3, in blocks of 2
    step()
    plan = step()  # from 3 and 4 to 4 and 5: the second gets a block
    assert (plan.update_rows.tolist(), plan.update_columns.tolist()) == ([manager.rows([1])[0]], [2])
    assert plan.update_blocks.tolist() == [tables(manager, 1)[0][2]]
    assert manager.reserve_batch([], []).update_rows.tolist() == []
