"""import_: rows that are not in use become requests that began elsewhere."""

from pagedkv.optimized.device.loops.compiling import compiled
from pagedkv.optimized.device.loops.rows import (
    BAD_LENGTH, OK, TABLE_FULL, WRONG_ROW, Arrays, Fields, Flags, finish, look_up,
)  # fmt: skip
from pagedkv.optimized.device.state import HOLES, IN_USE, LENGTH
from pagedkv.optimized.loops.arrays import Int32, Int64


@compiled
def import_rows(
    fields: Fields, rows: Int64, tables: Int32, lengths: Int64, num_holes: Int64, where: Flags, owning: bool,
    block_size: int, most: int, outcome: Int32,
) -> None:  # fmt: skip
    """rows[i] gets lengths[i] positions, at most `most`, in the blocks of tables[i]. `owning`: they are the pool's own
    from now on; otherwise the host lends them. `num_holes`, if it is not empty: entries that a window has released."""
    pool = Arrays(*fields)
    for i in range(len(rows)):
        outcome[i] = look_up(pool, rows, where, i)
        if outcome[i] != OK:
            continue
        if pool.numbers[IN_USE, rows[i]] > 0:
            outcome[i] = WRONG_ROW
        elif not 0 <= lengths[i] <= most:
            outcome[i] = BAD_LENGTH
        elif (lengths[i] + block_size - 1) // block_size > min(tables.shape[1], pool.tables.shape[1]):
            outcome[i] = TABLE_FULL
        else:
            pool.numbers[IN_USE, rows[i]] = 1
            pool.numbers[LENGTH, rows[i]] = lengths[i]
            pool.numbers[HOLES, rows[i]] = num_holes[i] if len(num_holes) else 0
            for entry in range((lengths[i] + block_size - 1) // block_size):
                pool.tables[rows[i], entry] = tables[i, entry]
                enter(pool, tables[i, entry], owning)
    finish(pool, rows, outcome)


@compiled
def enter(pool: Arrays, block: int, owning: bool) -> None:
    """One more table entry names this block. The first time that the host lends it, so does the host."""
    if not 0 <= block < len(pool.references):  # a hole, or what `check` will find
        return
    pool.references[block] += 1
    if owning:
        pool.owned[block] = 1
    elif pool.lent[block] == 0:
        pool.lent[block] = 1
        pool.references[block] += 1
