"""Growth of one row: reserve, append, commit. `batch` does the same for many rows at once.

Writing starts at `start = min(reserved, length)`. Only the block that `start` falls into can have another owner or an
index entry: table entries after it were taken as lookahead, and neither a fork, nor a pin, nor the index ever got
them. So growth copies at most one block.
"""

import numpy as np

from pagedkv.optimized.arguments import MAX_INT32, Int32
from pagedkv.optimized.rows import Rows
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import HOLE, Copy, Ok, Outcome, Reason, Refused, Slot, ceil_div


def append(state: ManagerState, row: int, tokens: Int32) -> Outcome:
    """Extend a row by tokens, and give the new positions slots."""
    rows, length = state.rows, int(state.rows.length[row])
    end = length + len(tokens)
    grown = grow(state, row, end, num_tokens=end)
    if isinstance(grown, Refused):
        return grown
    rows.tokens[row, length:end] = tokens
    rows.length[row] = end
    return Ok(slots=slots(rows, row, length, end, state.config.block_size), copies=grown)


def reserve(state: ManagerState, row: int, length: int) -> Outcome:
    """Slots for the positions up to `length`."""
    rows = state.rows
    start = min(int(rows.reserved[row]), int(rows.length[row]))
    grown = grow(state, row, length)
    if isinstance(grown, Refused):
        return grown
    return Ok(slots=slots(rows, row, start, length, state.config.block_size), copies=grown)


def grow(state: ManagerState, row: int, end: int, *, num_tokens: int = 0) -> tuple[Copy, ...] | Refused:
    """Make the positions from min(reserved, length) to `end` writable: fresh blocks past the table's end,
    copy-on-write for a block with another owner, and no index entry for one that will be written in place. If that is
    not refused, there is also room for `num_tokens` tokens."""
    rows, pool, bs = state.rows, state.pool, state.config.block_size
    start, count = min(int(rows.reserved[row]), int(rows.length[row])), int(rows.blocks[row])
    if end <= start:
        return ()
    first, fresh = start // bs, max(0, ceil_div(end, bs) - count)
    block = int(rows.tables[row, first]) if first < count else HOLE
    shared = first < count and int(pool.references[block]) > 1
    if end > MAX_INT32:
        return Refused(Reason.UNSERVABLE)
    if refused := state.refusal(fresh + shared, ceil_div(end, bs) - int(rows.holes[row])):
        return refused
    rows.fit_tokens(num_tokens)
    rows.fit_blocks(count + fresh)
    copies: tuple[Copy, ...] = ()
    if shared:
        copies = (copy_on_write(state, row, first),)
    elif first < count and state.index.indexed[block]:
        pool.forget(rows.tables[row, first : first + 1])
    if fresh:
        rows.tables[row, count : count + fresh] = pool.take(fresh)
        rows.blocks[row] = count + fresh
    rows.reserved[row] = max(int(rows.reserved[row]), end)
    return copies


def copy_on_write(state: ManagerState, row: int, logical: int) -> Copy:
    """Put a block of the row's own in place of a shared one. The shared one keeps an owner, and so its content."""
    table, pool = state.rows.tables[row], state.pool
    old, new = table[logical : logical + 1].copy(), pool.take(1)
    pool.release(old)
    table[logical] = new[0]
    state.copy_on_writes += 1
    return Copy(int(old[0]), int(new[0]))


def commit(state: ManagerState, row: int, computed: int) -> None:
    """The KV of the positions below `computed` is written: publish full blocks, release dead ones."""
    rows, bs = state.rows, state.config.block_size
    before = int(rows.computed[row])
    rows.computed[row] = computed
    node = rows.cursor[row]
    if node is not None and computed // bs > before // bs:
        data = rows.tokens[row, before // bs * bs : computed // bs * bs].tobytes()
        stride = len(data) // (computed // bs - before // bs)
        for i, block in enumerate(rows.tables[row, before // bs : computed // bs].tolist()):
            node = state.index.child(node, data[i * stride : (i + 1) * stride])
            state.index.publish(node, block)
        state.move_cursor(row, node)
    release_dead(state, row)


def release_dead(state: ManagerState, row: int) -> None:
    """Turn blocks that hold only dead positions into holes; the last first, so that children are evicted first."""
    rows = state.rows
    old, new = int(rows.holes[row]), state.dead_blocks(int(rows.computed[row]))
    if new > old:
        state.pool.release(rows.tables[row, old:new][::-1].copy())
        rows.tables[row, old:new] = HOLE
        rows.holes[row] = new


def slots(rows: Rows, row: int, start: int, end: int, block_size: int) -> tuple[Slot, ...]:
    """Where the positions start..end-1 lie."""
    if end - start == 1:  # decoding: not worth a list
        return (int(rows.tables[row, start // block_size]) * block_size + start % block_size,)
    positions = np.arange(start, max(start, end))
    blocks = rows.tables[row, positions // block_size].astype(np.int64)
    return tuple((blocks * block_size + positions % block_size).tolist())
