"""fork: which children become their parents (`fork_decide`, one program), and the tables (`fork_apply`, by pieces)."""

import triton
import triton.language as tl

from pagedkv.optimized.kernels.pool.rows import (
    DUPLICATE, OK, SKIPPED, WRONG_ROW, add_to_counters, claim_rows, read_rows, stood_before, tally,
    unclaim_rows,
)  # fmt: skip


@triton.jit(do_not_specialize=["parents", "children", "where", "num_asked"])
def fork_decide_kernel(
    parents,  # (num_asked,) int32 or int64
    children,  # (num_asked,) int32 or int64
    where,  # (num_asked,) bool, or None
    numbers,  # (3, num_rows) int32
    counters,  # int64
    claims,  # (num_rows,) int32
    outcome,  # (num_asked,) int32
    num_asked,
    num_rows,
    CHUNK: tl.constexpr,
):
    """Decide about all rows of a call."""
    claim_rows(children, where, claims, num_asked, num_rows, CHUNK)
    tallied = tl.zeros((16,), tl.int32)
    for start in range(0, num_asked, CHUNK):
        index = start + tl.arange(0, CHUNK)
        is_asked = index < num_asked
        child, skipped, known = read_rows(children, where, index, num_asked, num_rows)
        parent = tl.load(parents + index, mask=is_asked, other=-1).to(tl.int64)
        is_row = (parent >= 0) & (parent < num_rows)
        taken = tl.load(numbers + child, mask=known, other=1) > 0
        missing = tl.load(numbers + parent, mask=is_row, other=0) == 0
        found = tl.full((CHUNK,), OK, tl.int32)
        found = tl.where(taken | missing, WRONG_ROW, found)
        found = tl.where(stood_before(children, claims, child, known, index), DUPLICATE, found)
        found = tl.where(skipped, SKIPPED, found)
        tl.store(outcome + index, found, mask=is_asked)
        tallied += tally(found, index, num_asked)
    tl.debug_barrier()
    unclaim_rows(children, where, claims, num_asked, num_rows, CHUNK)
    add_to_counters(counters, tallied)


@triton.jit(do_not_specialize=["parents", "children"])
def fork_apply_kernel(
    parents,
    children,
    numbers,
    tables,  # (num_rows, max_blocks) int32
    references,  # (num_blocks,) int32
    outcome,
    max_blocks,
    num_rows,
    num_blocks,
    BLOCK_SIZE: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Copy PIECE table entries of one row; the first piece its numbers."""
    index = tl.program_id(0)
    if tl.load(outcome + index) == OK:
        parent, child = tl.load(parents + index).to(tl.int64), tl.load(children + index).to(tl.int64)
        length = tl.load(numbers + num_rows + parent)
        if tl.program_id(1) == 0:
            tl.store(numbers + child, 1)
            tl.store(numbers + num_rows + child, length)
            tl.store(numbers + 2 * num_rows + child, tl.load(numbers + 2 * num_rows + parent))
        entry = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
        is_entry = entry < (length + BLOCK_SIZE - 1) // BLOCK_SIZE
        block = tl.load(tables + parent * max_blocks + entry, mask=is_entry, other=-1)
        tl.store(tables + child * max_blocks + entry, block, mask=is_entry)
        tl.atomic_add(references + block, 1, mask=(block >= 0) & (block < num_blocks), sem="relaxed")
