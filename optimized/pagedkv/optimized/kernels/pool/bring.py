"""import_: which rows become requests that began elsewhere (`import_decide`, one program), and their tables
(`import_apply`, by pieces).
"""

import triton
import triton.language as tl

from pagedkv.optimized.kernels.pool.rows import (
    BAD_LENGTH, DUPLICATE, OK, SKIPPED, TABLE_FULL, WRONG_ROW, add_to_counters, claim_rows, read_rows, row_of,
    stood_before, tally, unclaim_rows,
)  # fmt: skip


@triton.jit(do_not_specialize=["rows", "lengths", "where", "num_asked", "width"])
def import_decide_kernel(
    rows,  # (num_asked,) int32 or int64
    lengths,  # (num_asked,) int32 or int64
    where,  # (num_asked,) bool, or None
    numbers,  # (3, num_rows) int32
    counters,  # int64
    claims,  # (num_rows,) int32
    outcome,  # (num_asked,) int32
    num_asked,
    num_rows,
    width,  # entries that a table may have
    most,  # positions of a row
    BLOCK_SIZE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Decide about all rows of a call."""
    claim_rows(rows, where, claims, num_asked, num_rows, CHUNK)
    tallied = tl.zeros((16,), tl.int64)
    for start in range(0, num_asked, CHUNK):
        index = start + tl.arange(0, CHUNK)
        is_asked = index < num_asked
        row, skipped, known = read_rows(rows, where, index, num_asked, num_rows)
        in_use = tl.load(numbers + row, mask=known, other=1) > 0
        length = tl.load(lengths + index, mask=is_asked, other=0).to(tl.int64)
        found = tl.full((CHUNK,), OK, tl.int32)
        found = tl.where((length + BLOCK_SIZE - 1) // BLOCK_SIZE > width, TABLE_FULL, found)
        found = tl.where((length < 0) | (length > most), BAD_LENGTH, found)
        found = tl.where(in_use, WRONG_ROW, found)
        found = tl.where(stood_before(rows, claims, row, known, index), DUPLICATE, found)
        found = tl.where(skipped, SKIPPED, found)
        tl.store(outcome + index, found, mask=is_asked)
        tallied += tally(found, index, num_asked)
    tl.debug_barrier()
    unclaim_rows(rows, where, claims, num_asked, num_rows, CHUNK)
    add_to_counters(counters, tallied)


@triton.jit(do_not_specialize=["rows", "given", "lengths", "num_holes", "given_stride"])
def import_apply_kernel(
    rows,
    given,  # (num_asked, width) int32: the tables
    lengths,
    num_holes,  # (num_asked,) int32 or int64, or None: no holes
    numbers,
    tables,  # (num_rows, max_blocks) int32
    references,  # (num_blocks,) int32
    owned,  # (num_blocks,) int32
    lent,  # (num_blocks,) int32
    outcome,
    given_stride,
    num_rows,
    num_blocks,
    max_blocks,
    OWNING: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Enter PIECE table entries of one row; the first piece its numbers."""
    index = tl.program_id(0)
    if tl.load(outcome + index) == OK:
        row, length = row_of(rows, index), tl.load(lengths + index).to(tl.int32)
        if tl.program_id(1) == 0:
            tl.store(numbers + row, 1)
            tl.store(numbers + num_rows + row, length)
            holes = 0
            if num_holes is not None:
                holes = tl.load(num_holes + index).to(tl.int32)
            tl.store(numbers + 2 * num_rows + row, holes)
        entry = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
        is_entry = entry < (length + BLOCK_SIZE - 1) // BLOCK_SIZE
        block = tl.load(given + index.to(tl.int64) * given_stride + entry, mask=is_entry, other=-1)
        tl.store(tables + row * max_blocks + entry, block, mask=is_entry)
        is_block = (block >= 0) & (block < num_blocks)
        tl.atomic_add(references + block, 1, mask=is_block, sem="relaxed")
        if OWNING:
            tl.atomic_max(owned + block, 1, mask=is_block, sem="relaxed")
        else:
            before = tl.atomic_max(lent + block, 1, mask=is_block, sem="relaxed")
            tl.atomic_add(references + block, 1, mask=is_block & (before == 0), sem="relaxed")
