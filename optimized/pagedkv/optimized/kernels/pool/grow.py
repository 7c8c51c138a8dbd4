"""admit and append: who is served (`grow_decide`, one program), and what each row gets (`grow_apply`, a program each).

Rows are served in order, whole or not at all. That is a sum over the rows before, except where one of them is refused:
what it would have taken is left for those behind it, and a block that it would have left stays shared. So it goes by
rounds. A round takes all rows that were not decided yet for served, and finds what each needs. Rows that need more than
is left can never be served, since what is left only shrinks and needs only grow; of the others, as many as fit one
after another are. Where nothing is refused there is one round. Rows of one chunk are decided together, those of the
next one with what is left.
"""

import triton
import triton.language as tl

from pagedkv.optimized.device import state
from pagedkv.optimized.kernels.pool.rows import (
    BAD_LENGTH, CAPACITY, DUPLICATE, OK, SKIPPED, TABLE_FULL, UNSERVABLE, WRONG_ROW, add_to_counters, claim_rows,
    read_rows, row_of, stood_before, tally, unclaim_rows,
)  # fmt: skip

MOST = tl.constexpr(state.MOST)


@triton.jit
def copies_needed(written, index, shared, owners, writers, last_writer):
    """Which rows copy the block that they write into: all that share it but the last, if the others are all served."""
    is_last = tl.load(last_writer + written, mask=shared, other=-1, cache_modifier=".cg") == index
    leaving = tl.load(writers + written, mask=shared, other=0, cache_modifier=".cg")
    return shared & ~(is_last & (leaving == owners))


