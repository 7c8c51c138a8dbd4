"""import_: rows that are not in use become requests that began elsewhere."""

from pagedkv.optimized.device.loops.compiling import compiled
from pagedkv.optimized.device.loops.rows import (
    BAD_LENGTH, BAD_TABLE, OK, TABLE_FULL, WRONG_ROW, Arrays, Fields, Flags, finish, look_up,
)  # fmt: skip
from pagedkv.optimized.device.state import HOLES, IN_USE, LENGTH
from pagedkv.optimized.loops.arrays import Int32, Int64


@compiled
def import_rows(
    fields: Fields, rows: Int64, tables: Int32, lengths: Int64, num_holes: Int64, where: Flags, owning: bool,
    block_size: int, most: int, sinks: int, outcome: Int32,
) -> None:  # fmt: skip
    """rows[i] gets lengths[i] positions, at most `most`, in the blocks of tables[i]. `owning`: they are the pool's own
    from now on; otherwise the host lends them. `num_holes`, if it is not empty: entries that a window has released,
    behind `sinks` that it keeps; negative: there is no window."""
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
        elif not is_table(
            pool, tables[i], lengths[i], num_holes[i] if len(num_holes) else 0, owning, block_size, sinks
        ):
            outcome[i] = BAD_TABLE
        else:
            pool.numbers[IN_USE, rows[i]] = 1
            pool.numbers[LENGTH, rows[i]] = lengths[i]
            pool.numbers[HOLES, rows[i]] = num_holes[i] if len(num_holes) else 0
            for entry in range((lengths[i] + block_size - 1) // block_size):
                gone = sinks <= entry < sinks + pool.numbers[HOLES, rows[i]]
                pool.tables[rows[i], entry] = -1 if gone else tables[i, entry]
                if not gone:
                    enter(pool, tables[i, entry], owning)
    finish(pool, rows, outcome)


@compiled
def is_table(pool: Arrays, table: Int32, length: int, holes: int, owning: bool, block_size: int, sinks: int) -> bool:
    """Whether a table can be what it says: of blocks that there are, and that are not the pool's to hand out."""
    entries = (length + block_size - 1) // block_size
    most = max(0, length // block_size - sinks) if sinks >= 0 else 0  # where the next position goes is no hole
    if not 0 <= holes <= most:
        return False
    for entry in range(entries):
        if not 0 <= sinks <= entry < sinks + holes:
            block = table[entry]
            if not 0 <= block < len(pool.references):
                return False
            if pool.owned[block] > 0 and not (owning and pool.references[block] > 0):
                return False
    return True


@compiled
def enter(pool: Arrays, block: int, owning: bool) -> None:
    """One more table entry names this block. The first time that the host lends it, so does the host."""
    pool.references[block] += 1
    if owning:
        pool.owned[block] = 1
    elif pool.lent[block] == 0:
        pool.lent[block] = 1
        pool.references[block] += 1
