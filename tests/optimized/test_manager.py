"""The laws of the block manager, whatever it is asked to do."""

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.conformance.differential.driver import Differential
from pagedkv.optimized.invariants import INVARIANTS, InvariantBroken
from pagedkv.optimized.loops.memory import NEXT, NOTHING, NUM_SWAP_FREE, RELEASE, RESIDENT
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.state import ManagerState
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec import Admit, Append, Batch, Config, Copy, Misuse, Ok, Outcome, Reason, Refused

from tests.optimized.manager_programs import CONFIGS, operation, run, view

PROGRAMS = {"config": CONFIGS, "rng": st.randoms(use_true_random=True), "count": st.integers(20, 100)}


@settings(max_examples=150, deadline=None)
@given(**PROGRAMS)
def test_refusal_and_misuse_change_nothing_and_the_books_always_agree(
    config: Config, rng: random.Random, count: int
) -> None:
    subject = OptimizedSubject(config)
    for _ in range(count):
        before = subject.observe(), subject.stats()
        op = operation(rng, view(subject))
        outcomes = run(subject, op)
        subject.check()
        if isinstance(outcomes, Misuse) or all(isinstance(outcome, Refused) for outcome in outcomes):
            assert (subject.observe(), subject.stats()) == before
        touched = [row.request for row in op.rows] if isinstance(op, Batch) else []
        seen, whole = subject.observe(touched), subject.observe()
        assert seen.tables.items() <= whole.tables.items()
        assert seen.lengths == {r: whole.lengths[r] for r in touched if r in whole.lengths}


@settings(max_examples=100, deadline=None)
@given(**PROGRAMS)
def test_it_is_what_the_specification_says(config: Config, rng: random.Random, count: int) -> None:
    """Every answer, and after it everything that can be seen, against the specification."""
    both = Differential(OptimizedSubject, config)
    for _ in range(count):
        op = operation(rng, both.state)
        if isinstance(op, Batch) and any(row.request not in both.subject.observe().tables for row in op.rows):
            continue  # misuse; the laws of batches are held against the scalar operations
        both.step(op)
    both.finish()


@settings(max_examples=100, deadline=None)
@given(**PROGRAMS)
def test_drained_every_block_is_available(config: Config, rng: random.Random, count: int) -> None:
    """After requests, pins and steps are gone, a request as large as the pool is admitted."""
    subject = OptimizedSubject(config)
    for _ in range(count):
        run(subject, operation(rng, view(subject)))
    state = view(subject)
    for step in state.steps:
        subject.end_step(step)
    for (namespace, data), stack in list(subject._state.pins.items()):
        for _ in list(stack):
            subject.unpin(np.frombuffer(data, np.int32), namespace)
    subject.free_batch(list(state.requests))
    assert subject.available_blocks == config.num_blocks
    assert subject._state.journal.counters[NUM_SWAP_FREE] == config.swap_blocks
    assert isinstance(subject.admit("all", [7] * (config.num_blocks * config.block_size), "new"), Ok)
    subject.free("all")
    subject.reset_prefix_index()
    assert not subject._state.paths.nodes()  # no path outlives what needs it
    subject.check()


@settings(max_examples=60, deadline=None)
@given(**PROGRAMS)
def test_a_copy_goes_its_own_way(config: Config, rng: random.Random, count: int) -> None:
    """It looks the same, answers the same, and nothing done to it is seen in the original."""
    subject = OptimizedSubject(config)
    for _ in range(count):
        op = operation(rng, view(subject))
        before, twin = (subject.observe(), subject.stats()), subject.copy()
        theirs = run(twin, op)
        assert (subject.observe(), subject.stats()) == before
        subject.check()
        twin.check()
        ours = run(subject, op)
        assert isinstance(ours, Misuse) or ours == theirs
        assert (subject.observe(), subject.stats()) == (twin.observe(), twin.stats())


