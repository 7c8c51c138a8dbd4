"""What the manager calls: each function here does all that one operation, or a large part of one, does to arrays.
`batches` has those for growth. The first argument are the fields of a `Memory`.
"""

from pagedkv.optimized.loops import blocks, memory, paths
from pagedkv.optimized.loops import rows as life
from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.loops.compiled import compiled
from pagedkv.optimized.loops.memory import (
    BEFORE, BLOCKS, CLEAN, COMPUTED, DIRTY, DIRTY_STACK, ENTRY, HOLE, LENGTH, NEXT_FREE, NOTHING, NUM_DIRTY,
    OLDEST_HELD, OLDEST_IDLE, RESERVED, RESIDENT, STATE, UNSETTLED, USED_INDEXED, Fields, Memory,
)  # fmt: skip


@compiled
def commit_each(fields: Fields, rows: Int64, computed: Int64, start: int, known: int) -> int:
    """The KV of the positions of rows[i] below computed[i] is written, from row number `start` on. `known`: what is
    known of the path of the first block of that row, see `rows.commit`.

    Returns the number of rows if all is done. Else the number of the row that cannot be finished, see `rows.commit`;
    or ~i for the first row i that would go back, or pass what is reserved.
    """
    m = Memory(*fields)
    for i in range(start, len(rows)):
        row = rows[i]
        last = min(m.numbers[RESERVED, row], m.numbers[LENGTH, row])
        if not m.numbers[COMPUTED, row] <= computed[i] <= last:
            return ~i
        if not life.commit(m, row, computed[i], known):
            return i
        known = NOTHING
    return len(rows)


@compiled
def commit_one(fields: Fields, row: int, computed: int, known: int) -> bool:
    """The same for one row, checked already; whether it is done."""
    return life.commit(Memory(*fields), row, computed, known)


@compiled
def seat(fields: Fields, row: int, length: int, reserved: int, path: int, nodes: Int64) -> None:
    """See `rows.seat`."""
    life.seat(Memory(*fields), row, length, reserved, path, nodes)


@compiled
def fork(fields: Fields, parent: int, row: int) -> None:
    """See `rows.fork`."""
    life.fork(Memory(*fields), parent, row)


@compiled
def are_tokens(tokens: Int32) -> bool:
    """No token is negative."""
    every = 0
    for i in range(len(tokens)):
        every |= tokens[i]
    return every >= 0


@compiled
def are_within(values: Int64, least: int, most: int) -> bool:
    """No value is smaller or larger."""
    lowest, highest = least, most
    for i in range(len(values)):
        lowest, highest = min(lowest, values[i]), max(highest, values[i])
    return lowest == least and highest == most


@compiled
def stranger(fields: Fields, rows: Int64, preempted: bool) -> int:
    """The place of the first of these that is no row of a resident request, or, if `preempted`, of any; -1 if there is
    none."""
    numbers = Memory(*fields).numbers
    for i in range(len(rows)):
        known = 0 <= rows[i] < numbers.shape[1] and numbers[STATE, rows[i]] != 0
        if not known or not (preempted or numbers[STATE, rows[i]] == RESIDENT):
            return i
    return -1


@compiled
def free_each(fields: Fields, rows: Int64) -> None:
    """These distinct rows, in this order, are nobody's any more. They have nothing in swap space."""
    m = Memory(*fields)
    for i in range(len(rows)):
        life.free(m, rows[i])


@compiled
def free_one(fields: Fields, row: int) -> bool:
    """The same for one; whether anything is to be settled."""
    m = Memory(*fields)
    life.free(m, row)
    return m.counters[UNSETTLED] > 0


@compiled
def release_table(fields: Fields, row: int, keep: int) -> None:
    """See `rows.release_table`."""
    life.release_table(Memory(*fields), row, keep)


@compiled
def touch(fields: Fields, row: int, column: int) -> None:
    """See `rows.touch`."""
    life.touch(Memory(*fields), row, column)


@compiled
def take(fields: Fields, out: Int64) -> None:
    """Hand out as many available blocks as `out` has room for, with one reference each."""
    m = Memory(*fields)
    for i in range(len(out)):
        out[i] = blocks.take(m)


@compiled
def acquire(fields: Fields, owned: Int64) -> None:
    """One more reference to each of these used or idle blocks."""
    m = Memory(*fields)
    for i in range(len(owned)):
        blocks.acquire(m, owned[i])


@compiled
def release(fields: Fields, owned: Int64) -> None:
    """One reference fewer for each of these blocks, in this order."""
    m = Memory(*fields)
    for i in range(len(owned)):
        blocks.release(m, owned[i])


@compiled
def drop_entries(fields: Fields, entered: Int64) -> None:
    """See `blocks.drop_entry`."""
    m = Memory(*fields)
    for i in range(len(entered)):
        blocks.drop_entry(m, entered[i])


