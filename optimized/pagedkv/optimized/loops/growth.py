"""Growth of a request: slots for more positions, and tokens at them. See `pagedkv.optimized.growth`.

Writing starts at `start = min(reserved, length)`. Only the block that `start` falls into can have another owner or an
index entry: table entries after it were taken as lookahead, and neither a fork, nor a pin, nor the index ever got
them. So growth copies at most one block of each group.
"""

from typing import Final

from pagedkv.optimized.loops.arrays import MAX_INT32, Int32, Int64
from pagedkv.optimized.loops.blocks import drop_entry, release, take
from pagedkv.optimized.loops.compiled import compiled
from pagedkv.optimized.loops.memory import (
    BLOCKS, COPY_ON_WRITES, ENTRY, HELD, HOLES, LENGTH, NOTHING, REFERENCES, RESERVED, ROOM, TABLES_FIELD, UNKNOWN,
    USED, Memory, log,
)  # fmt: skip
from pagedkv.optimized.loops.rows import set_number, touch

GROWN: Final = 0
CAPACITY: Final = 1
IN_FLIGHT: Final = 2
UNSERVABLE: Final = 3
"""What became of a row: it has grown, or why it is as it was."""
TOO_NARROW: Final = -1
"""Nothing yet: tables or tokens must become wider first."""


@compiled
def blocks_for(m: Memory, row: int, end: int) -> int:
    """Blocks to be taken so that the positions from min(reserved, length) up to `end`, at most MAX_INT32, can be
    written: past the end of each table, and one for each that another one owns, too."""
    block_size, count = m.spelled.shape[1], m.numbers[BLOCKS, row]
    start = min(m.numbers[RESERVED, row], m.numbers[LENGTH, row])
    first, need = start // block_size, 0
    if end <= start:
        return need
    for group in range(m.tables.shape[0]):
        need += int(max(0, (end + block_size - 1) // block_size - count))
        need += 1 if first < count and m.blocks[m.tables[group, row, first], REFERENCES] > 1 else 0
    return need


@compiled
def refusal(m: Memory, row: int, end: int) -> int:
    """Why a row cannot grow to `end`, or GROWN."""
    if end > MAX_INT32:
        return UNSERVABLE
    block_size, num_groups, num_blocks = m.spelled.shape[1], m.tables.shape[0], len(m.blocks)
    total = num_groups * ((end + block_size - 1) // block_size)
    for group in range(num_groups):
        total -= m.numbers[HOLES + group, row]
    if total > num_blocks:
        return UNSERVABLE
    need, available = blocks_for(m, row, end), num_blocks - m.counters[USED] - m.counters[HELD]
    if need <= available:
        return GROWN
    return IN_FLIGHT if need <= available + m.counters[HELD] else CAPACITY


@compiled
def grow(m: Memory, row: int, end: int, num_tokens: int, copies: Int64, num_copies: int) -> int:
    """Make the positions from min(reserved, length) to `end` writable: a copy of a block with another owner, no index
    entry for one that will be written in place, fresh blocks past the table's end. There is room for `num_tokens`
    tokens then. Writes down group, source and destination of each copy, (capacity, 4), from number `num_copies` on.

    Returns GROWN, why not, or TOO_NARROW; in both other cases the row is as it was.
    """
    block_size, count = m.spelled.shape[1], m.numbers[BLOCKS, row]
    start = min(m.numbers[RESERVED, row], m.numbers[LENGTH, row])
    if end <= start:
        return GROWN
    refused = refusal(m, row, end)
    if refused:
        return refused
    first, total = start // block_size, max(count, (end + block_size - 1) // block_size)
    if total > m.tables.shape[2] or num_tokens > m.tokens.shape[1]:
        return TOO_NARROW
    for group in range(m.tables.shape[0] if first < count else 0):
        block = m.tables[group, row, first]
        if m.blocks[block, REFERENCES] > 1:
            copies[num_copies, 0], copies[num_copies, 1], copies[num_copies, 2] = group, block, take(m)
            log(m.counters, m.log, TABLES_FIELD, (group * m.tables.shape[1] + row) * m.tables.shape[2] + first, block)
            m.tables[group, row, first] = copies[num_copies, 2]
            release(m, block)
            touch(m, row, first)
            m.counters[COPY_ON_WRITES] += 1
            num_copies += 1
        elif m.blocks[block, ENTRY] != NOTHING:
            drop_entry(m, block)
    for group in range(m.tables.shape[0]):
        for column in range(count, total):
            m.tables[group, row, column] = take(m)
    if total > count:
        touch(m, row, count)
        set_number(m, BLOCKS, row, total)
    cover(m, row, end)
    return GROWN


@compiled
def cover(m: Memory, row: int, end: int) -> None:
    """A row that has just grown, or been appended to, has slots up to `end` at least. That also says its room: every
    block from the one of its start on is its own, and has no entry."""
    if end > m.numbers[RESERVED, row]:
        set_number(m, RESERVED, row, end)
    length = m.numbers[LENGTH, row]
    room = m.numbers[BLOCKS, row] * m.spelled.shape[1] - length
    set_number(m, ROOM, row, room if m.numbers[RESERVED, row] >= length else UNKNOWN)


@compiled
def append(m: Memory, row: int, tokens: Int32, first: int, count: int, copies: Int64, num_copies: int) -> int:
    """Extend a row by `count` of these tokens, from number `first` on. As `grow`."""
    length = m.numbers[LENGTH, row]
    end = length + count
    if m.numbers[ROOM, row] < count or end > m.tokens.shape[1]:
        status = grow(m, row, end, end, copies, num_copies)
        if status:
            return status
    for i in range(count):
        m.tokens[row, length + i] = tokens[first + i]
    set_number(m, LENGTH, row, end)
    cover(m, row, end)
    return GROWN


@compiled
def shown(m: Memory, rows: Int64, lengths: Int32) -> int:
    """Write down of each row the positions that have a token and a slot, (num_rows,). Returns the entries of the
    longest table."""
    width = 0
    for i in range(len(rows)):
        lengths[i] = min(m.numbers[LENGTH, rows[i]], m.numbers[RESERVED, rows[i]])
        width = max(width, m.numbers[BLOCKS, rows[i]])
    return width


@compiled
def slots(m: Memory, row: int, start: int, count: int, out: Int64, first: int) -> None:
    """Where `count` positions from `start` on lie, into out[group, first:]."""
    block_size = m.spelled.shape[1]
    for group in range(m.tables.shape[0]):
        for i in range(count):
            column, offset = (start + i) // block_size, (start + i) % block_size
            out[group, first + i] = m.tables[group, row, column] * block_size + offset
