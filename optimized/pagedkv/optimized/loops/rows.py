"""The life of a request: seated, appended to, committed, freed. See `pagedkv.optimized.rows`."""

from pagedkv.optimized.loops.arrays import Int64
from pagedkv.optimized.loops.blocks import acquire, is_held, release, take
from pagedkv.optimized.loops.compiled import compiled, inlined
from pagedkv.optimized.loops.memory import (
    BEFORE, BLOCKS, CLEAN, COMPUTED, DIRTY, DIRTY_STACK, HOLDERS, HOLE, HOLES, LENGTH, NOTHING, NUM_DIRTY,
    NUM_NODES_UNUSED, NUM_ROWS_UNUSED, NUMBERS_FIELD, OTHERS, PATH, REFERENCES, RESERVED, RESIDENT, RESIDENTS, ROOM,
    ROW_STACK, STATE, TABLES_FIELD, UNKNOWN, Memory, log, put, sinks_of, visible_in,
)  # fmt: skip
from pagedkv.optimized.loops.paths import child_of, drop, make, publish, use


@inlined
def set_number(m: Memory, line: int, row: int, value: int) -> None:
    """One number of a row."""
    put(m, NUMBERS_FIELD, m.numbers, line, row, value)


@compiled
def touch(m: Memory, row: int, column: int) -> None:
    """Entries of this row's tables from this column on have changed."""
    if m.numbers[DIRTY, row] == CLEAN:
        set_number(m, DIRTY_STACK, m.counters[NUM_DIRTY], row)
        m.counters[NUM_DIRTY] += 1
    if column < m.numbers[DIRTY, row]:
        set_number(m, DIRTY, row, column)


