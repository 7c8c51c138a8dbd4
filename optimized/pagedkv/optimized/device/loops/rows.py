"""The arrays of a pool, and which rows a call is about."""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.device.loops.compiling import compiled
from pagedkv.optimized.device.outcomes import COUNTED, RowOutcome
from pagedkv.optimized.device.state import UNCLAIMED
from pagedkv.optimized.loops.arrays import Int32, Int64

Flags: TypeAlias = NDArray[np.bool_]
OK, SKIPPED, DUPLICATE, WRONG_ROW, BAD_LENGTH, RELEASED, UNSERVABLE, TABLE_FULL, CAPACITY, BAD_TABLE = map(
    int, RowOutcome
)
"""As numbers, which is what numba knows."""


class Arrays(NamedTuple):
    """Of a `PoolState`, those that loops use."""

    numbers: Int32
    tables: Int32
    references: Int32
    free_list: Int32
    counters: Int64
    claims: Int32
    owned: Int32
    lent: Int32


Fields: TypeAlias = tuple[Int32, Int32, Int32, Int32, Int64, Int32, Int32, Int32]
"""The same as a plain tuple, which is faster to pass."""


@compiled
def look_up(pool: Arrays, rows: Int64, where: Flags, i: int) -> int:
    """OK, or why rows[i] is not looked at further; an empty `where` leaves nothing out. The row is claimed."""
    row = rows[i]
    if row < 0 or (len(where) and not where[i]):
        return SKIPPED
    if row >= pool.numbers.shape[1]:
        return WRONG_ROW
    if pool.claims[row] != UNCLAIMED:
        return DUPLICATE
    pool.claims[row] = i
    return OK


@compiled
def finish(pool: Arrays, rows: Int64, outcome: Int32) -> None:
    """Nothing is claimed any more, and the outcomes are counted."""
    for i in range(len(rows)):
        pool.counters[COUNTED + outcome[i]] += 1
        if 0 <= rows[i] < pool.numbers.shape[1]:
            pool.claims[rows[i]] = UNCLAIMED