BREAKAGES: dict[str, Callable[[ManagerState], None]] = {
    "every_block_is_free_used_idle_or_leased": lambda s: s.journal.memory.blocks.__setitem__(
        (s.pool.free_blocks()[0], NEXT), s.pool.free_blocks()[0]
    ),
    "idle_blocks_are_the_indexed_unused_ones": lambda s: s.index.entry.__setitem__(s.pool.free_blocks()[0], 0),
    "held_blocks_are_unused_and_wait_in_order": lambda s: s.journal.memory.holds.__setitem__(
        (s.pool.held_blocks(), RELEASE), 1
    ),
    "references_are_counted": lambda s: s.pool.references.__setitem__(int(s.rows.tables[0, 0, 0]), 7),
    "leased_blocks_are_nobody_elses": lambda s: vars(s.pool).update(leased=s.rows.tables[0, 0, :1].astype(np.int64)),
    "tables_fit_their_lengths": lambda s: s.rows.computed.__setitem__(0, 40),
    "only_the_next_block_is_shared": lambda s: s.rows.reserved.__setitem__(0, 1),
    "entries_are_full_blocks_of_their_path": lambda s: s.paths.blocks.__setitem__(s.index.entries()[0][1], 5),
    "paths_have_the_users_that_they_count": lambda s: s.paths.hold(s.paths.root("")),
    "paths_are_found": lambda s: s.paths.first_child.__setitem__(s.paths.root(""), NOTHING),
    "cursors_are_the_computed_paths": lambda s: s.rows.tokens.__setitem__((0, 0), 99),
    "swap_blocks_are_free_or_saved_into": lambda s: s.swap_free.__setitem__(1, 1),
    "requests_have_rows": lambda s: s.rows.row_of.__setitem__("nobody", 7),
    "room_is_there": lambda s: s.rows.room.__setitem__(0, 9),
}


@pytest.mark.parametrize("law", BREAKAGES)
def test_check_sees_what_is_broken(law: str) -> None:
    """Every invariant is broken once, by hand; check names the first law that does not hold."""
    assert BREAKAGES.keys() == {invariant.__name__ for invariant in INVARIANTS}
    manager = BlockManager(8, 4, swap_blocks=2, overlapped_steps=True)
    manager.admit("a", range(9))
    manager.commit("a", 9)
    manager.admit("b", [5] * 9)
    manager.commit("b", 9)
    manager.begin_step("s")
    manager.free("b")
    manager.check()
    BREAKAGES[law](manager._state)
    with pytest.raises(InvariantBroken) as broken:
        manager.check()
    failing = [each.__name__ for each in INVARIANTS if not _holds(each, manager)]
    assert broken.value.law == failing[0]
    assert law in failing


def _holds(invariant: Callable[..., bool], manager: BlockManager) -> bool:
    try:
        return invariant(manager._state)
    except (AssertionError, IndexError):
        return False


def test_the_longest_idle_goes_first_and_a_hit_makes_recent() -> None:
    manager = BlockManager(8, 2)
    for name, token in (("a", 1), ("b", 2), ("c", 3)):
        manager.admit(name, [token] * 4)
        manager.commit(name, 4)
    for name in "abc":
        manager.free(name)
    manager.admit("again", [1] * 4 + [9], reserve=4)  # hits both blocks of a, now the most recent
    manager.free("again")
    assert manager.lookup([2] * 4) == Ok(cached_tokens=4)  # a look is no use: b still goes first
    left = []
    for _ in range(6):
        manager.evict(1)
        left.append([manager.lookup([token] * 4).cached_tokens for token in (1, 2, 3)])
    assert left == [[4, 2, 4], [4, 0, 4], [4, 0, 2], [4, 0, 0], [2, 0, 0], [0, 0, 0]]


@settings(max_examples=60, deadline=None)
@given(prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=1, max_size=8), data=st.data())
def test_children_are_evicted_before_parents(prompts: list[list[int]], data: st.DataObject) -> None:
    """Requests that are computed one after the other leave a tree; whatever the order of release, eviction takes
    leaves, so no entry is ever out of reach."""
    subject = OptimizedSubject(Config(60, 2))
    for name, prompt in enumerate(prompts):
        subject.admit(name, prompt)
        subject.commit(name, len(prompt))
    for name in data.draw(st.permutations(range(len(prompts)))):
        subject.free(name)
    while True:
        index = subject.observe().index
        assert index is not None
        paths = {identity.tokens for identity in index.values()}
        assert all(path[:-2] in paths or len(path) == 2 for path in paths)
        if not paths:
            break
        assert subject.evict(1) == Ok(evicted=1)


def swapped(outcome: Outcome) -> tuple[Copy, ...]:
    assert isinstance(outcome, Ok)
    return outcome.swapped


