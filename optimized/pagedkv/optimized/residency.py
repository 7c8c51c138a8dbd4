"""Sharing, giving back and residency of one row: fork, truncate, free, preempt, resume, and relabelling."""

import numpy as np

from pagedkv.optimized.admission import plan_entry, seat
from pagedkv.optimized.arguments import Int64
from pagedkv.optimized.paths import NOTHING
from pagedkv.optimized.plan import ragged
from pagedkv.optimized.rows import (
    BLOCKS, COMPUTED, HOLES, LENGTH, RECOMPUTE, RESERVED, RESIDENT, ROOM, SWAPPED, UNKNOWN,
)  # fmt: skip
from pagedkv.optimized.state import DONE, ManagerState
from pagedkv.spec.words import HOLE, Copy, Ok, Outcome, PreemptMode, Reason, Refused, RequestId, ceil_div


def fork(state: ManagerState, parent: int, child: RequestId) -> Outcome:
    """The child owns the parent's blocks too, the partly filled last one and the holes included."""
    rows = state.rows
    if refused := state.refusal(0, 0, entering=True):
        return refused
    length = int(rows.length[parent])
    row = rows.add(rows.known(parent)._replace(request=child), rows.tokens[parent, :length])
    count, node = ceil_div(length, state.config.block_size), int(rows.path[parent])
    for group in state.groups:
        blocks = rows.live(group, parent)
        state.pool.acquire(blocks[: len(blocks) - (int(rows.blocks[parent]) - count)])  # not the lookahead
    rows.tables[:, row, :count] = rows.tables[:, parent, :count]
    if node != NOTHING:
        state.paths.hold(node)
    rows.set(ROOM, parent, UNKNOWN)
    holes = rows.numbers[HOLES:, parent].tolist()
    rows.set_numbers(row, RESIDENT, length, length, length, count, node, holes=holes)
    return DONE


def truncate(state: ManagerState, row: int, length: int) -> Outcome:
    """Roll back to `length`, lookahead too. The block that the end falls into keeps its index entry."""
    if released(state, row, min(int(state.rows.computed[row]), length)):
        return Refused(Reason.RELEASED)
    shorten(state, row, length)
    state.rows.set(LENGTH, row, length)
    return DONE


def released(state: ManagerState, row: int, computed: int) -> bool:
    """A query at `computed` would see a position that a window has released."""
    rows, windows = state.rows, state.windows
    return any(windows.holes(group, computed, rollback=False) < rows.holes[group][row] for group in state.groups)


