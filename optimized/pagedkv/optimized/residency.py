"""Sharing, giving back and residency of one row: fork, truncate, free, preempt, resume, and relabelling."""

import numpy as np

from pagedkv.optimized.admission import plan_entry, seat
from pagedkv.optimized.arguments import Int32
from pagedkv.optimized.rows import RECOMPUTE, RESIDENT, SWAPPED
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import Copy, Ok, Outcome, PreemptMode, Reason, Refused, RequestId, ceil_div


def fork(state: ManagerState, parent: int, child: RequestId) -> Outcome:
    """The child owns the parent's blocks too, the partly filled last one and the holes included."""
    rows = state.rows
    if refused := state.refusal(0, 0, entering=True):
        return refused
    length = int(rows.length[parent])
    row = rows.add(child, rows.namespace[parent], rows.tokens[parent, :length])
    holes = int(rows.holes[parent])
    shared = rows.tables[parent, holes : ceil_div(length, state.config.block_size)]
    state.pool.acquire(shared)
    rows.set_table(row, holes, shared)
    rows.reserved[row] = rows.computed[row] = length
    state.move_cursor(row, rows.cursor[parent])
    rows.set_state(row, RESIDENT)
    return Ok()


def truncate(state: ManagerState, row: int, length: int) -> Outcome:
    """Roll back to `length`, lookahead too. The block that the end falls into keeps its index entry."""
    rows, bs = state.rows, state.config.block_size
    computed, reserved = min(int(rows.computed[row]), length), min(int(rows.reserved[row]), length)
    window = state.config.sliding_window
    if window is not None and max(0, computed - window + 1) // bs < rows.holes[row]:
        return Refused(Reason.RELEASED)
    node = rows.cursor[row]
    for _ in range(int(rows.computed[row]) // bs - computed // bs if node else 0):
        assert node is not None  # the cursor lies computed // block_size below the root
        node = node.parent
    state.move_cursor(row, node)
    state.release_table(row, keep=ceil_div(reserved, bs))
    rows.length[row], rows.reserved[row], rows.computed[row] = length, reserved, computed
    return Ok()


def free(state: ManagerState, rows: Int32) -> None:
    """Release what these distinct rows have, in row order, each one's last block first, and what is in swap space."""
    table = state.rows
    live = [table.live(row)[::-1] for row in rows.tolist() if table.state[row] == RESIDENT]
    if len(live) == 1:
        state.pool.release(live[0])
    elif live:
        state.pool.release_many(np.concatenate(live))
    for row in rows.tolist():
        forget_saved(state, row)
        state.move_cursor(row, None)
    table.remove(rows)


def preempt(state: ManagerState, row: int, mode: PreemptMode) -> Outcome:
    """Release the blocks and keep the tokens; with "swap" also the lengths and the holes, for what was saved."""
    rows = state.rows
    live = rows.live(row).copy()
    if mode == "swap" and len(live) > len(state.swap_free):
        return Refused(Reason.SWAP_SPACE)
    state.release_table(row)
    state.preemptions += 1
    if mode == "swap":
        saved = np.array([state.swap_free.pop() for _ in live], np.int32)
        rows.saved[row] = saved
        rows.set_state(row, SWAPPED)
        return Ok(swapped=pairs(live, saved))
    state.move_cursor(row, None)
    rows.empty(row)
    rows.set_state(row, RECOMPUTE)
    return Ok()


def forget_saved(state: ManagerState, row: int) -> None:
    """Give back the swap space of a row."""
    saved = state.rows.saved[row]
    if saved is not None:
        state.swap_free += saved[::-1].tolist()
        state.rows.saved[row] = None


def resume(state: ManagerState, row: int) -> Outcome:
    """Come back: as a new prompt that is matched against the index, or from swap with private blocks."""
    rows = state.rows
    if rows.state[row] == RECOMPUTE:
        length = int(rows.length[row])
        entry = plan_entry(state, rows.namespace[row], rows.tokens[row, :length], length)
        return entry if isinstance(entry, Refused) else seat(state, row, entry)
    saved = rows.saved[row]
    assert saved is not None  # a row that is neither resident nor to be recomputed is swapped out
    if refused := state.refusal(len(saved), len(saved), entering=True):
        return refused
    blocks = state.pool.take(len(saved))
    rows.set_table(row, int(rows.holes[row]), blocks)
    forget_saved(state, row)
    rows.set_state(row, RESIDENT)
    return Ok(swapped=pairs(saved, blocks))


def pairs(sources: Int32, destinations: Int32) -> tuple[Copy, ...]:
    """Sources and destinations, pair by pair."""
    return tuple(map(Copy, sources.tolist(), destinations.tolist()))


def relabel(state: ManagerState, new_block: Int32) -> None:
    """Block `b` is called `new_block[b]` from now on."""
    rows = state.rows
    for row in np.flatnonzero(rows.state == RESIDENT).tolist():
        rows.live(row)[:] = new_block[rows.live(row)]
    state.pool.relabel(new_block)
    state.index.relabel(new_block)
    for stack in state.pins.values():
        stack[:] = [new_block[blocks] for blocks in stack]