@compiled
def evict(fields: Fields, count: int) -> None:
    """Drop the entries of the `count` longest idle blocks. Those that are held stay so, the others are free."""
    m = Memory(*fields)
    for _ in range(count):
        block = blocks.evict(m)
        if not blocks.is_held(m, block):
            blocks.push_free(m, block)


@compiled
def come_free(fields: Fields, oldest: int) -> None:
    """See `blocks.come_free`."""
    blocks.come_free(Memory(*fields), oldest)


@compiled
def free(fields: Fields, out: Int64) -> None:
    """The free blocks that are not held, as many as `out` has room for, the next to be taken first."""
    m = Memory(*fields)
    blocks.chain(m.blocks, m.counters[NEXT_FREE], out)


@compiled
def idle(fields: Fields, out: Int64) -> None:
    """The idle blocks, as many as `out` has room for, the longest idle first."""
    m = Memory(*fields)
    blocks.chain(m.blocks, m.counters[OLDEST_IDLE], out)


@compiled
def held(fields: Fields, out: Int64) -> None:
    """The held blocks, in the order in which they come free."""
    m = Memory(*fields)
    blocks.chain(m.holds, m.counters[OLDEST_HELD], out)


@compiled
def follow(fields: Fields, start: int, tokens: Int32, out: Int64) -> int:
    """See `paths.follow`."""
    return paths.follow(Memory(*fields), start, tokens, out)


@compiled
def hit(fields: Fields, nodes: Int64) -> tuple[int, int, int, int]:
    """How many of these blocks of one path may be hit at once; and of those the ones that are used, the ones that are
    held, and the holes that windows make in them."""
    m = Memory(*fields)
    size = life.longest_hit(m, nodes)
    owned, waiting, holes = life.owned_of(m, nodes, size)
    return size, owned, waiting, holes


@compiled
def use(fields: Fields, node: int) -> None:
    """One user more of a path."""
    paths.use(Memory(*fields), node, 1)


@compiled
def drop(fields: Fields, node: int) -> None:
    """See `paths.drop`."""
    paths.drop(Memory(*fields), node)


@compiled
def count_updates(fields: Fields) -> int:
    """Table entries of residents that have changed since the last plan."""
    m, count = Memory(*fields), 0
    for i in range(m.counters[NUM_DIRTY]):
        row = m.numbers[DIRTY_STACK, i]
        if m.numbers[STATE, row] == RESIDENT:
            count += max(0, m.numbers[BLOCKS, row] - m.numbers[DIRTY, row])
    return count


@compiled
def updates(fields: Fields, rows: Int32, columns: Int32, values: Int32) -> None:
    """Write down these entries, (count,) twice and (num_groups, count). From now on nothing has changed."""
    m, k = Memory(*fields), 0
    for i in range(m.counters[NUM_DIRTY]):
        row = m.numbers[DIRTY_STACK, i]
        if m.numbers[STATE, row] == RESIDENT:
            for column in range(m.numbers[DIRTY, row], m.numbers[BLOCKS, row]):
                rows[k], columns[k] = row, column
                for group in range(m.tables.shape[0]):
                    values[group, k] = m.tables[group, row, column]
                k += 1
        life.set_number(m, DIRTY, row, CLEAN)
    m.counters[NUM_DIRTY] = 0


@compiled
def show(shown: Int32, width: int, batch: Int32, rows: Int32, columns: Int32, values: Int32, scratch: Int32) -> bool:
    """Write changed entries into the tables of a batch, of which only the first columns are of use, as far as they are
    in it. False, having written nothing, if a row is in the batch twice. `scratch`: a place for each row of the
    manager, with anything."""
    for i in range(len(batch)):
        scratch[batch[i]] = i
    for i in range(len(batch)):
        if scratch[batch[i]] != i:
            return False
    for k in range(len(rows)):
        place = scratch[rows[k]]
        if 0 <= place < len(batch) and batch[place] == rows[k] and columns[k] < width:
            shown[place, columns[k]] = values[k]
    return True


@compiled
def written(fields: Fields) -> int:
    """Slots of used blocks that hold computed KV: all of those that can be found, and of each of the others, in tables,
    as many as the owner has filled that has filled it most.

    How much that is so far stands in column BEFORE, which means nothing for a used block.
    """
    m = Memory(*fields)
    total = m.counters[USED_INDEXED] * m.spelled.shape[1]
    for again in range(2):
        for row in range(m.numbers.shape[1]):
            for group in range(m.tables.shape[0] if m.numbers[STATE, row] == RESIDENT else 0):
                for column in range(m.numbers[BLOCKS, row]):
                    block = m.tables[group, row, column]
                    if block != HOLE and m.blocks[block, ENTRY] == NOTHING:
                        total += life.fill(m, row, column, block) if again else 0
                        m.blocks[block, BEFORE] *= again
    return total


@compiled
def undo(fields: Fields, start: int) -> None:
    """See `memory.undo`."""
    memory.undo(Memory(*fields), start)


@compiled
def make_root(fields: Fields) -> int:
    """An empty path, which nobody uses yet and nobody finds."""
    return paths.make_root(Memory(*fields))
