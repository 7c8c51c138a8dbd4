"""The common step: one token for each of many distinct rows, of which each has room or needs exactly one more block.

It is what an engine waits for between any two forwards, so it touches nothing twice. Whatever is not that simple
(a copy-on-write, an index entry to drop, a refusal) is left to `batch`, which can do everything.
"""

import numpy as np

from pagedkv.optimized.arguments import MAX_INT32, Int32, Int64, ones
from pagedkv.optimized.plan import StepPlan, Updates
from pagedkv.optimized.planning import NOTHING_GROWN, plan_of
from pagedkv.optimized.rows import BLOCKS, LENGTH, RESERVED, ROOM
from pagedkv.optimized.state import ManagerState


def append_one_each(state: ManagerState, rows: Int64, tokens: Int32) -> StepPlan | None:
    """Append tokens[i] to rows[i], or do nothing and return None if that is not simple."""
    table, bs = state.rows, state.config.block_size
    if not len(rows) or not table.distinct(rows):
        return None
    numbers = table.numbers.take(rows, axis=1)
    lengths, reserved, room = numbers[LENGTH], numbers[RESERVED], numbers[ROOM]
    longest, width = int(np.maximum.reduce(lengths)), int(np.maximum.reduce(numbers[BLOCKS]))
    if np.minimum.reduce(room) < 0 or longest >= MAX_INT32:
        return None
    full = (room == 0).nonzero()[0]
    need, most = len(full) * len(state.groups), (width + 1) * len(state.groups)
    if need > state.pool.available or most > state.config.num_blocks:
        return None
    updates = None
    if need:
        updates = add_block(state, rows[full], numbers[BLOCKS][full], full)
        width = max(width, longest // bs + 1)
    table.fit_tokens(longest + 1)
    table.tokens.reshape(-1)[rows * table.tokens.shape[1] + lengths] = tokens
    state.journal.note(table.length, rows, lengths)
    state.journal.note(table.reserved, rows, reserved)
    state.journal.note(table.room, rows, room)
    grown, room = lengths + _ONE, room - _ONE
    room[full] = bs - 1
    table.length[rows], table.reserved[rows], table.room[rows] = grown, np.maximum(reserved, grown), room
    logical, offsets = np.divmod(lengths, np.int32(bs))
    places = rows * table.tables.shape[2] + logical
    slots = [tables.reshape(-1).take(places) * np.int64(bs) + offsets for tables in table.tables]
    return plan_of(state, rows, ones(len(rows)), slots, NOTHING_GROWN, grown, width, updates)


_ONE = np.int32(1)


def add_block(state: ManagerState, rows: Int64, blocks: Int32, places: Int64) -> Updates:
    """Give a block of each group to each of these rows, which have so many; `places`: where they stand in the batch."""
    table, size = state.rows, len(state.groups)
    table.fit_blocks(int(np.maximum.reduce(blocks)) + 1)
    taken = state.pool.take(len(rows) * size).reshape(size, -1).astype(np.int32)
    entries = rows * table.tables.shape[2] + blocks
    for tables, fresh in zip(table.tables, taken, strict=True):
        tables.reshape(-1)[entries] = fresh
    state.journal.note(table.blocks, rows, blocks)
    table.blocks[rows] = blocks + _ONE
    return Updates(rows, blocks, taken, places)
