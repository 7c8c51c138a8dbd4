"""Making the plan of a batch: where the new positions lie, and what of the tables has changed."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from pagedkv.optimized.arguments import Int32, Int64
from pagedkv.optimized.plan import GroupPlan, StepPlan, Updates, ragged
from pagedkv.optimized.rows import RESIDENT
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import Copy, Outcome, Reason, Refused

NOBODY: Final = np.empty(0, np.int32)
"""No rows."""
_NO_PAIRS: Final = np.empty((0, 2), np.int32)


class Grown(NamedTuple):
    """What became of the rows of a batch."""

    refused: Int32
    """(num_refused,): indices in the batch."""
    reasons: tuple[Reason, ...]
    copies: list[tuple[int, Copy]]
    """Copy-on-writes, each with the index of its row in the batch."""


NOTHING_GROWN: Final = Grown(NOBODY, (), [])
"""Nobody was refused, and nothing copied."""


def slots(state: ManagerState, rows: Int64, positions: Int64) -> Int64:
    """Where these positions of these rows lie in each group, (num_groups, count); anything for positions past a
    table's end."""
    bs, capacity = np.int64(state.config.block_size), state.rows.tables.shape[2]
    logical, offsets = np.divmod(positions, bs)
    places = rows * capacity + np.minimum(logical, capacity - 1)
    where: Int64 = state.rows.tables.reshape(len(state.groups), -1).take(places, axis=1) * bs + offsets
    return where


def plan_of(
    state: ManagerState,
    rows: Int64,
    counts: Int64,
    slot_mapping: Sequence[Int64] | Int64,
    grown: Grown,
    lengths: Int32,
    width: int,
    updates: Updates | None = None,
) -> StepPlan:
    """The plan for these rows. `slot_mapping` of each group, `lengths` as in the plan; `width`: columns to show of the
    tables; `updates`: what happened to the tables in this batch, unless that is marked in the rows."""
    table = state.rows
    updates = drain(state, updates)
    state.buffers.add(updates, rows)
    group_plans = []
    for group, tables in enumerate(table.tables):
        pairs, copy_rows = _NO_PAIRS, NOBODY
        if grown.copies:
            copies = grown.copies if len(state.groups) == 1 else copies_in(state, group, rows, grown.copies)
            pairs = np.array([copy for _, copy in copies], np.int32).reshape(-1, 2)
            copy_rows = np.array([i for i, _ in copies], np.int32)
        block_tables = state.buffers.tables(group, tables, rows, width)
        group_plans.append(GroupPlan(block_tables, slot_mapping[group], pairs, copy_rows, updates.blocks[group]))
    return StepPlan(
        rows=rows.astype(np.int32),
        seq_lens=lengths,
        slot_counts=counts,
        refused=grown.refused,
        reasons=grown.reasons,
        update_rows=updates.rows.astype(np.int32),
        update_columns=updates.columns.astype(np.int32),
        groups=tuple(group_plans),
    )


def shown(state: ManagerState, rows: Int64) -> tuple[Int32, int]:
    """The lengths of rows, and columns that show their tables."""
    table = state.rows
    return table.length.take(rows), int(np.maximum.reduce(table.blocks.take(rows), initial=0))


def copies_in(state: ManagerState, group: int, rows: Int64, copies: list[tuple[int, Copy]]) -> list[tuple[int, Copy]]:
    """Those of the copies whose destination stands in the tables of this group."""
    table = state.rows
    return [(i, c) for i, c in copies if c.destination in table.tables[group, rows[i], : table.blocks[rows[i]]]]


def drain(state: ManagerState, latest: Updates | None) -> Updates:
    """What has changed in the tables since the last plan, and `latest`; from now on nothing has."""
    table = state.rows
    if not table.dirty:
        return latest or Updates.none(len(state.groups))
    marks = [(row, column) for row, column in table.dirty.items() if table.state[row] == RESIDENT]
    if latest is not None:
        marks += zip(latest.rows.tolist(), latest.columns.tolist(), strict=True)
    first = dict(sorted(marks, reverse=True))  # of a row that is marked twice the lower column is assigned last
    table.dirty = {}
    rows, before = np.array(list(first), np.int64), np.array(list(first.values()), np.int64)
    run, columns = ragged(before, np.maximum(table.blocks.take(rows) - before, 0))  # a table may have been cut since
    changed = rows[run]
    return Updates(changed, columns, table.tables[:, changed, columns])


def plan_in_turn(state: ManagerState, rows: Int64, counts: Int64, outcomes: list[Outcome]) -> StepPlan:
    """The plan of rows that were grown by the scalar operations. A refused row keeps its `counts` of slots."""
    size = len(state.groups)
    slot_mapping = [np.empty((size, 0), np.int64)]
    grown = Grown(NOBODY, (), [])
    refused: list[int] = []
    reasons: list[Reason] = []
    for i, (outcome, count) in enumerate(zip(outcomes, counts.tolist(), strict=True)):
        if isinstance(outcome, Refused):
            refused.append(i)
            reasons.append(outcome.reason)
            slot_mapping.append(np.full((size, count), -1))
        else:
            slot_mapping.append(np.array(outcome.slots, np.int64).reshape(size, count))
            grown.copies.extend((i, copy) for copy in outcome.copies)
    grown = grown._replace(refused=np.array(refused, np.int32), reasons=tuple(reasons))
    return plan_of(state, rows, counts, np.concatenate(slot_mapping, axis=1), grown, *shown(state, rows))
