"""Making the plan of a batch: where the new positions lie, and what of the tables has changed."""

from typing import Final, NamedTuple

import numpy as np

from pagedkv.optimized.loops import calls
from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.loops.batches import COPY_ROW, GROUP, SOURCE
from pagedkv.optimized.loops.memory import NUM_DIRTY, PLACE
from pagedkv.optimized.plan import GroupPlan, StepPlan, Updates
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import Reason


class Grown(NamedTuple):
    """What became of the rows of a batch."""

    lengths: Int32
    """(num_rows,): positions with a token and a slot, afterwards."""
    refused: Int32
    """(num_refused,): indices in the batch."""
    reasons: tuple[Reason, ...]
    copies: Int32
    """(num_copies, 4): see `loops.batches`."""
    width: int
    """Entries of the longest table."""


def plan_of(state: ManagerState, rows: Int64, counts: Int64, slots: Int64, grown: Grown) -> StepPlan:
    """The plan for these rows: counts[i] of the slots of each group, (num_groups, num_slots), are for rows[i]."""
    table, updates, handles = state.rows, drain(state), rows.astype(np.int32)
    state.buffers.add(updates, handles)
    group_plans = []
    for group, tables in enumerate(table.tables):
        copies = grown.copies
        if len(copies) and len(state.groups) > 1:
            copies = copies[copies[:, GROUP] == group]
        pairs, copy_rows = _NO_PAIRS, _NO_ROWS
        if len(copies):
            pairs, copy_rows = copies[:, SOURCE:COPY_ROW].copy(), copies[:, COPY_ROW].copy()
        block_tables = state.buffers.tables(group, tables, handles, grown.width, table.numbers[PLACE])
        group_plans.append(GroupPlan(block_tables, slots[group], pairs, copy_rows, updates.blocks[group]))
    return StepPlan(
        rows=handles,
        seq_lens=grown.lengths,
        slot_counts=counts,
        refused=grown.refused,
        reasons=grown.reasons,
        update_rows=updates.rows,
        update_columns=updates.columns,
        groups=tuple(group_plans),
    )


_NO_PAIRS: Final = np.empty((0, 2), np.int32)
_NO_ROWS: Final = np.empty(0, np.int32)


def drain(state: ManagerState) -> Updates:
    """What has changed in the tables since the last plan; from now on nothing has."""
    journal, size = state.journal, len(state.groups)
    if not journal.counters[NUM_DIRTY]:
        return Updates(_NO_ROWS, _NO_ROWS, np.empty((size, 0), np.int32))
    count = calls.count_updates(journal.reading)
    updates = Updates(np.empty(count, np.int32), np.empty(count, np.int32), np.empty((size, count), np.int32))
    calls.updates(journal.fields(), *updates)
    return updates
