"""import_: whether tables can be what they say (`import_check`, a program for each), which rows become requests that
began elsewhere (`import_decide`, one program), and their tables (`import_apply`, by pieces).
"""

import triton
import triton.language as tl

from pagedkv.optimized.kernels.pool.rows import (
    BAD_LENGTH, BAD_TABLE, DUPLICATE, OK, SKIPPED, TABLE_FULL, WRONG_ROW, add_to_counters, claim_rows, read_rows,
    row_of, stood_before, tally, unclaim_rows,
)  # fmt: skip


@triton.jit(do_not_specialize=["given", "lengths", "num_holes", "given_stride", "width"])
def import_check_kernel(
    given,  # (num_asked, width) int32: the tables
    lengths,  # (num_asked,) int32 or int64
    num_holes,  # (num_asked,) int32 or int64, or None: no holes
    references,  # (num_blocks,) int32
    owned,  # (num_blocks,) int32
    bad,  # (num_asked,) int32
    given_stride,
    width,  # entries that a table may have
    most,  # positions of a row
    num_blocks,
    OWNING: tl.constexpr,
    WINDOWED: tl.constexpr,
    SINK_BLOCKS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Look through one table."""
    index = tl.program_id(0)
    length = tl.load(lengths + index).to(tl.int64)
    entries = (tl.minimum(tl.maximum(length, 0), most) + BLOCK_SIZE - 1) // BLOCK_SIZE
    holes = tl.zeros((), tl.int64)
    if num_holes is not None:
        holes = tl.load(num_holes + index).to(tl.int64)
    # A block that is not full yet is no hole: the next position goes there.
    most_holes = tl.maximum(length // BLOCK_SIZE - SINK_BLOCKS, 0) if WINDOWED else 0
    wrong = ((holes < 0) | (holes > most_holes)).to(tl.int32)
    for start in range(0, tl.minimum(entries, width), PIECE):
        entry = start + tl.arange(0, PIECE)
        is_hole = (entry >= SINK_BLOCKS) & (entry < SINK_BLOCKS + holes)
        is_entry = (entry < tl.minimum(entries, width)) & ~is_hole
        block = tl.load(given + index.to(tl.int64) * given_stride + entry, mask=is_entry, other=0)
        there = is_entry & (block >= 0) & (block < num_blocks)
        taken = tl.load(owned + block, mask=there, other=0) > 0
        if OWNING:  # what is free is the pool's to hand out
            taken = taken & (tl.load(references + block, mask=there, other=1) == 0)
        wrong = tl.maximum(wrong, tl.max((is_entry & (~there | taken)).to(tl.int32), 0))
    tl.store(bad + index, wrong)


@triton.jit(do_not_specialize=["rows", "lengths", "where", "num_asked", "width"])
def import_decide_kernel(
    rows,  # (num_asked,) int32 or int64
    lengths,  # (num_asked,) int32 or int64
    where,  # (num_asked,) bool, or None
    numbers,  # (3, num_rows) int32
    counters,  # int64
    claims,  # (num_rows,) int32
    bad,  # (num_asked,) int32: whether the table is
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
    tallied = tl.zeros((16,), tl.int32)
    for start in range(0, num_asked, CHUNK):
        index = start + tl.arange(0, CHUNK)
        is_asked = index < num_asked
        row, skipped, known = read_rows(rows, where, index, num_asked, num_rows)
        in_use = tl.load(numbers + row, mask=known, other=1) > 0
        length = tl.load(lengths + index, mask=is_asked, other=0).to(tl.int64)
        found = tl.where(tl.load(bad + index, mask=is_asked, other=0) > 0, BAD_TABLE, OK)
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
    SINK_BLOCKS: tl.constexpr,
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
        if num_holes is not None:
            gone = SINK_BLOCKS + tl.load(num_holes + index)
            block = tl.where((entry >= SINK_BLOCKS) & (entry < gone), -1, block)
        tl.store(tables + row * max_blocks + entry, block, mask=is_entry)
        is_block = (block >= 0) & (block < num_blocks)
        tl.atomic_add(references + block, 1, mask=is_block, sem="relaxed")
        if OWNING:
            tl.atomic_max(owned + block, 1, mask=is_block, sem="relaxed")
        else:
            before = tl.atomic_max(lent + block, 1, mask=is_block, sem="relaxed")
            tl.atomic_add(references + block, 1, mask=is_block & (before == 0), sem="relaxed")
