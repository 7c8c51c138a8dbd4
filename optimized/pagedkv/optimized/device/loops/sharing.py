"""fork: a row that is not in use becomes another one, and shares its blocks."""

from pagedkv.optimized.device.loops.compiling import compiled
from pagedkv.optimized.device.loops.rows import OK, WRONG_ROW, Arrays, Fields, Flags, finish, look_up
from pagedkv.optimized.device.state import IN_USE, LENGTH
from pagedkv.optimized.loops.arrays import Int32, Int64


@compiled
def fork(fields: Fields, parents: Int64, children: Int64, where: Flags, block_size: int, outcome: Int32) -> None:
    """children[i] becomes parents[i], as that was before the call: a child of the call is no parent in it."""
    pool = Arrays(*fields)
    in_use = pool.numbers[IN_USE]
    for i in range(len(children)):
        outcome[i] = look_up(pool, children, where, i)
        known = 0 <= parents[i] < len(in_use) and in_use[parents[i]] > 0
        if outcome[i] == OK and (in_use[children[i]] > 0 or not known):
            outcome[i] = WRONG_ROW
    for i in range(len(children)):
        if outcome[i] == OK:
            for line in range(len(pool.numbers)):
                pool.numbers[line, children[i]] = pool.numbers[line, parents[i]]
            for entry in range((pool.numbers[LENGTH, parents[i]] + block_size - 1) // block_size):
                block = pool.tables[parents[i], entry]
                pool.tables[children[i], entry] = block
                if 0 <= block < len(pool.references):
                    pool.references[block] += 1
    finish(pool, children, outcome)
