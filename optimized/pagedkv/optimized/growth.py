"""Growth of one row: reserve, append, commit. `batch` does the same for many rows at once.

Writing starts at `start = min(reserved, length)`. Only the block that `start` falls into can have another owner or an
index entry: table entries after it were taken as lookahead, and neither a fork, nor a pin, nor the index ever got
them. So growth copies at most one block of each group.
"""

from typing import NamedTuple

import numpy as np

from pagedkv.optimized.arguments import MAX_INT32, Int32, Int64
from pagedkv.optimized.paths import NOTHING
from pagedkv.optimized.rows import BLOCKS, COMPUTED, HOLES, LENGTH, PATH, RESERVED, ROOM, UNKNOWN
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import HOLE, Copy, Ok, Outcome, Reason, Refused, Slot, ceil_div


class Need(NamedTuple):
    """What it takes to make the positions from min(reserved, length) to some end writable."""

    fresh: int
    """Blocks past the end of each table."""
    shared: tuple[int, ...]
    """Groups whose block at the start has another owner: copy-on-write."""
    entered: tuple[int, ...]
    """Groups where it has none, but an index entry, which a write in place makes wrong."""
    blocks: int
    """Blocks to take."""
    refused: Refused | None
    """Why they cannot be had."""


def append(state: ManagerState, row: int, tokens: Int32) -> Outcome:
    """Extend a row by tokens, and give the new positions slots."""
    rows, length = state.rows, int(state.rows.length[row])
    end = length + len(tokens)
    grown = grow(state, row, end, num_tokens=end)
    if isinstance(grown, Refused):
        return grown
    rows.tokens[row, length:end] = tokens
    rows.set(LENGTH, row, end)
    know_room(state, row)
    return Ok(slots=slots(state, row, length, end), copies=grown)


def reserve(state: ManagerState, row: int, length: int) -> Outcome:
    """Slots for the positions up to `length`."""
    rows = state.rows
    start = min(int(rows.reserved[row]), int(rows.length[row]))
    grown = grow(state, row, length)
    if isinstance(grown, Refused):
        return grown
    return Ok(slots=slots(state, row, start, length), copies=grown)


def needed(state: ManagerState, row: int, end: int) -> Need:
    """What growth to `end` takes."""
    rows, bs = state.rows, state.config.block_size
    start, count = min(int(rows.reserved[row]), int(rows.length[row])), int(rows.blocks[row])
    if end <= start:
        return Need(0, (), (), 0, None)
    first, fresh, size = start // bs, max(0, ceil_div(end, bs) - count), len(state.groups)
    shared: tuple[int, ...] = ()
    entered: tuple[int, ...] = ()
    if first < count:
        rewritten = rows.tables[:, row, first].tolist()
        shared = tuple(g for g in state.groups if state.pool.references[rewritten[g]] > 1)
        entered = tuple(g for g in state.groups if g not in shared and state.index.entry[rewritten[g]] != NOTHING)
    need = fresh * size + len(shared)
    total = size * ceil_div(end, bs) - int(rows.numbers[HOLES:, row].sum())
    refused = Refused(Reason.UNSERVABLE) if end > MAX_INT32 else state.refusal(need, total)
    return Need(fresh, shared, entered, need, refused)


def grow(state: ManagerState, row: int, end: int, *, num_tokens: int = 0) -> tuple[Copy, ...] | Refused:
    """Make the positions from min(reserved, length) to `end` writable: fresh blocks past the table's end,
    copy-on-write for a block with another owner, and no index entry for one that will be written in place. If that is
    not refused, there is also room for `num_tokens` tokens."""
    rows, bs = state.rows, state.config.block_size
    start, count = min(int(rows.reserved[row]), int(rows.length[row])), int(rows.blocks[row])
    if end <= start:
        return ()
    need, first = needed(state, row, end), start // bs
    if need.refused:
        return need.refused
    rows.fit_tokens(num_tokens)
    rows.fit_blocks(count + need.fresh)
    taken = state.pool.take(need.blocks)
    if need.entered:
        state.pool.drop_entries(rows.tables[list(need.entered), row, first].astype(np.int64))
    copies = tuple(copy_on_write(state, g, row, first, taken[i]) for i, g in enumerate(need.shared))
    if need.fresh:
        fresh = taken[len(copies) :].reshape(-1, need.fresh)
        rows.tables[:, row, count : count + need.fresh] = fresh
        rows.touch(row, count)
        rows.set(BLOCKS, row, count + need.fresh)
    if end > rows.reserved[row]:
        rows.set(RESERVED, row, end)
    know_room(state, row)
    return copies


def know_room(state: ManagerState, row: int) -> None:
    """Work out the room of a row that has just grown, or been appended to: every block from the one of its start on is
    its own, and has no entry."""
    rows = state.rows
    reserved, length = int(rows.reserved[row]), int(rows.length[row])
    room = int(rows.blocks[row]) * state.config.block_size - length if reserved >= length else UNKNOWN
    rows.set(ROOM, row, room)


def copy_on_write(state: ManagerState, group: int, row: int, logical: int, block: Int64) -> Copy:
    """Put a block of the row's own in place of a shared one. The shared one keeps an owner, and so its content."""
    rows, place = state.rows, (group, row, logical)
    shared = int(rows.tables[place])
    state.pool.release(np.array([shared]))
    state.journal.put(rows.tables, place, block)
    rows.touch(row, logical)
    state.copy_on_writes += 1
    return Copy(shared, int(block))


def commit(state: ManagerState, row: int, computed: int) -> None:
    """The KV of the positions below `computed` is written: publish full blocks, release dead ones."""
    rows, bs = state.rows, state.config.block_size
    first, last, start = int(rows.computed[row]) // bs, computed // bs, int(rows.path[row])
    rows.set(COMPUTED, row, computed)
    if start != NOTHING and last > first:
        way = state.paths.extend(start, rows.tokens[row, first * bs : last * bs])
        rows.set(PATH, row, way.end)
        for group in state.groups:
            state.index.publish(way.nodes, group, rows.tables[group, row, first:last].astype(np.int64))
    if state.windows.sliding:
        release_dead(state, row)


def release_dead(state: ManagerState, row: int) -> None:
    """Turn blocks that hold only dead positions into holes; the last first, so that children are evicted first."""
    rows = state.rows
    for group in state.groups:
        old, new = int(rows.holes[group][row]), state.windows.holes(group, int(rows.computed[row]))
        if new > old:
            sinks = rows.sinks[group]
            dead = (group, row, slice(sinks + old, sinks + new))
            blocks = rows.tables[dead].astype(np.int64)
            state.pool.release(blocks[::-1])
            state.journal.note(rows.tables, dead, blocks)
            rows.tables[dead] = HOLE
            rows.touch(row, sinks + old)
            rows.set(HOLES + group, row, new)


def slots(state: ManagerState, row: int, start: int, end: int) -> tuple[Slot, ...]:
    """Where the positions start..end-1 lie, in one group after another."""
    tables, bs = state.rows.tables, state.config.block_size
    if end - start == 1:  # decoding: not worth an array
        return tuple(block * bs + start % bs for block in tables[:, row, start // bs].tolist())
    positions = np.arange(start, max(start, end))
    blocks = tables[:, row, :].take(positions // bs, axis=1).astype(np.int64)
    return tuple((blocks * bs + positions % bs).reshape(-1).tolist())