def test_swap_pairs_are_disjoint_and_come_back_in_order() -> None:
    manager = BlockManager(6, 4, swap_blocks=5)
    manager.admit("a", range(9))
    manager.admit("b", range(50, 56))
    tables = {name: list(manager.snapshot().tables[name]) for name in "ab"}
    out = {name: swapped(manager.preempt(name, "swap")) for name in "ab"}
    for name in "ab":
        assert [pair.source for pair in out[name]] == tables[name]
    homes = [pair.destination for name in "ab" for pair in out[name]]
    assert sorted(homes) == [0, 1, 2, 3, 4]
    for name in "ba":
        back = swapped(manager.resume(name))
        assert [pair.source for pair in back] == [pair.destination for pair in out[name]]
        assert tuple(pair.destination for pair in back) == manager.snapshot().tables[name]
    manager.check()


def test_a_held_block_is_handed_out_only_after_every_step_begun_before_its_release() -> None:
    manager = BlockManager(2, 4, prefix_cache=False, overlapped_steps=True)
    manager.admit("a", [1] * 8)
    manager.begin_step(1)
    manager.begin_step(2)
    manager.free("a")
    manager.begin_step(3)
    manager.end_step(2)
    assert manager.admit("b", [1]) == Refused(Reason.IN_FLIGHT)
    manager.end_step(1)  # step 3 began after the release
    assert manager.available_blocks == 2
    assert isinstance(manager.admit("b", [1]), Ok)
    manager.check()


def test_a_held_block_that_is_hit_is_held_no_longer() -> None:
    manager = BlockManager(6, 4, overlapped_steps=True)
    manager.admit("a", range(9))
    manager.commit("a", 9)
    manager.begin_step("s")
    manager.free("a")
    assert (manager.stats().held, manager.available_blocks) == (3, 3)
    assert manager.admit("b", range(9)) == Ok(cached_tokens=8)
    assert (manager.stats().held, manager.available_blocks) == (1, 2)
    manager.check()
    manager.end_step("s")
    assert (manager.stats().held, manager.available_blocks) == (0, 3)
    manager.check()


def test_rows_and_tables_grow_without_losing_anything() -> None:
    manager = BlockManager(4000, 2)
    prompts = {name: [name + 1] * (3 * name + 1) for name in range(60)}
    for name, prompt in prompts.items():
        manager.admit(name, prompt)
        manager.commit(name, len(prompt))
        manager.append(name, [0] * name + [0])
    manager.check()
    rows = manager._state.rows
    assert (rows.state[:60] == RESIDENT).all()
    for name, prompt in prompts.items():
        row = rows.row_of[name]
        assert rows.tokens[row, : rows.length[row]].tolist() == prompt + [0] * name + [0]


def test_stats_tell_empty_slots_apart_from_used_blocks() -> None:
    manager = BlockManager(10, 4)
    manager.admit("a", range(5))
    manager.commit("a", 5)
    manager.fork("a", "b")
    stats = manager.stats()
    assert (stats.free, stats.used, stats.idle) == (8, 2, 0)
    assert (stats.block_utilisation, stats.slot_utilisation) == (2 / 10, 5 / 40)
    manager.append("b", [1])
    manager.free("a")
    stats = manager.stats()
    assert (stats.copy_on_writes, stats.used, stats.idle) == (1, 2, 0)
    manager.preempt("b")
    assert manager.stats().preemptions == 1
    assert manager.resume("b") == Ok(cached_tokens=4)
    assert (manager.stats().hit_tokens, manager.stats().resumed_hit_tokens) == (0, 4)


@pytest.mark.parametrize("tokens", [[1, 2, 3], (1, 2, 3), range(1, 4), np.arange(1, 4), np.arange(1, 4, dtype="u1")])
def test_tokens_may_come_in_any_sequence_of_integers(tokens: list[int]) -> None:
    manager = BlockManager(4, 1)
    manager.admit("a", tokens)
    manager.commit("a", 3)
    assert manager.lookup([1, 2, 3]) == Ok(cached_tokens=3)


def test_reading_leaves_no_notes() -> None:
    """However often: what is noted is kept until the next operation begins."""
    manager = BlockManager(8, 4, overlapped_steps=True)
    manager.admit("a", range(9))
    manager.commit("a", 9)
    notes = len(manager._state.journal.notes)
    manager.lookup(range(8))
    manager.blocks_needed(Append("a", (1, 2)))
    manager.blocks_needed(Admit("b", tuple(range(9))))
    manager.snapshot()
    manager.stats()
    manager.footprint()
    manager.check()
    manager.rows(["a"])
    assert len(manager._state.journal.notes) == notes
