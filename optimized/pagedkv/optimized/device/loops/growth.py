"""admit and append: rows get blocks for new positions, and copies of blocks that have another owner."""

from pagedkv.optimized.device.loops.compiling import compiled
from pagedkv.optimized.device.loops.rows import (
    BAD_LENGTH, CAPACITY, OK, TABLE_FULL, UNSERVABLE, WRONG_ROW, Arrays, Fields, Flags, finish, look_up,
)  # fmt: skip
from pagedkv.optimized.device.outcomes import NUM_FREE
from pagedkv.optimized.device.state import HOLES, IN_USE, LENGTH, MOST
from pagedkv.optimized.loops.arrays import Int32, Int64


@compiled
def grow(
    fields: Fields, rows: Int64, counts: Int64, where: Flags, entering: bool, block_size: int, limit: int,
    outcome: Int32, seq_lens: Int32, copies: Int32, slots: Int64,
) -> None:  # fmt: skip
    """Append counts[i] positions to rows[i], one each if `counts` is empty; `entering`: to new rows. Rows whose slots
    would be past `limit` are not served.

    Fills the fields of a `PoolPlan`. To admit is to append to a row that is not in use.
    """
    pool, first = Arrays(*fields), 0
    for i in range(len(rows)):
        count = counts[i] if len(counts) else 1
        end = first + min(max(0, count), MOST)  # a count may be anything that int64 holds
        outcome[i] = look_up(pool, rows, where, i)
        if outcome[i] == OK:
            outcome[i] = grow_row(pool, rows[i], count, entering, block_size, end <= limit, copies[i])
        if outcome[i] == OK:
            seq_lens[i] = pool.numbers[LENGTH, rows[i]]
            for at in range(first, min(end, len(slots))):
                position = seq_lens[i] - count + at - first
                block = pool.tables[rows[i], position // block_size]
                slots[at] = block * block_size + position % block_size
        else:
            seq_lens[i], slots[min(first, len(slots)) : min(end, len(slots))], copies[i] = 0, -1, -1
        first = end
    slots[min(first, len(slots)) :] = -1
    finish(pool, rows, outcome)


@compiled
def grow_row(pool: Arrays, row: int, count: int, entering: bool, block_size: int, fits: bool, pair: Int32) -> int:
    """Grow one row, or say why not. `fits`: there is room for its slots. `pair` becomes its copy-on-write."""
    if (pool.numbers[IN_USE, row] > 0) == entering:
        return WRONG_ROW
    if not (fits and 0 <= count <= MOST):
        return BAD_LENGTH
    length = pool.numbers[LENGTH, row]
    blocks, after = (length + block_size - 1) // block_size, (length + count + block_size - 1) // block_size
    if after - pool.numbers[HOLES, row] > len(pool.references):
        return UNSERVABLE
    if after > pool.tables.shape[1]:
        return TABLE_FULL
    inside = count > 0 and blocks * block_size > length  # it writes into a block that is there
    copied = inside and pool.references[pool.tables[row, blocks - 1]] > 1
    if after - blocks + copied > pool.counters[NUM_FREE]:
        return CAPACITY

    pair[:] = -1
    if copied:
        pair[0] = pool.tables[row, blocks - 1]
        pool.references[pair[0]] -= 1
        blocks -= 1
    for entry in range(blocks, after):
        pool.counters[NUM_FREE] -= 1
        block = pool.free_list[pool.counters[NUM_FREE]]
        pool.references[block] = 1
        pool.tables[row, entry] = block
    if copied:
        pair[1] = pool.tables[row, blocks]
    pool.numbers[IN_USE, row] = 1
    pool.numbers[LENGTH, row] = length + count
    return OK
