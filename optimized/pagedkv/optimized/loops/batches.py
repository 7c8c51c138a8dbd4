"""Growth of a batch, as the manager calls it: row by row, in order, as if each were alone."""

from pagedkv.optimized.loops import growth
from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.loops.compiled import compiled
from pagedkv.optimized.loops.memory import COPY_ON_WRITES, LENGTH, RESERVED, Fields, Memory

ROWS_DONE, SLOTS_DONE, COPIES_DONE, REFUSED_ROWS, WIDTH = range(5)
"""Places in `progress`: how far a batch has got, in rows, slots and copies; how many rows were refused; and at its end
the entries of the longest table."""
GROUP, SOURCE, DESTINATION, COPY_ROW = range(4)
"""Columns of `copies`: of each copy-on-write the group, the blocks, and the row's place in the batch."""


@compiled
def append_each(
    fields: Fields,
    rows: Int64,
    tokens: Int32,
    counts: Int64,
    slots: Int64,
    lengths: Int32,
    statuses: Int64,
    copies: Int64,
    progress: Int64,
) -> bool:
    """counts[i] of the tokens to rows[i], in order; one to each if `counts` is empty. Writes down, of each row, what
    became of it and the positions that have a token and a slot then, (num_rows,), and where the tokens go, (num_groups,
    num_slots), -1 for those of a refused row. `copies`: room for one a row and group, (num_rows * num_groups, 4).

    Goes on from `progress`, which is zero at first. False if tables or tokens must become wider for the next row.
    """
    m = Memory(*fields)
    for i in range(progress[ROWS_DONE], len(rows)):
        row, first, count = rows[i], progress[SLOTS_DONE], counts[i] if len(counts) else 1
        start, copied = m.numbers[LENGTH, row], m.counters[COPY_ON_WRITES]
        status = growth.append(m, row, tokens, first, count, copies, progress[COPIES_DONE])
        if status == growth.TOO_NARROW:
            return False
        if status == growth.GROWN:
            growth.slots(m, row, start, count, slots, first)
        else:
            slots[:, first : first + count] = -1
        progress[SLOTS_DONE] += count
        note(m, i, status, copied, statuses, copies, progress)
    progress[WIDTH] = growth.shown(m, rows, lengths)
    return True


@compiled
def reserve_each(
    fields: Fields,
    rows: Int64,
    ends: Int64,
    starts: Int64,
    counts: Int64,
    lengths: Int32,
    statuses: Int64,
    copies: Int64,
    progress: Int64,
) -> bool:
    """Slots for the positions of rows[i] up to ends[i]. Writes down which ones, counts[i] from starts[i] on, none of
    a refused row. The rest as in `append_each`."""
    m = Memory(*fields)
    for i in range(progress[ROWS_DONE], len(rows)):
        row, copied = rows[i], m.counters[COPY_ON_WRITES]
        starts[i] = min(m.numbers[RESERVED, row], m.numbers[LENGTH, row])
        status = growth.grow(m, row, ends[i], 0, copies, progress[COPIES_DONE])
        if status == growth.TOO_NARROW:
            return False
        counts[i] = max(0, ends[i] - starts[i]) if status == growth.GROWN else 0
        progress[SLOTS_DONE] += counts[i]
        note(m, i, status, copied, statuses, copies, progress)
    progress[WIDTH] = growth.shown(m, rows, lengths)
    return True


@compiled
def note(m: Memory, i: int, status: int, copied: int, statuses: Int64, copies: Int64, progress: Int64) -> None:
    """Row number i is done. `copied`: copies that there had been before."""
    statuses[i] = status
    progress[REFUSED_ROWS] += status != growth.GROWN
    for _ in range(m.counters[COPY_ON_WRITES] - copied):
        copies[progress[COPIES_DONE], COPY_ROW] = i
        progress[COPIES_DONE] += 1
    progress[ROWS_DONE] += 1


@compiled
def slots_of(fields: Fields, rows: Int64, starts: Int64, counts: Int64, slots: Int64) -> None:
    """Where counts[i] positions of rows[i] from starts[i] on lie, (num_groups, counts.sum())."""
    m, first = Memory(*fields), 0
    for i in range(len(rows)):
        growth.slots(m, rows[i], starts[i], counts[i], slots, first)
        first += counts[i]


@compiled
def blocks_for(fields: Fields, row: int, end: int) -> int:
    """See `growth.blocks_for`."""
    return growth.blocks_for(Memory(*fields), row, end)
