"""The arrays of a manager, all that a loop sees; and how a loop writes so that it can be taken back."""

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.loops.compiled import compiled, inlined

NOTHING: Final = -1
"""No node, no block, no entry."""
OTHERS: Final = -2
"""No first child, but perhaps others."""
HOLE: Final = -1
"""In a table: released by a window."""

RESIDENT: Final = 1
"""The state of a row that has a table; 0 is that of a row that is nobody's."""
UNKNOWN: Final = -1
"""Room that nobody has worked out."""
CLEAN: Final = 2**31 - 1
"""No table entry of a row has changed since the last plan."""

(
    LOGGED, TOLD, GONE, UNSETTLED,  # of the operation that is running: see `log`, `told`, and `drop` in `paths`
    USED, USED_INDEXED, NEXT_FREE, NUM_FREE, EVICTIONS, STEPS, NEXT_STEP,  # blocks, and steps in flight
    OLDEST_IDLE, NEWEST_IDLE, IDLE, OLDEST_HELD, NEWEST_HELD, HELD,  # the ends and the lengths of two chains
    NUM_NODES_UNUSED, RESIDENTS, NUM_ROWS_UNUSED, NUM_DIRTY, NUM_SWAP_FREE,
    HIT_TOKENS, RESUMED_HIT_TOKENS, COPY_ON_WRITES, PREEMPTIONS, LISTENING,
    WINDOWS,
) = range(28)  # fmt: skip
"""Places in `Memory.counters`."""

NEXT, BEFORE, REFERENCES, ENTRY = range(4)
"""Columns of `Memory.blocks`."""
RELEASE: Final = 2
"""A column of `Memory.holds`, after NEXT and BEFORE."""
PARENT, FIRST_CHILD, USERS, NODE_STACK, HOLDERS = range(5)
"""Columns of `Memory.links`; the block that holds a path in cache group g in column HOLDERS + g."""
STATE, LENGTH, RESERVED, COMPUTED, BLOCKS, PATH, ROOM, PLACE, DIRTY, DIRTY_STACK, ROW_STACK, HOLES = range(12)
"""Lines of `Memory.numbers`; the holes of cache group g in line HOLES + g."""


class Memory(NamedTuple):
    """Everything that an operation changes and that is not an id."""

    counters: Int64
    """(WINDOWS + 2 * num_groups,): the last two of each cache group never change; see `visible_in` and `sinks_of`."""
    log: Int64
    """(capacity, 2): what the running operation has overwritten, LOGGED lines of it: the place in the flat array of a
    field of this class, as `place * NUM_FIELDS + field`, and the old value. And from its end backwards what a listener
    is to hear of, TOLD lines of it: STORED or REMOVED, and the entry."""
    numbers: Int32
    """(HOLES + num_groups, num_rows): of each request its state, the lengths, the entries of each table, the node of
    its full computed blocks, its room (tokens that can be appended by just writing them, into slots that are there, in
    blocks that nobody else owns and that have no entry: what is left of the table past the length; or UNKNOWN), its
    place in the latest batch, the first table entry that has changed since the last plan, or CLEAN; two stacks, of the
    rows that are not clean and of those that are nobody's; and for each cache group the entries that its window has
    released."""
    tables: Int32
    """(num_groups, num_rows, max_blocks): what lies past a row's end is anything."""
    tokens: Int32
    """(num_rows, max_tokens): likewise."""
    blocks: Int32
    """(num_blocks, 4), a block a cache line: its neighbours in the chain of idle blocks, the longest idle first, or the
    next of the free ones; its references (occurrences in tables, pins, and leases); and its entry in the prefix index,
    node * num_groups + group, or NOTHING."""
    holds: Int64
    """(num_blocks, 3), or (0, 3) if steps do not overlap: of a held block its neighbours in the chain of held blocks,
    and the number of the next step at its release; 0 if it is not held."""
    links: Int32
    """(max_nodes, HOLDERS + num_groups): of each path its parent; its first child, or NOTHING, or OTHERS; how many need
    it; and for each cache group the block that holds it, or NOTHING. In column NODE_STACK a stack of nodes that are no
    path."""
    spelled: Int32
    """(max_nodes, block_size): the tokens of the last block of a path."""


Fields: TypeAlias = tuple[Any, ...]
"""The arrays of a `Memory` as a bare tuple, which costs a call half of what a named one does."""

FIELDS: Final = {name: number for number, name in enumerate(Memory._fields)}
NUM_FIELDS: Final = len(FIELDS)
NUMBERS_FIELD: Final = FIELDS["numbers"]
TABLES_FIELD: Final = FIELDS["tables"]
BLOCKS_FIELD: Final = FIELDS["blocks"]
HOLDS_FIELD: Final = FIELDS["holds"]
LINKS_FIELD: Final = FIELDS["links"]