@compiled
def holes_of(m: Memory, group: int, computed: int) -> int:
    """Blocks after the sinks that hold only dead positions once `computed` positions are written."""
    visible = visible_in(m, group)
    if visible == NOTHING:
        return 0
    return int(max(0, (computed - visible) // m.spelled.shape[1] - sinks_of(m, group)))


@compiled
def first_missing(m: Memory, nodes: Int64, group: int, start: int, stop: int) -> int:
    """The number of the first of nodes[start:stop], (num_blocks,), that no block holds in a group; or `stop`."""
    for i in range(start, stop):
        if m.links[nodes[i], HOLDERS + group] == NOTHING:
            return i
    return stop


@compiled
def longest_hit(m: Memory, nodes: Int64) -> int:
    """How many of these blocks of one path, (num_blocks,), may be hit at once: as many as are good for all groups.

    A group of full attention needs all of them; one with a window its sinks and what its window will look at. A group
    that is alone needs all of them in any case: that is what a hit is in the specification.
    """
    longest, alone = len(nodes), m.tables.shape[0] == 1
    for group in range(m.tables.shape[0]):
        if alone or visible_in(m, group) == NOTHING:
            longest = first_missing(m, nodes, group, 0, longest)
    while not alone:
        shorter = longest
        for group in range(m.tables.shape[0]):
            kept = min(sinks_of(m, group), longest)
            looked_at = min(kept + holes_of(m, group, longest * m.spelled.shape[1]), longest)
            if visible_in(m, group) != NOTHING:
                missing = first_missing(m, nodes, group, 0, kept)
                shorter = min(shorter, missing if missing < kept else longest)
                shorter = min(shorter, first_missing(m, nodes, group, looked_at, longest))
        if shorter == longest:
            break
        longest = shorter  # and no longer than to what is missing, since a shorter hit has fewer holes
    return longest


@compiled
def seat(m: Memory, row: int, length: int, reserved: int, path: int, nodes: Int64) -> None:
    """Give a row of `length` tokens a table for `reserved` positions, the first of them those of a hit, and make it
    resident. `path`: what it holds then, or NOTHING; `nodes`, (num_blocks,): the paths of the hit. That one is acquired
    before blocks are taken, so that nothing of it is evicted."""
    block_size = m.spelled.shape[1]
    cached, count = len(nodes) * block_size, (reserved + block_size - 1) // block_size
    if path != NOTHING:
        use(m, path, 1)
    for group in range(m.tables.shape[0]):
        holes, sinks = holes_of(m, group, cached), sinks_of(m, group)
        set_number(m, HOLES + group, row, holes)
        for i in range(len(nodes)):
            if sinks <= i < sinks + holes:
                m.tables[group, row, i] = HOLE
            else:
                m.tables[group, row, i] = m.links[nodes[i], HOLDERS + group]
                acquire(m, m.tables[group, row, i])
    for group in range(m.tables.shape[0]):
        for i in range(len(nodes), count):
            m.tables[group, row, i] = take(m)
    room = count * block_size - length if reserved >= length else UNKNOWN
    enlist(m, row, length, reserved, cached, count, path, room)


@compiled
def fork(m: Memory, parent: int, row: int) -> None:
    """A new row is what the parent is, but for lookahead: it owns the same blocks, the partly filled last one and the
    holes included. The parent is computed to its end, and its next write will copy."""
    block_size, length, path = m.spelled.shape[1], m.numbers[LENGTH, parent], m.numbers[PATH, parent]
    count = (length + block_size - 1) // block_size
    for i in range(length):
        m.tokens[row, i] = m.tokens[parent, i]
    for group in range(m.tables.shape[0]):
        for column in range(count):
            block = m.tables[group, parent, column]
            m.tables[group, row, column] = block
            if block != HOLE:
                acquire(m, block)
        set_number(m, HOLES + group, row, m.numbers[HOLES + group, parent])
    if path != NOTHING:
        use(m, path, 1)
    set_number(m, ROOM, parent, UNKNOWN)
    enlist(m, row, length, length, length, count, path, UNKNOWN)


@compiled
def enlist(m: Memory, row: int, length: int, reserved: int, computed: int, count: int, path: int, room: int) -> None:
    """A row that has got its tables and holes is resident."""
    m.counters[RESIDENTS] += 1
    set_number(m, STATE, row, RESIDENT)
    set_number(m, LENGTH, row, length)
    set_number(m, RESERVED, row, reserved)
    set_number(m, COMPUTED, row, computed)
    set_number(m, BLOCKS, row, count)
    set_number(m, PATH, row, path)
    set_number(m, ROOM, row, room)
    touch(m, row, 0)


@compiled
def commit(m: Memory, row: int, computed: int, known: int) -> bool:
    """The KV of the positions below `computed` is written: full blocks may be found, dead ones are released. `known`
    is what the caller has found out about the path of the first of those blocks: the path itself, OTHERS if there is
    none yet, or NOTHING if it has not looked.

    False where it cannot go on: at the block that `computed` of the row now ends with, since other paths go on from
    there, or since no node is left. The caller looks, and calls again.
    """
    block_size, before, node = m.spelled.shape[1], m.numbers[COMPUTED, row], m.numbers[PATH, row]
    if node != NOTHING:
        for i in range(before // block_size, computed // block_size):
            child = known if known != NOTHING else child_of(m, node, m.tokens[row], i * block_size)
            new = known == OTHERS or child == NOTHING
            if (child == OTHERS and not new) or (new and m.counters[NUM_NODES_UNUSED] == 0):
                set_number(m, COMPUTED, row, max(before, i * block_size))
                set_number(m, PATH, row, node)
                return False
            if new:
                child = make(m, node, m.tokens[row], i * block_size)
            else:
                use(m, child, 1)
                use(m, node, -1)  # which that child needs
            for group in range(m.tables.shape[0]):
                publish(m, child, group, m.tables[group, row, i])
            node, known = child, NOTHING
        set_number(m, PATH, row, node)
    set_number(m, COMPUTED, row, computed)
    release_dead(m, row)
    return True


@compiled
def release_dead(m: Memory, row: int) -> None:
    """Turn blocks that hold only dead positions into holes; the last first, so that children are evicted first."""
    num_rows, width = m.tables.shape[1], m.tables.shape[2]
    for group in range(m.tables.shape[0]):
        sinks, old = sinks_of(m, group), m.numbers[HOLES + group, row]
        new = holes_of(m, group, m.numbers[COMPUTED, row])
        if new > old:
            for column in range(sinks + new - 1, sinks + old - 1, -1):
                release(m, m.tables[group, row, column])
                place = (group * num_rows + row) * width + column
                log(m.counters, m.log, TABLES_FIELD, place, m.tables[group, row, column])
                m.tables[group, row, column] = HOLE
            set_number(m, HOLES + group, row, new)
            touch(m, row, sinks + old)


@compiled
def release_table(m: Memory, row: int, keep: int) -> None:
    """Release the blocks of a row past its first `keep` table entries, the last first: children before parents."""
    for group in range(m.tables.shape[0]):
        for column in range(m.numbers[BLOCKS, row] - 1, keep - 1, -1):
            if m.tables[group, row, column] != HOLE:
                release(m, m.tables[group, row, column])


@compiled
def free(m: Memory, row: int) -> None:
    """A row is nobody's any more, and the next one to be used. It has nothing in swap space."""
    if m.numbers[STATE, row] == RESIDENT:
        release_table(m, row, 0)
        m.counters[RESIDENTS] -= 1
    if m.numbers[PATH, row] != NOTHING:
        drop(m, m.numbers[PATH, row])
    set_number(m, STATE, row, 0)
    set_number(m, ROW_STACK, m.counters[NUM_ROWS_UNUSED], row)
    m.counters[NUM_ROWS_UNUSED] += 1


@compiled
def owned_of(m: Memory, nodes: Int64, size: int) -> tuple[int, int, int]:
    """Of a hit of the first `size` of these nodes: its blocks that are used, those that are held, and the holes that
    windows make in it."""
    owned = held = holes = 0
    for group in range(m.tables.shape[0]):
        dead, sinks = holes_of(m, group, size * m.spelled.shape[1]), sinks_of(m, group)
        holes += dead
        for i in range(size):
            if not sinks <= i < sinks + dead:
                block = m.links[nodes[i], HOLDERS + group]
                owned += 1 if m.blocks[block, REFERENCES] > 0 else 0
                held += 1 if is_held(m, block) else 0
    return owned, held, holes


@compiled
def fill(m: Memory, row: int, column: int, block: int) -> int:
    """How many slots more of a block this row has filled than those that were looked at before."""
    block_size, before = m.spelled.shape[1], m.blocks[block, BEFORE]
    filled = min(max(m.numbers[COMPUTED, row] - column * block_size, 0), block_size)
    m.blocks[block, BEFORE] = max(before, filled)
    return max(filled - before, 0)
