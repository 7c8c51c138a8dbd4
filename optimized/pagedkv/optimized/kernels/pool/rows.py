"""What the kernels of the pool share: which rows a call is about, and how outcomes are counted.

`numbers` is (3, num_rows) int32: in use, length, holes. Outcomes are those of
`pagedkv.optimized.device.outcomes.RowOutcome`.
"""

import triton
import triton.language as tl

OK = tl.constexpr(0)
SKIPPED = tl.constexpr(1)
DUPLICATE = tl.constexpr(2)
WRONG_ROW = tl.constexpr(3)
BAD_LENGTH = tl.constexpr(4)
RELEASED = tl.constexpr(5)
UNSERVABLE = tl.constexpr(6)
TABLE_FULL = tl.constexpr(7)
CAPACITY = tl.constexpr(8)
NUM_OUTCOMES = tl.constexpr(9)
UNCLAIMED = tl.constexpr(2**31 - 1)


@triton.jit
def read_rows(rows, where, index, num_asked, num_rows):
    """The rows at `index` of a call, 64-bit; whether they are skipped; whether they are rows of the pool."""
    is_asked = index < num_asked
    row = tl.load(rows + index, mask=is_asked, other=-1).to(tl.int64)
    skipped = row < 0
    if where is not None:
        skipped = skipped | (tl.load(where + index, mask=is_asked, other=0) == 0)
    return row, skipped, (row < num_rows) & ~skipped


@triton.jit
def claim_rows(rows, where, claims, num_asked, num_rows, CHUNK: tl.constexpr):
    """Each row of the pool learns where in the call it stands first. One program; ends with a barrier."""
    for start in range(0, num_asked, CHUNK):
        index = start + tl.arange(0, CHUNK)
        row, _, known = read_rows(rows, where, index, num_asked, num_rows)
        tl.atomic_min(claims + row, index, mask=known)
    tl.debug_barrier()


@triton.jit
def unclaim_rows(rows, where, claims, num_asked, num_rows, CHUNK: tl.constexpr):
    """`claims` is as it was made. One program, after a barrier."""
    for start in range(0, num_asked, CHUNK):
        index = start + tl.arange(0, CHUNK)
        row, _, known = read_rows(rows, where, index, num_asked, num_rows)
        tl.store(claims + row, UNCLAIMED, mask=known)


@triton.jit
def is_first(claims, row, known, index):
    """Whether the row stands here for the first time. Past L1, which does not see what atomics have left."""
    return tl.load(claims + row, mask=known, other=0, cache_modifier=".cg") == index


@triton.jit
def tally(outcome, index, num_asked):
    """(16,): how often each outcome stands among these rows."""
    codes = tl.arange(0, 16)
    tallied = tl.zeros((16,), tl.int64)
    for code in tl.static_range(NUM_OUTCOMES):
        count = tl.sum(((outcome == code) & (index < num_asked)).to(tl.int32), 0)
        tallied = tl.where(codes == code, count, tallied)
    return tallied


@triton.jit
def add_to_counters(counters, tallied):
    """Counters behind the first, which is the number of free blocks."""
    codes = tl.arange(0, 16)
    at = counters + 1 + codes
    is_code = codes < NUM_OUTCOMES
    tl.store(at, tl.load(at, mask=is_code, other=0) + tallied, mask=is_code)