STORED: Final = 0
REMOVED: Final = 1
"""What is told of an entry."""


class LogFull(Exception):
    """The log is too short for the operation: it is taken back, and tried again with a longer one."""


@inlined
def log(counters: Int64, lines: Int64, field: int, place: int, old: int) -> None:
    """That place of the flat array in that field of the memory, which holds `old`, is about to be written. The first
    two arguments are its counters and its log."""
    count = counters[LOGGED]
    if count + counters[TOLD] == len(lines):
        raise LogFull
    lines[count, 0], lines[count, 1] = place * NUM_FIELDS + field, old
    counters[LOGGED] = count + 1


@inlined
def put(m: Memory, field: int, lines: Int32 | Int64, line: int, column: int, value: int) -> None:
    """lines[line, column] = value, where `lines` is that field of the memory; logged."""
    log(m.counters, m.log, field, int(line) * lines.shape[1] + column, lines[line, column])
    lines[line, column] = value


@compiled
def undo(m: Memory, start: int) -> None:
    """Put back what was logged from line `start` on, the latest first."""
    num_rows, width = m.tables.shape[1], m.tables.shape[2]
    for line in range(m.counters[LOGGED] - 1, start - 1, -1):
        place, field, old = m.log[line, 0] // NUM_FIELDS, m.log[line, 0] % NUM_FIELDS, m.log[line, 1]
        if field == NUMBERS_FIELD:
            m.numbers[place // m.numbers.shape[1], place % m.numbers.shape[1]] = old
        elif field == BLOCKS_FIELD:
            m.blocks[place // m.blocks.shape[1], place % m.blocks.shape[1]] = old
        elif field == HOLDS_FIELD:
            m.holds[place // m.holds.shape[1], place % m.holds.shape[1]] = old
        elif field == LINKS_FIELD:
            m.links[place // m.links.shape[1], place % m.links.shape[1]] = old
        else:
            m.tables[place // width // num_rows, place // width % num_rows, place % width] = old
        m.counters[LOGGED] = line


@compiled
def tell(m: Memory, what: int, entry: int) -> None:
    """A listener is to hear of it."""
    if m.counters[LISTENING]:
        place = len(m.log) - 1 - m.counters[TOLD]
        if place < m.counters[LOGGED]:
            raise LogFull
        m.log[place, 0], m.log[place, 1] = what, entry
        m.counters[TOLD] += 1
        m.counters[UNSETTLED] += 1


@inlined
def visible_in(m: Memory, group: int) -> int:
    """Before how many positions a position of this group is dead once that many are computed; NOTHING if never."""
    return m.counters[WINDOWS + 2 * group]


@inlined
def sinks_of(m: Memory, group: int) -> int:
    """How many leading blocks of a table of this group are kept for ever."""
    return m.counters[WINDOWS + 2 * group + 1]


def new_memory(
    num_blocks: int, block_size: int, windows: Int64, *, num_swap_blocks: int, overlapped_steps: bool
) -> Memory:
    """The memory of a new manager: all blocks are free, the lowest to be taken first, and there are no requests.
    `windows`, (num_groups, 2): what `visible_in` and `sinks_of` say."""
    num_groups, num_nodes = len(windows), max(1, min(64, 2**22 // block_size))
    blocks = np.zeros((num_blocks, 4), np.int32)
    blocks[:, ENTRY], blocks[:-1, NEXT] = NOTHING, np.arange(1, num_blocks)
    counters = np.append(np.zeros(WINDOWS, np.int64), windows.reshape(-1))
    counters[NUM_FREE], counters[NUM_SWAP_FREE] = num_blocks, num_swap_blocks
    counters[NEXT_STEP], counters[NUM_NODES_UNUSED], counters[NUM_ROWS_UNUSED] = 1, num_nodes, 16
    links = np.zeros((num_nodes, HOLDERS + num_groups), np.int32)
    numbers = np.zeros((HOLES + num_groups, 16), np.int32)
    links[:, HOLDERS:] = NOTHING
    links[:, NODE_STACK], numbers[ROW_STACK] = np.arange(num_nodes - 1, -1, -1), np.arange(15, -1, -1)
    numbers[DIRTY] = CLEAN
    return Memory(
        counters=counters,
        log=np.empty((min(max(256, 2 * num_blocks), 2**16), 2), np.int64),  # for a large batch to be freed
        numbers=numbers,
        tables=np.zeros((num_groups, 16, 16), np.int32),
        tokens=np.zeros((16, 256), np.int32),
        blocks=blocks,
        holds=np.zeros((num_blocks if overlapped_steps else 0, 3), np.int64),
        links=links,
        spelled=np.zeros((num_nodes, block_size), np.int32),
    )
