"""free, truncate, release_window, hand_over: a range of each row's table entries is given back, in five launches (six).

`release_decide` (one program) finds the ranges. `release_drop` takes the references away, and finds of each block the
last table entry of the call that gives it back. `release_mark` (after all references have gone) leaves in each of
those entries what is to be done for its block; `release_scan` (one program) finds places on the free list for it, and
`release_push` does it. To hand over, `release_disown` runs before the drop. Disown, drop, mark and push have a program
for each row.
"""

import triton
import triton.language as tl

from pagedkv.optimized.kernels.pool.rows import (
    BAD_LENGTH, DUPLICATE, OK, RELEASED, SKIPPED, WRONG_ROW, add_to_counters, claim_rows, read_rows, row_of,
    stood_before, tally, unclaim_rows,
)  # fmt: skip

FREE = tl.constexpr(0)
TRUNCATE = tl.constexpr(1)
WINDOW = tl.constexpr(2)


@triton.jit(do_not_specialize=["rows", "lengths", "computed", "where", "num_asked"])
def release_decide_kernel(
    rows,  # (num_asked,) int32 or int64
    lengths,  # (num_asked,) int32 or int64: of TRUNCATE, else None
    computed,  # (num_asked,) int32 or int64, or None: all
    where,  # (num_asked,) bool, or None
    numbers,  # (3, num_rows) int32
    counters,  # int64
    claims,  # (num_rows,) int32
    outcome,  # (num_asked,) int32
    first,  # (num_asked,) int32: of the table entries to give back
    end,  # (num_asked,) int32: behind the last of them
    num_asked,
    num_rows,
    WHAT: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW_SIZE: tl.constexpr,  # 0: none
    KEPT: tl.constexpr,  # positions before the end of what is computed that the window keeps
    SINK_BLOCKS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Decide about all rows of a call."""
    claim_rows(rows, where, claims, num_asked, num_rows, CHUNK)
    tallied = tl.zeros((16,), tl.int32)
    for start in range(0, num_asked, CHUNK):
        index = start + tl.arange(0, CHUNK)
        is_asked = index < num_asked
        row, skipped, known = read_rows(rows, where, index, num_asked, num_rows)
        in_use = tl.load(numbers + row, mask=known, other=0) > 0
        length = tl.load(numbers + num_rows + row, mask=known, other=0).to(tl.int64)
        holes = tl.load(numbers + 2 * num_rows + row, mask=known, other=0)
        written = length
        if computed is not None:
            written = tl.load(computed + index, mask=is_asked, other=0).to(tl.int64)

        found = tl.full((CHUNK,), OK, tl.int32)
        low = tl.zeros((CHUNK,), tl.int64)
        high = (length + BLOCK_SIZE - 1) // BLOCK_SIZE
        if WHAT == TRUNCATE:
            shorter = tl.load(lengths + index, mask=is_asked, other=0).to(tl.int64)
            low = (shorter + BLOCK_SIZE - 1) // BLOCK_SIZE
            if WINDOW_SIZE > 0:
                seen = tl.maximum(tl.minimum(shorter, written) - (WINDOW_SIZE - 1), 0) // BLOCK_SIZE
                found = tl.where((holes > 0) & (seen < holes + SINK_BLOCKS), RELEASED, found)
            bad = (shorter < 0) | (shorter > length) | (written < 0) | (written > length)
            found = tl.where(bad, BAD_LENGTH, found)
        if WHAT == WINDOW:
            low = (holes + SINK_BLOCKS).to(tl.int64)
            dead = tl.maximum(written - KEPT, 0) // BLOCK_SIZE
            high = tl.maximum(dead, low) if WINDOW_SIZE > 0 else low
            found = tl.where((written < 0) | (written > length), BAD_LENGTH, found)
        found = tl.where(~in_use, WRONG_ROW, found)
        found = tl.where(stood_before(rows, claims, row, known, index), DUPLICATE, found)
        if rows is None:
            skipped = skipped | ~in_use
        found = tl.where(skipped, SKIPPED, found)
        tl.store(outcome + index, found, mask=is_asked)
        tl.store(first + index, low.to(tl.int32), mask=is_asked)
        tl.store(end + index, tl.where(found == OK, high, low).to(tl.int32), mask=is_asked)
        tallied += tally(found, index, num_asked)
    tl.debug_barrier()
    unclaim_rows(rows, where, claims, num_asked, num_rows, CHUNK)
    add_to_counters(counters, tallied)


@triton.jit(do_not_specialize=["rows"])
def release_disown_kernel(
    rows,
    tables,  # (num_rows, max_blocks) int32
    references,  # (num_blocks,) int32
    owned,  # (num_blocks,) int32
    first,
    end,
    max_blocks,
    num_blocks,
    PIECE: tl.constexpr,
):
    """The blocks that only this row has are not the pool's own any more: they go with it."""
    index = tl.program_id(0)
    low, high = tl.load(first + index), tl.load(end + index)
    row = row_of(rows, index)
    for start in range(low, high, PIECE):
        entry = start + tl.arange(0, PIECE)
        block = tl.load(tables + row * max_blocks + entry, mask=entry < high, other=-1)
        is_block = (block >= 0) & (block < num_blocks)
        alone = is_block & (tl.load(references + block, mask=is_block, other=0) == 1)
        tl.store(owned + block, 0, mask=alone)


@triton.jit(do_not_specialize=["rows"])
def release_drop_kernel(
    rows,
    tables,  # (num_rows, max_blocks) int32
    references,  # (num_blocks,) int32
    last_release,  # (num_blocks,) int32
    first,
    end,
    max_blocks,
    num_blocks,
    PIECE: tl.constexpr,
):
    """Take the references of one row away."""
    index = tl.program_id(0)
    low, high = tl.load(first + index), tl.load(end + index)
    row = row_of(rows, index)
    for start in range(low, high, PIECE):
        entry = start + tl.arange(0, PIECE)
        block = tl.load(tables + row * max_blocks + entry, mask=entry < high, other=-1)
        is_block = (block >= 0) & (block < num_blocks)
        tl.atomic_add(references + block, -1, mask=is_block, sem="relaxed")
        tl.atomic_max(last_release + block, index * max_blocks + entry, mask=is_block, sem="relaxed")


@triton.jit(do_not_specialize=["rows"])
def release_mark_kernel(
    rows,
    tables,
    references,
    owned,  # (num_blocks,) int32: whether a block is the pool's own
    last_release,
    first,
    end,
    freed,  # (num_asked,) int32: how many blocks of each row go to the free list
    max_blocks,
    num_blocks,
    PIECE: tl.constexpr,
):
    """Leave in each entry of one row: the block, if it goes to the free list and the entry stands for it; -2 - block,
    if it does not and the entry stands for it; -1 otherwise."""
    index = tl.program_id(0)
    low, high = tl.load(first + index), tl.load(end + index)
    row = row_of(rows, index)
    count = tl.zeros((), tl.int32)
    for start in range(low, high, PIECE):
        entry = start + tl.arange(0, PIECE)
        at = tables + row * max_blocks + entry
        block = tl.load(at, mask=entry < high, other=-1)
        is_block = (block >= 0) & (block < num_blocks)
        stands = is_block & (tl.load(last_release + block, mask=is_block, other=-2) == index * max_blocks + entry)
        is_free = stands & (tl.load(references + block, mask=is_block, other=1) == 0)
        is_free = is_free & (tl.load(owned + block, mask=is_block, other=0) > 0)
        tl.debug_barrier()  # all have read the entries
        tl.store(at, tl.where(is_free, block, tl.where(stands, -2 - block, -1)), mask=entry < high)
        count += tl.sum(is_free.to(tl.int32), 0)
    tl.store(freed + index, count)


@triton.jit(do_not_specialize=["num_asked"])
def release_scan_kernel(
    counters,
    freed,
    place,  # (num_asked,) int64: on the free list, of the first block of each row
    num_asked,
    num_blocks,
    CHUNK: tl.constexpr,
):
    """Where each row's blocks go on the free list."""
    height = tl.load(counters)
    for start in range(0, num_asked, CHUNK):
        index = start + tl.arange(0, CHUNK)
        count = tl.load(freed + index, mask=index < num_asked, other=0).to(tl.int64)
        tl.store(place + index, height + tl.cumsum(count, 0) - count, mask=index < num_asked)
        height += tl.sum(count, 0)
    tl.store(counters, tl.minimum(height, num_blocks))  # more would be a block that was given twice


@triton.jit(do_not_specialize=["rows", "lengths"])
def release_push_kernel(
    rows,
    lengths,
    numbers,
    tables,
    free_list,  # (num_blocks,) int32
    last_release,
    outcome,
    first,
    end,
    place,
    max_blocks,
    num_rows,
    num_blocks,
    WHAT: tl.constexpr,
    SINK_BLOCKS: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Push the blocks of one row, and leave the row as it is to be."""
    index = tl.program_id(0)
    low, high = tl.load(first + index), tl.load(end + index)
    row = row_of(rows, index)
    to = tl.load(place + index)
    for start in range(low, high, PIECE):
        entry = start + tl.arange(0, PIECE)
        at = tables + row * max_blocks + entry
        mark = tl.load(at, mask=entry < high, other=-1)
        is_free = mark >= 0
        kept = mark <= -2
        order = tl.cumsum(is_free.to(tl.int32), 0)
        tl.store(free_list + to + order - 1, mark, mask=is_free & (to + order <= num_blocks))
        tl.store(last_release + tl.where(is_free, mark, -2 - mark), -1, mask=is_free | kept)
        tl.debug_barrier()  # all have read the entries
        tl.store(at, -1 if WHAT == WINDOW else 0, mask=entry < high)
        to += tl.sum(is_free.to(tl.int32), 0)
    served = tl.load(outcome + index) == OK
    if WHAT == FREE:
        tl.store(numbers + row, 0, mask=served)
        tl.store(numbers + num_rows + row, 0, mask=served)
        tl.store(numbers + 2 * num_rows + row, 0, mask=served)
    if WHAT == TRUNCATE:
        tl.store(numbers + num_rows + row, tl.load(lengths + index).to(tl.int32), mask=served)
    if WHAT == WINDOW:
        tl.store(numbers + 2 * num_rows + row, high - SINK_BLOCKS, mask=served)
