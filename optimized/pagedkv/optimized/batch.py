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
from pagedkv.optimized.arguments import MAX_INT32, Int32, Int64, last_of_each
from pagedkv.optimized.plan import StepPlan, ragged
from pagedkv.optimized.rows import Rows
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import Copy, Misuse, Ok, Outcome, Reason, Refused


class Needs(NamedTuple):
    """Per row of a batch, (num_rows,) each."""

    starts: Int64
    """The first position to be written: min(reserved, length)."""
    fresh: Int64
    """Blocks past the end of the table."""
    shared: NDArray[np.bool_]
    """The block that `start` falls into has another owner."""
    entry: NDArray[np.bool_]
    """It has none, but an index entry."""
    unservable: NDArray[np.bool_]


class Refusals(NamedTuple):
    """Which rows of a batch do not fit."""

    rows: Int32
    """(num_refused,): indices in the batch."""
    reasons: tuple[Reason, ...]


class Grown(NamedTuple):
    """What became of the rows of a batch."""

    refused: Int32
    reasons: tuple[Reason, ...]
    copies: list[tuple[int, Copy]]
    """Copy-on-writes, each with the index of its row in the batch."""


def append_rows(state: ManagerState, rows: Int32, tokens: Int32, counts: Int64) -> StepPlan:
    """counts[i] of the tokens are appended to rows[i], in order."""
    table = state.rows
    lengths = table.length[rows].astype(np.int64)
    ends = lengths + counts
    needs = measure(state, rows, ends)
    if not independent(state, rows, needs):
        spans = np.split(tokens, np.cumsum(counts)[:-1])
        outcomes = [growth.append(state, row, span) for row, span in zip(rows.tolist(), spans, strict=True)]
        return plan_in_turn(state, rows, counts, outcomes)
    refusals = choose(state, needs)
    done = np.ones(len(rows), np.bool_)
    done[refusals.rows] = False
    table.fit_tokens(int(ends[done].max(initial=0)))
    grown = grow_rows(state, rows, ends, needs, refusals)
    run, positions = ragged(lengths, counts)
    written = done[run]
    table.tokens[rows[run[written]], positions[written]] = tokens[written]
    table.length[rows[done]] = ends[done]
    return plan_of(state, rows, counts, np.where(written, slots(state, rows[run], positions), -1), grown)


def reserve_rows(state: ManagerState, rows: Int32, ends: Int64) -> StepPlan:
    """Slots for the positions of rows[i] up to ends[i]."""
    needs = measure(state, rows, ends)
    if not independent(state, rows, needs):
        outcomes = [growth.reserve(state, row, end) for row, end in zip(rows.tolist(), ends.tolist(), strict=True)]
        counts = np.array([len(o.slots) if isinstance(o, Ok) else 0 for o in outcomes], np.int64)
        return plan_in_turn(state, rows, counts, outcomes)
    grown = grow_rows(state, rows, ends, needs, choose(state, needs))
    counts = np.maximum(ends - needs.starts, 0)
    counts[grown.refused] = 0  # what a refused row asked for may be more than memory holds
    run, positions = ragged(needs.starts, counts)
    return plan_of(state, rows, counts, slots(state, rows[run], positions), grown)