def shorten(state: ManagerState, row: int, reserved: int) -> None:
    """No position from `reserved` on is computed, or has a slot."""
    rows, bs = state.rows, state.config.block_size
    before = int(rows.computed[row])
    computed, reserved = min(before, reserved), min(int(rows.reserved[row]), reserved)
    node = int(rows.path[row])
    if node != NOTHING:  # it lies computed // block_size below the root
        state.move_path(row, state.paths.ancestor(node, before // bs - computed // bs))
    release_table(state, row, keep=ceil_div(reserved, bs))
    rows.set(RESERVED, row, reserved)
    rows.set(ROOM, row, UNKNOWN)
    rows.set(COMPUTED, row, computed)


def release_table(state: ManagerState, row: int, keep: int = 0) -> None:
    """Release the blocks of a row past its first `keep` table entries, the last first: children before parents."""
    rows, count = state.rows, int(state.rows.blocks[row])
    if keep >= count:
        return
    for group in state.groups:
        state.pool.release(rows.live(group, row, keep)[::-1])
    rows.set(BLOCKS, row, keep)


def free(state: ManagerState, rows: Int64) -> None:
    """Release what these distinct rows have, in row order, each one's last block first, and what is in swap space."""
    table, states = state.rows, state.rows.state.take(rows)
    if len(rows) == 1:
        row = int(rows[0])
        for group in state.groups if states[0] == RESIDENT else ():
            state.pool.release(table.live(group, row)[::-1])
    else:
        state.pool.release_many(owned(state, rows[states == RESIDENT]))
    state.paths.drop(table.path.take(rows).tolist())
    for row in rows[states == SWAPPED].tolist() if np.count_nonzero(states == SWAPPED) else ():
        forget_saved(state, row)
    table.remove(rows, states)


def owned(state: ManagerState, rows: Int64) -> Int64:
    """The blocks in the tables of these rows, row by row, in each one group after another, the last block first."""
    table, size = state.rows, len(state.groups)
    each = np.repeat(rows, size)
    run, backwards = ragged(np.zeros(len(each), np.int64), table.blocks.take(each).astype(np.int64))
    columns = table.blocks.take(each)[run] - 1 - backwards
    group = np.tile(np.arange(size), len(rows))[run]
    blocks: Int64 = table.tables[group, each[run], columns].astype(np.int64)
    return blocks[blocks != HOLE] if state.windows.sliding else blocks


def preempt(state: ManagerState, row: int, mode: PreemptMode) -> Outcome:
    """Release the blocks and keep the tokens; with "swap" also the lengths and the holes, for what was saved."""
    rows = state.rows
    live = np.concatenate([rows.live(group, row) for group in state.groups])
    if mode == "swap" and len(live) > state.num_swap_free:
        return Refused(Reason.SWAP_SPACE)
    release_table(state, row)
    state.preemptions += 1
    if mode == "swap":
        state.num_swap_free -= len(live)
        saved = state.swap_free[state.num_swap_free : state.num_swap_free + len(live)][::-1].copy()
        state.journal.set(rows.info, row, rows.known(row)._replace(saved=saved))
        rows.set_state(row, SWAPPED)
        rows.set(ROOM, row, UNKNOWN)
        return Ok(swapped=pairs(live, saved))
    state.move_path(row, NOTHING)
    rows.set_numbers(row, RECOMPUTE, int(rows.length[row]))
    return DONE


def forget_saved(state: ManagerState, row: int) -> None:
    """Give back the swap space of a row."""
    info, free = state.rows.known(row), state.num_swap_free
    assert info.saved is not None
    state.journal.put(state.swap_free, slice(free, free + len(info.saved)), info.saved[::-1])
    state.num_swap_free += len(info.saved)
    state.journal.set(state.rows.info, row, info._replace(saved=None))


def resume(state: ManagerState, row: int) -> Outcome:
    """Come back: as a new prompt that is matched against the index, or from swap with private blocks."""
    rows, info = state.rows, state.rows.known(row)
    if rows.state[row] == RECOMPUTE:
        length = int(rows.length[row])
        entry = plan_entry(state, info.namespace, rows.tokens[row, :length], length, reads=info.reads)
        if entry.refused:
            return entry.refused
        state.resumed_hit_tokens += entry.cached
        return seat(state, row, length, entry)
    saved = info.saved
    assert saved is not None  # a row that is neither resident nor to be recomputed is swapped out
    if refused := state.refusal(len(saved), len(saved), entering=True):
        return refused
    blocks = state.pool.take(len(saved))
    count, start = ceil_div(int(rows.reserved[row]), state.config.block_size), 0
    rows.fit_blocks(count)
    for group in state.groups:
        holes = int(rows.holes[group][row])
        rows.set_table(group, row, holes, blocks[start : start + count - holes])
        start += count - holes
    forget_saved(state, row)
    rows.set(BLOCKS, row, count)
    rows.set_state(row, RESIDENT)
    rows.touch(row, 0)
    return Ok(swapped=pairs(saved, blocks))


def pairs(sources: Int64, destinations: Int64) -> tuple[Copy, ...]:
    """Sources and destinations, pair by pair."""
    return tuple(map(Copy, sources.tolist(), destinations.tolist()))


def relabel(state: ManagerState, new_block: Int64) -> None:
    """Block `b` is called `new_block[b]` from now on. What is renamed is renamed in copies, which take the place of
    the old arrays."""
    rows, tables = state.rows, state.rows.tables.copy()
    for row in np.flatnonzero(rows.state == RESIDENT).tolist():
        table = tables[:, row, : rows.blocks[row]]
        table[table != HOLE] = new_block[table[table != HOLE]]
        rows.touch(row, 0)
    idle = new_block.take(state.pool.idle_blocks())
    rows.tables = tables
    state.index.relabel(new_block)
    state.pool.relabel(new_block, idle)
    state.pins = {pinned: tuple(new_block[blocks] for blocks in stack) for pinned, stack in state.pins.items()}