@triton.jit(do_not_specialize=["rows", "counts", "where", "num_asked", "limit"])
def grow_decide_kernel(
    rows,  # (num_asked,) int32 or int64
    counts,  # (num_asked,) int32 or int64, or None: one each
    where,  # (num_asked,) bool, or None
    numbers,  # (3, num_rows) int32
    tables,  # (num_rows, max_blocks) int32
    references,  # (num_blocks,) int32
    counters,  # int64
    claims,  # (num_rows,) int32
    writers,  # (num_blocks,) int32
    last_writer,  # (num_blocks,) int32
    outcome,  # (num_asked,) int32
    before,  # (num_asked,) int32: lengths before the call
    taken,  # (num_asked,) int32: blocks that the row takes
    written,  # (num_asked,) int32: the shared block that it writes into, -1: none
    top,  # (num_asked,) int64: the height of the free list before it takes them
    first_slot,  # (num_asked + 1,) int64: where its slots begin in the slot mapping; then where the last ones end
    num_asked,
    limit: tl.int64,  # type: ignore[valid-type]  # Triton's; rows whose slots would end past it are not served
    num_rows,
    num_blocks,
    max_blocks,
    ENTERING: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Decide about all rows of a call."""
    claim_rows(rows, where, claims, num_asked, num_rows, CHUNK)
    tallied = tl.zeros((16,), tl.int32)
    slots = tl.zeros((), tl.int64)
    for start in range(0, num_asked, CHUNK):
        index = start + tl.arange(0, CHUNK)
        is_asked = index < num_asked
        row, skipped, known = read_rows(rows, where, index, num_asked, num_rows)
        in_use = tl.load(numbers + row, mask=known, other=0) > 0
        length = tl.load(numbers + num_rows + row, mask=known, other=0)
        holes = tl.load(numbers + 2 * num_rows + row, mask=known, other=0)
        count = tl.full((CHUNK,), 1, tl.int64)
        if counts is not None:
            count = tl.load(counts + index, mask=is_asked, other=0).to(tl.int64)
        within = tl.minimum(tl.maximum(count, 0), MOST)  # so that no sum overflows
        padded = length + BLOCK_SIZE - 1
        blocks = padded // BLOCK_SIZE
        fresh = (padded % BLOCK_SIZE + within.to(tl.int32)) // BLOCK_SIZE  # 32 bits: dividing 64 takes many registers
        found = tl.full((CHUNK,), OK, tl.int32)
        found = tl.where(fresh > max_blocks - blocks, TABLE_FULL, found)
        found = tl.where(fresh > num_blocks - (blocks - holes), UNSERVABLE, found)
        asked_for = tl.where(is_asked, within, 0)
        end = slots + tl.cumsum(asked_for, 0)
        found = tl.where((count < 0) | (count > MOST) | (end > limit), BAD_LENGTH, found)
        wrong = in_use if ENTERING else ~in_use
        found = tl.where(wrong | ~known, WRONG_ROW, found)
        found = tl.where(stood_before(rows, claims, row, known, index), DUPLICATE, found)
        if rows is None and not ENTERING:
            skipped = skipped | ~in_use
        found = tl.where(skipped, SKIPPED, found)

        inside = (found == OK) & (blocks * BLOCK_SIZE > length) & (count > 0)
        old = tl.load(tables + row * max_blocks + blocks - 1, mask=inside, other=0)
        shared = inside & (tl.load(references + old, mask=inside, other=0) > 1)
        tl.atomic_add(writers + old, 1, mask=shared)
        tl.atomic_max(last_writer + old, index, mask=shared)
        tl.store(outcome + index, found, mask=is_asked)
        tl.store(before + index, length, mask=is_asked)
        tl.store(taken + index, fresh, mask=is_asked)
        tl.store(written + index, tl.where(shared, old, -1), mask=is_asked)
        tl.store(first_slot + index, end - asked_for, mask=is_asked)
        slots = tl.max(end, 0)
    tl.store(first_slot + num_asked, slots)
    tl.debug_barrier()

    left = tl.load(counters).to(tl.int32)  # which hold all needs, too: they are entries of the table
    for start in range(0, num_asked, CHUNK):
        index = start + tl.arange(0, CHUNK)
        is_asked = index < num_asked
        found = tl.load(outcome + index, mask=is_asked, other=SKIPPED)
        fresh = tl.load(taken + index, mask=is_asked, other=0)
        old = tl.load(written + index, mask=is_asked, other=-1)
        undecided = found == OK
        shared = old >= 0
        owners = tl.load(references + old, mask=shared, other=0)
        height = tl.zeros((CHUNK,), tl.int32)
        takes = tl.zeros((CHUNK,), tl.int32)
        while tl.sum(undecided.to(tl.int32), 0) > 0:
            need = fresh + copies_needed(old, index, shared, owners, writers, last_writer).to(tl.int32)
            hopeless = undecided & (need > left)
            tl.debug_barrier()  # all have read `writers`
            tl.atomic_add(writers + old, -1, mask=hopeless & shared)
            tl.debug_barrier()
            found = tl.where(hopeless, CAPACITY, found)
            undecided = undecided & ~hopeless
            if tl.sum(hopeless.to(tl.int32), 0) == 0:
                reach = tl.cumsum(tl.where(undecided, need, 0), 0)
                fitting = undecided & (reach <= left)
                height = tl.where(fitting, left - (reach - need), height)
                takes = tl.where(fitting, need, takes)
                left -= tl.sum(tl.where(fitting, need, 0), 0)
                undecided = undecided & ~fitting
        tl.store(outcome + index, found, mask=is_asked)
        tl.store(taken + index, takes, mask=is_asked)
        tl.store(top + index, height, mask=is_asked)
        tallied += tally(found, index, num_asked)
    tl.debug_barrier()

    for start in range(0, num_asked, CHUNK):
        index = start + tl.arange(0, CHUNK)
        old = tl.load(written + index, mask=index < num_asked, other=-1)
        tl.store(writers + old, 0, mask=old >= 0)
        tl.store(last_writer + old, -1, mask=old >= 0)
    unclaim_rows(rows, where, claims, num_asked, num_rows, CHUNK)
    tl.store(counters, left)
    add_to_counters(counters, tallied)


@triton.jit(do_not_specialize=["rows", "counts", "num_asked", "total"])
def grow_apply_kernel(
    rows,
    counts,
    numbers,
    tables,
    references,
    free_list,  # (num_blocks,) int32
    outcome,
    taken,
    written,
    top,
    first_slot,
    before,
    seq_lens,  # (num_asked,) int32
    copies,  # (num_asked, 2) int32
    slot_mapping,  # (total,) int64
    num_asked,
    total,
    num_rows,
    max_blocks,
    ENTERING: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Give one row its blocks and slots. The program behind the last row fills what is left of the slot mapping.

    A program is many threads, and no barrier lies between them here: none of them reads what another one writes.
    """
    index = tl.program_id(0)
    lanes = tl.arange(0, PIECE)
    if index == num_asked:
        for start in range(tl.load(first_slot + num_asked), total, PIECE):
            tl.store(slot_mapping + start + lanes, -1, mask=start + lanes < total)
    else:
        row = row_of(rows, index)
        length = tl.load(before + index)
        count = 1
        if counts is not None:
            count = tl.load(counts + index).to(tl.int64)
        blocks = (length + BLOCK_SIZE - 1) // BLOCK_SIZE
        after = (length + count + BLOCK_SIZE - 1) // BLOCK_SIZE
        served = tl.load(outcome + index) == OK
        height = tl.load(top + index)
        takes = tl.load(taken + index)
        first = after - takes  # of the table entries that are new
        for start in range(0, takes, PIECE):
            is_new = start + lanes < takes
            block = tl.load(free_list + height - 1 - start - lanes, mask=is_new, other=0)
            tl.store(tables + row * max_blocks + first + start + lanes, block, mask=is_new)
            tl.store(references + block, 1, mask=is_new)
        old = tl.load(written + index)
        copied = served & (old >= 0) & (first < blocks)
        new = tl.load(free_list + height - 1, mask=copied, other=-1)
        tl.store(copies + 2 * index, tl.where(copied, old, -1))
        tl.store(copies + 2 * index + 1, new)
        tl.atomic_add(references + old, -1, mask=copied, sem="relaxed")

        now = (length + count).to(tl.int32)
        tl.store(seq_lens + index, tl.where(served, now, 0))
        tl.store(numbers + num_rows + row, now, mask=served)
        if ENTERING:
            tl.store(numbers + row, 1, mask=served)
            tl.store(numbers + 2 * num_rows + row, 0, mask=served)

        origin = tl.load(first_slot + index)
        end = tl.minimum(tl.load(first_slot + index + 1), total)
        for start in range(origin, end, PIECE):
            at = start + lanes
            position = length + at - origin
            entry = position // BLOCK_SIZE
            is_slot = (at < end) & served
            is_new = is_slot & (entry >= first)
            own = tl.load(free_list + height - 1 - (entry - first), mask=is_new, other=0)
            kept = tl.load(tables + row * max_blocks + entry, mask=is_slot & ~is_new, other=0)
            slot = tl.where(is_new, own, kept).to(tl.int64) * BLOCK_SIZE + position % BLOCK_SIZE
            tl.store(slot_mapping + at, tl.where(is_slot, slot, -1), mask=at < end)