def measure(state: ManagerState, rows: Int32, ends: Int64) -> Needs:
    """What each row would need if it were alone."""
    table, bs = state.rows, state.config.block_size
    starts = np.minimum(table.reserved[rows], table.length[rows]).astype(np.int64)
    count, total = table.blocks[rows], -(-ends // bs)
    first = starts // bs
    rewriting = (first < count) & (ends > starts)
    block = table.tables[rows, np.minimum(first, table.tables.shape[1] - 1)]  # anything where nothing is rewritten
    shared = rewriting & (state.pool.references[block] > 1)
    return Needs(
        starts,
        np.maximum(total - count, 0),
        shared,
        rewriting & ~shared & state.index.indexed[block],
        (total - table.holes[rows] > state.config.num_blocks) | (ends > MAX_INT32),
    )


def independent(state: ManagerState, rows: Int32, needs: Needs) -> bool:
    """No row changes what another needs: all are distinct, and blocks suffice for all or none is shared."""
    if not last_of_each(rows, state.rows.scratch).all():
        return False
    return not needs.shared.any() or (
        not needs.unservable.any() and int(needs.fresh.sum() + needs.shared.sum()) <= state.pool.available
    )


def grow_rows(state: ManagerState, rows: Int32, ends: Int64, needs: Needs, refusals: Refusals) -> Grown:
    """Grow independent rows that are not refused, those that copy or drop an entry one by one, the others together."""
    table, copies = state.rows, []
    one_by_one = needs.shared | needs.entry
    together = ~one_by_one
    one_by_one[refusals.rows] = together[refusals.rows] = False
    for i in np.flatnonzero(one_by_one).tolist():
        grown = growth.grow(state, int(rows[i]), int(ends[i]))
        assert not isinstance(grown, Refused)  # `choose` has seen to it
        copies += [(i, copy) for copy in grown]
    growing = np.flatnonzero(together & (needs.fresh > 0))
    if len(growing):
        taking, counts = rows[growing], needs.fresh[growing]
        table.fit_blocks(int((table.blocks[taking] + counts).max()))
        run, places = ragged(table.blocks[taking].astype(np.int64), counts)
        table.tables[taking[run], places] = state.pool.take(len(run))
        table.blocks[taking] += counts.astype(np.int32)
    changed = rows[together]
    table.reserved[changed] = np.maximum(table.reserved[changed], ends[together])
    return Grown(*refusals, copies)


def choose(state: ManagerState, needs: Needs) -> Refusals:
    """The rows that are refused: in row order, each that does not fit into what the rows before it have left."""
    need, left = needs.fresh + needs.shared, state.pool.available
    if int(need.sum()) <= left and not needs.unservable.any():
        return Refusals(np.empty(0, np.int32), ())
    refused: list[int] = []
    reasons: list[Reason] = []
    for i in np.flatnonzero((need > 0) | needs.unservable).tolist():
        wanted = int(need[i])
        if not needs.unservable[i] and wanted <= left:
            left -= wanted
            continue
        refused.append(i)
        waiting_helps = wanted <= left + len(state.pool.held)
        capacity = Reason.IN_FLIGHT if waiting_helps else Reason.CAPACITY
        reasons.append(Reason.UNSERVABLE if needs.unservable[i] else capacity)
    return Refusals(np.array(refused, np.int32), tuple(reasons))


def slots(state: ManagerState, rows: Int32, positions: Int64) -> Int64:
    """Where these positions of these rows lie, (count,); anything for positions that lie past a table's end."""
    tables, bs = state.rows.tables, state.config.block_size
    blocks = tables[rows, np.minimum(positions // bs, tables.shape[1] - 1)].astype(np.int64)
    where: Int64 = blocks * bs + positions % bs
    return where


def plan_of(state: ManagerState, rows: Int32, counts: Int64, slot_mapping: Int64, grown: Grown) -> StepPlan:
    """Copy what the step needs out of the arrays."""
    table = state.rows
    width = int(table.blocks[rows].max(initial=0))
    return StepPlan(
        rows=rows.copy(),
        block_tables=table.tables[rows, :width],
        seq_lens=table.length[rows],
        slot_mapping=slot_mapping,
        slot_counts=counts,
        copies=np.array([copy for _, copy in grown.copies], np.int32).reshape(-1, 2),
        copy_rows=np.array([i for i, _ in grown.copies], np.int32),
        refused=grown.refused,
        reasons=grown.reasons,
    )


def plan_in_turn(state: ManagerState, rows: Int32, counts: Int64, outcomes: list[Outcome]) -> StepPlan:
    """The plan of rows that were grown by the scalar operations. A refused row keeps its `counts` of slots."""
    slot_mapping: list[int] = []
    refused: list[int] = []
    reasons: list[Reason] = []
    copies: list[tuple[int, Copy]] = []
    for i, (outcome, count) in enumerate(zip(outcomes, counts.tolist(), strict=True)):
        if isinstance(outcome, Refused):
            refused.append(i)
            reasons.append(outcome.reason)
            slot_mapping += [-1] * count
        else:
            slot_mapping += outcome.slots
            copies += [(i, copy) for copy in outcome.copies]
    grown = Grown(np.array(refused, np.int32), tuple(reasons), copies)
    return plan_of(state, rows, counts, np.array(slot_mapping, np.int64), grown)


def commit_rows(state: ManagerState, rows: Int32, computed: Int64) -> None:
    """The KV of the positions of rows[i] below computed[i] is written."""
    table, bs = state.rows, state.config.block_size
    special = table.computed[rows] // bs != computed // bs  # a block is now full, and may be found …
    if state.config.sliding_window is not None:
        special |= state.dead_blocks(computed) > table.holes[rows]  # … or dead
    plain = rows[~special]
    table.computed[plain] = computed[~special]
    for i in np.flatnonzero(special).tolist():
        growth.commit(state, int(rows[i]), int(computed[i]))


def check_commits(table: Rows, rows: Int32, computed: Int64) -> None:
    """Misuse if any row, judged in row order, goes back or passes what is reserved."""
    last = np.minimum(table.reserved[rows], table.length[rows])
    at_least: dict[int, int] = {}
    if last_of_each(rows, table.scratch).all():
        wrong = np.flatnonzero((computed < table.computed[rows]) | (computed > last)).tolist()
    else:
        wrong = []
        for i, (row, value) in enumerate(zip(rows.tolist(), computed.tolist(), strict=True)):
            if not at_least.get(row, int(table.computed[row])) <= value <= last[i]:
                wrong.append(i)
                break
            at_least[row] = value
    if wrong:
        i = wrong[0]
        least = at_least.get(int(rows[i]), int(table.computed[rows[i]]))
        allowed = f"an integer between the computed {least} and the reserved {last[i]}"
        raise Misuse("computed", int(computed[i]), allowed)
