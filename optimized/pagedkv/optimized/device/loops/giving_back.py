"""free, truncate and release_window: a range of each row's table entries is given back."""

from pagedkv.optimized.device.loops.compiling import compiled
from pagedkv.optimized.device.loops.rows import (
    BAD_LENGTH, OK, RELEASED, WRONG_ROW, Arrays, Fields, Flags, finish, look_up,
)  # fmt: skip
from pagedkv.optimized.device.outcomes import NUM_FREE
from pagedkv.optimized.device.state import HOLES, IN_USE, LENGTH
from pagedkv.optimized.loops.arrays import Int32, Int64


@compiled
def free(fields: Fields, rows: Int64, where: Flags, block_size: int, outcome: Int32) -> None:
    """The rows are not in use any more."""
    pool = Arrays(*fields)
    for i in range(len(rows)):
        outcome[i] = present(pool, rows, where, i)
        if outcome[i] == OK:
            leave(pool, rows[i], block_size)
    finish(pool, rows, outcome)


@compiled
def hand_over(fields: Fields, rows: Int64, where: Flags, block_size: int, outcome: Int32) -> None:
    """As `free`, but the blocks that only one row has are not the pool's own any more."""
    pool = Arrays(*fields)
    for i in range(len(rows)):
        outcome[i] = present(pool, rows, where, i)
        if outcome[i] == OK:
            for entry in range((pool.numbers[LENGTH, rows[i]] + block_size - 1) // block_size):
                block = pool.tables[rows[i], entry]
                if 0 <= block < len(pool.references) and pool.references[block] == 1:
                    pool.owned[block] = 0
    for i in range(len(rows)):
        if outcome[i] == OK:
            leave(pool, rows[i], block_size)
    finish(pool, rows, outcome)


@compiled
def truncate(
    fields: Fields, rows: Int64, lengths: Int64, computed: Int64, where: Flags, block_size: int, window: int,
    sink_blocks: int, outcome: Int32,
) -> None:  # fmt: skip
    """Take back the positions from lengths[i] on. `computed`, if it is not empty: positions whose KV was written."""
    pool = Arrays(*fields)
    for i in range(len(rows)):
        outcome[i] = present(pool, rows, where, i)
        if outcome[i] != OK:
            continue
        length, holes = pool.numbers[LENGTH, rows[i]], pool.numbers[HOLES, rows[i]]
        written = computed[i] if len(computed) else length
        if not (0 <= lengths[i] <= length and 0 <= written <= length):
            outcome[i] = BAD_LENGTH
            continue
        written = min(written, lengths[i])
        if holes > 0 and max(0, written - window + 1) // block_size < holes + sink_blocks:
            outcome[i] = RELEASED
            continue
        first, end = (lengths[i] + block_size - 1) // block_size, (length + block_size - 1) // block_size
        give_back(pool, rows[i], first, end, 0)
        pool.numbers[LENGTH, rows[i]] = lengths[i]
    finish(pool, rows, outcome)


@compiled
def release_window(
    fields: Fields, rows: Int64, computed: Int64, where: Flags, block_size: int, kept: int, sink_blocks: int,
    outcome: Int32,
) -> None:  # fmt: skip
    """Give back the blocks that hold nothing of the last `kept` of computed[i] positions (of all, if that is empty),
    nor of the sinks; none if `kept` is negative."""
    pool = Arrays(*fields)
    for i in range(len(rows)):
        outcome[i] = present(pool, rows, where, i)
        if outcome[i] != OK:
            continue
        length = pool.numbers[LENGTH, rows[i]]
        written = computed[i] if len(computed) else length
        if not 0 <= written <= length:
            outcome[i] = BAD_LENGTH
            continue
        first = pool.numbers[HOLES, rows[i]] + sink_blocks
        end = max(first, max(0, written - kept) // block_size) if kept >= 0 else first
        give_back(pool, rows[i], first, end, -1)
        pool.numbers[HOLES, rows[i]] += end - first
    finish(pool, rows, outcome)


@compiled
def present(pool: Arrays, rows: Int64, where: Flags, i: int) -> int:
    """As `look_up`, of rows that are in use."""
    found = look_up(pool, rows, where, i)
    return WRONG_ROW if found == OK and pool.numbers[IN_USE, rows[i]] == 0 else found


@compiled
def leave(pool: Arrays, row: int, block_size: int) -> None:
    """The row gives all back, and is not in use any more."""
    give_back(pool, row, 0, (pool.numbers[LENGTH, row] + block_size - 1) // block_size, 0)
    pool.numbers[:, row] = 0


@compiled
def give_back(pool: Arrays, row: int, first: int, end: int, mark: int) -> None:
    """Give back the table entries first..end - 1; `mark` is what stands there then. Blocks of the pool's own that
    nobody else has are pushed on the free list."""
    for entry in range(first, end):
        block = pool.tables[row, entry]
        pool.tables[row, entry] = mark
        if 0 <= block < len(pool.references):
            pool.references[block] -= 1
            fits = pool.counters[NUM_FREE] < len(pool.free_list)  # or a block was given twice
            if pool.references[block] == 0 and pool.owned[block] > 0 and fits:
                pool.free_list[pool.counters[NUM_FREE]] = block
                pool.counters[NUM_FREE] += 1
