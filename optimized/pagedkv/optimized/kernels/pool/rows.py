"""What the kernels of the pool share: which rows a call is about, and how outcomes are counted.

`numbers` is (3, num_rows) int32: in use, length, holes. Outcomes are those of
`pagedkv.optimized.device.outcomes.RowOutcome`.
"""

import triton
import triton.language as tl

from pagedkv.optimized.device import state
from pagedkv.optimized.device.outcomes import RowOutcome

OK = tl.constexpr(int(RowOutcome.OK))
SKIPPED = tl.constexpr(int(RowOutcome.SKIPPED))
DUPLICATE = tl.constexpr(int(RowOutcome.DUPLICATE))
WRONG_ROW = tl.constexpr(int(RowOutcome.WRONG_ROW))
BAD_LENGTH = tl.constexpr(int(RowOutcome.BAD_LENGTH))
RELEASED = tl.constexpr(int(RowOutcome.RELEASED))
UNSERVABLE = tl.constexpr(int(RowOutcome.UNSERVABLE))
TABLE_FULL = tl.constexpr(int(RowOutcome.TABLE_FULL))
CAPACITY = tl.constexpr(int(RowOutcome.CAPACITY))
BAD_TABLE = tl.constexpr(int(RowOutcome.BAD_TABLE))
NUM_OUTCOMES = tl.constexpr(len(RowOutcome))
UNCLAIMED = tl.constexpr(state.UNCLAIMED)


@triton.jit
def read_rows(rows, where, index, num_asked, num_rows):
    """The rows at `index` of a call (None: all in order), 64-bit; whether they are skipped; whether there are such."""
    is_asked = index < num_asked
    if rows is None:
        row = tl.where(is_asked, index, -1).to(tl.int64)
    else:
        row = tl.load(rows + index, mask=is_asked, other=-1).to(tl.int64)
    skipped = row < 0
    if where is not None:
        skipped = skipped | (tl.load(where + index, mask=is_asked, other=0) == 0)
    return row, skipped, (row < num_rows) & ~skipped


@triton.jit
def row_of(rows, index):
    """The row of one program."""
    row = index if rows is None else tl.load(rows + index)
    return row.to(tl.int64)


@triton.jit
def claim_rows(rows, where, claims, num_asked, num_rows, CHUNK: tl.constexpr):
    """Each row of the pool learns where in the call it stands first. One program; ends with a barrier. Of all rows in
    order there is nothing to learn."""
    if rows is not None:
        for start in range(0, num_asked, CHUNK):
            index = start + tl.arange(0, CHUNK)
            row, _, known = read_rows(rows, where, index, num_asked, num_rows)
            tl.atomic_min(claims + row, index, mask=known)
        tl.debug_barrier()


@triton.jit
def unclaim_rows(rows, where, claims, num_asked, num_rows, CHUNK: tl.constexpr):
    """`claims` is as it was made. One program, after a barrier."""
    if rows is not None:
        for start in range(0, num_asked, CHUNK):
            index = start + tl.arange(0, CHUNK)
            row, _, known = read_rows(rows, where, index, num_asked, num_rows)
            tl.store(claims + row, UNCLAIMED, mask=known)


@triton.jit
def stood_before(rows, claims, row, known, index):
    """Whether the row stands earlier in this call. Read past L1, which does not see what atomics have left."""
    before = known & False
    if rows is not None:
        before = known & (tl.load(claims + row, mask=known, other=0, cache_modifier=".cg") != index)
    return before


@triton.jit
def tally(outcome, index, num_asked):
    """(16,): how often each outcome stands among these rows; at the end, lanes without a row."""
    return tl.histogram(tl.where(index < num_asked, outcome, 15), 16)


@triton.jit
def add_to_counters(counters, tallied):
    """Counters behind the first, which is the number of free blocks."""
    codes = tl.arange(0, 16)
    at = counters + 1 + codes
    is_code = codes < NUM_OUTCOMES
    tl.store(at, tl.load(at, mask=is_code, other=0) + tallied, mask=is_code)
