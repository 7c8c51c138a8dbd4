"""Growth of many rows at once: a step over hundreds of requests as a handful of array operations.

A batch equals its rows in order. Rows differ in what they need, so all needs are computed as arrays first. Where it
is certain that no row changes what another one needs, rows are accepted in order and grown together; only those that
copy, or drop an index entry, are done one by one. The rest (a request twice in one batch, or requests that share a
block when blocks are short) is left to the scalar operations, in row order.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized import growth
from pagedkv.optimized.arguments import MAX_INT32, Int32, Int64
from pagedkv.optimized.paths import NOTHING
from pagedkv.optimized.plan import StepPlan, ragged
from pagedkv.optimized.planning import NOBODY, Grown, plan_in_turn, plan_of, shown, slots
from pagedkv.optimized.rows import BLOCKS, HOLES, LENGTH, RESERVED, UNKNOWN
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import Ok, Reason, Refused


class Needs(NamedTuple):
    """Per row of a batch, (num_rows,) each."""

    lengths: Int64
    starts: Int64
    """The first position to be written: min(reserved, length)."""
    fresh: Int64
    """Blocks past the end of each table."""
    shared: Int64
    """Groups where the block that `start` falls into has another owner."""
    alone: NDArray[np.bool_]
    """The row copies a block or drops an index entry, and so is grown by itself."""
    unservable: NDArray[np.bool_]


def append_rows(state: ManagerState, rows: Int64, tokens: Int32, counts: Int64) -> StepPlan:
    """counts[i] of the tokens are appended to rows[i], in order."""
    table, bs = state.rows, state.config.block_size
    ends = table.length.take(rows) + counts
    needs = measure(state, rows, ends)
    if not independent(state, rows, needs):
        spans = np.split(tokens, np.cumsum(counts)[:-1])
        outcomes = [growth.append(state, row, span) for row, span in zip(rows.tolist(), spans, strict=True)]
        return plan_in_turn(state, rows, counts, outcomes)
    grown = choose(state, needs)
    fit = np.ones(len(rows), np.bool_)
    fit[grown.refused] = False
    table.fit_tokens(int(np.maximum.reduce(ends[fit], initial=0)))
    grow_rows(state, rows, ends, needs, grown)
    run, positions = ragged(needs.lengths, counts)
    written = fit[run]
    table.tokens[rows[run[written]], positions[written]] = tokens[written]
    done, new_lengths = rows[fit], ends[fit]
    state.journal.put(table.length, done, new_lengths)
    state.journal.put(table.room, done, table.blocks.take(done) * bs - new_lengths)
    where = np.where(written, slots(state, rows[run], positions), -1)
    return plan_of(state, rows, counts, where, grown, *shown(state, rows))


def reserve_rows(state: ManagerState, rows: Int64, ends: Int64) -> StepPlan:
    """Slots for the positions of rows[i] up to ends[i]."""
    needs = measure(state, rows, ends)
    if not independent(state, rows, needs):
        outcomes = [growth.reserve(state, row, end) for row, end in zip(rows.tolist(), ends.tolist(), strict=True)]
        size = len(state.groups)
        counts = np.array([len(o.slots) // size if isinstance(o, Ok) else 0 for o in outcomes], np.int64)
        return plan_in_turn(state, rows, counts, outcomes)
    grown = choose(state, needs)
    grow_rows(state, rows, ends, needs, grown)
    counts = np.maximum(ends - needs.starts, 0)
    counts[grown.refused] = 0  # what a refused row asked for may be more than memory holds
    run, positions = ragged(needs.starts, counts)
    return plan_of(state, rows, counts, slots(state, rows[run], positions), grown, *shown(state, rows))


def measure(state: ManagerState, rows: Int64, ends: Int64) -> Needs:
    """What each row would need if it were alone."""
    table, bs, numbers = state.rows, state.config.block_size, state.rows.numbers.take(rows, axis=1).astype(np.int64)
    lengths, blocks = numbers[LENGTH], numbers[BLOCKS]
    starts = np.minimum(numbers[RESERVED], lengths)
    first, total = starts // bs, (ends + (bs - 1)) // bs
    rewriting = (first < blocks) & (ends > starts)
    width = table.tables.shape[2]
    place = rows * width + np.minimum(first, width - 1)
    shared, alone = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    for tables in table.tables:
        block = tables.reshape(-1).take(place)  # anything where nothing is rewritten
        others = rewriting & (state.pool.references.take(block) > 1)
        alone |= others | (rewriting & (state.index.entry.take(block) != NOTHING))
        shared += others
    holes = numbers[HOLES:].sum(axis=0) if state.windows.sliding else 0
    unservable = (total * len(state.groups) - holes > state.config.num_blocks) | (ends > MAX_INT32)
    return Needs(lengths, starts, np.maximum(total - blocks, 0), shared, alone, unservable)


def independent(state: ManagerState, rows: Int64, needs: Needs) -> bool:
    """No row changes what another needs: all are distinct, and blocks suffice for all or none is shared."""
    if not state.rows.distinct(rows):
        return False
    return not needs.shared.any() or (
        not needs.unservable.any() and total_need(state, needs).sum() <= state.pool.available
    )


def total_need(state: ManagerState, needs: Needs) -> Int64:
    """Blocks that each row takes."""
    return needs.fresh * len(state.groups) + needs.shared


def grow_rows(state: ManagerState, rows: Int64, ends: Int64, needs: Needs, grown: Grown) -> None:
    """Grow independent rows that are not refused, those that copy or drop an entry one by one, the others together."""
    table = state.rows
    alone, together = needs.alone.copy(), ~needs.alone
    alone[grown.refused] = together[grown.refused] = False
    for i in np.flatnonzero(alone).tolist():
        copies = growth.grow(state, int(rows[i]), int(ends[i]))
        assert not isinstance(copies, Refused)  # `choose` has seen to it
        grown.copies.extend((i, copy) for copy in copies)
    rows, ends, fresh, lengths = rows[together], ends[together], needs.fresh[together], needs.lengths[together]
    growing = fresh.nonzero()[0]
    if len(growing):
        add_blocks(state, rows[growing], fresh[growing])
    reserved = np.maximum(table.reserved.take(rows), ends)
    state.journal.put(table.reserved, rows, reserved)
    room = np.where(reserved >= lengths, table.blocks.take(rows) * state.config.block_size - lengths, UNKNOWN)
    grew = ends > needs.starts[together]
    state.journal.put(table.room, rows[grew], room[grew])


def add_blocks(state: ManagerState, rows: Int64, counts: Int64) -> None:
    """Hand out counts[i] > 0 blocks of each group to rows[i]."""
    table = state.rows
    before = table.blocks.take(rows).astype(np.int64)
    after = before + counts
    table.fit_blocks(int(np.maximum.reduce(after)))
    run, columns = ragged(before, counts)
    taken = state.pool.take(len(run) * len(state.groups)).reshape(len(state.groups), -1)
    table.tables[:, rows[run], columns] = taken
    state.journal.note(table.blocks, rows, before)
    table.blocks[rows] = after
    for row, column in zip(rows.tolist(), before.tolist(), strict=True):
        table.touch(row, column)


def choose(state: ManagerState, needs: Needs) -> Grown:
    """The rows that are refused: in row order, each that does not fit into what the rows before it have left."""
    need, left = total_need(state, needs), state.pool.available
    if int(np.add.reduce(need)) <= left and not np.count_nonzero(needs.unservable):
        return Grown(NOBODY, (), [])
    refused: list[int] = []
    reasons: list[Reason] = []
    for i in np.flatnonzero((need > 0) | needs.unservable).tolist():
        wanted = int(need[i])
        if not needs.unservable[i] and wanted <= left:
            left -= wanted
            continue
        refused.append(i)
        waiting_helps = wanted <= left + state.pool.held
        capacity = Reason.IN_FLIGHT if waiting_helps else Reason.CAPACITY
        reasons.append(Reason.UNSERVABLE if needs.unservable[i] else capacity)
    return Grown(np.array(refused, np.int32), tuple(reasons), [])
