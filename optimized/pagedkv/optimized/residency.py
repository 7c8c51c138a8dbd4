"""Sharing, giving back and residency of one row: fork, truncate, free, preempt, resume, and relabelling."""

import numpy as np

from pagedkv.optimized.admission import plan_entry, seat
from pagedkv.optimized.loops.arrays import Int64
from pagedkv.optimized.loops import calls
from pagedkv.optimized.loops.memory import (
    BLOCKS, COMPUTED, LENGTH, NOTHING, NUM_SWAP_FREE, PREEMPTIONS, RESERVED, RESIDENT, RESUMED_HIT_TOKENS, ROOM,
    UNKNOWN,
)  # fmt: skip
from pagedkv.optimized.rows import RECOMPUTE, SWAPPED
from pagedkv.optimized.state import DONE, ManagerState
from pagedkv.spec.words import HOLE, Copy, Ok, Outcome, PreemptMode, Reason, Refused, RequestId, ceil_div


def fork(state: ManagerState, parent: int, child: RequestId) -> Outcome:
    """The child owns the parent's blocks too, the partly filled last one and the holes included."""
    rows = state.rows
    if refused := state.refusal(0, 0, entering=True):
        return refused
    row = rows.add(rows.known(parent)._replace(request=child), _NO_TOKENS)
    calls.fork(state.journal.fields(), parent, row)
    return DONE


_NO_TOKENS = np.empty(0, np.int32)


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
    calls.release_table(state.journal.fields(), row, keep)
    rows.set(BLOCKS, row, keep)


def free(state: ManagerState, row: int) -> None:
    """Release what a row has, its last block first, or what it has in swap space."""
    if state.config.swap_blocks and state.rows.state[row] == SWAPPED:
        forget_saved(state, row)
    if calls.free_one(state.journal.fields(), row):
        state.index.settle()
    state.rows.forget(row)


def free_rows(state: ManagerState, rows: Int64) -> None:
    """The same for distinct rows, in this order."""
    if state.config.swap_blocks:
        for row in rows[state.rows.state.take(rows) == SWAPPED].tolist():
            forget_saved(state, row)
    calls.free_each(state.journal.fields(), rows)
    state.index.settle()
    for row in rows.tolist():
        state.rows.forget(row)


def preempt(state: ManagerState, row: int, mode: PreemptMode) -> Outcome:
    """Release the blocks and keep the tokens; with "swap" also the lengths and the holes, for what was saved."""
    rows, counters = state.rows, state.journal.counters
    live = np.concatenate([rows.live(group, row) for group in state.groups])
    if mode == "swap" and len(live) > counters[NUM_SWAP_FREE]:
        return Refused(Reason.SWAP_SPACE)
    release_table(state, row)
    counters[PREEMPTIONS] += 1
    if mode == "swap":
        counters[NUM_SWAP_FREE] -= len(live)
        free = counters[NUM_SWAP_FREE]
        saved = state.swap_free[free : free + len(live)][::-1].copy()
        state.journal.set(rows.info, row, rows.known(row)._replace(saved=saved))
        rows.set_state(row, SWAPPED)
        rows.set(ROOM, row, UNKNOWN)
        return Ok(swapped=pairs(live, saved))
    state.move_path(row, NOTHING)
    rows.set_numbers(row, RECOMPUTE, int(rows.length[row]))
    return DONE


def forget_saved(state: ManagerState, row: int) -> None:
    """Give back the swap space of a row."""
    info, free = state.rows.known(row), int(state.journal.counters[NUM_SWAP_FREE])
    assert info.saved is not None
    state.journal.put(state.swap_free, slice(free, free + len(info.saved)), info.saved[::-1])
    state.journal.counters[NUM_SWAP_FREE] += len(info.saved)
    state.journal.set(state.rows.info, row, info._replace(saved=None))


def resume(state: ManagerState, row: int) -> Outcome:
    """Come back: as a new prompt that is matched against the index, or from swap with private blocks."""
    rows, info = state.rows, state.rows.known(row)
    if rows.state[row] == RECOMPUTE:
        length = int(rows.length[row])
        entry = plan_entry(state, info.namespace, rows.tokens[row, :length], length, reads=info.reads)
        if entry.refused:
            return entry.refused
        state.journal.counters[RESUMED_HIT_TOKENS] += len(entry.nodes) * state.config.block_size
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
    rows, tables = state.rows, state.rows.tables_copied()
    for row in np.flatnonzero(rows.state == RESIDENT).tolist():
        table = tables[:, row, : rows.blocks[row]]
        table[table != HOLE] = new_block[table[table != HOLE]]
        rows.touch(row, 0)
    state.journal.replace(tables=tables)
    state.index.relabel(new_block)
    state.pool.relabel(new_block)
    pins = {pinned: tuple(new_block[blocks] for blocks in stack) for pinned, stack in state.pins.items()}
    state.journal.set(vars(state), "pins", pins)
