"""The life of a block: free, used, idle, held.

A block with references is *used*. One with none is *idle* if the prefix index knows it, else *free*. A block released
while steps are in flight is *held*: it is hit like any other, and not handed out before those steps have ended.

Steps are numbered as they begin, from 1. A block released now waits for the steps in flight, all of which have smaller
numbers than the next one to begin. So it is held exactly as long as the oldest step in flight is older than its
release, blocks come free in the order of their release, and the held idle blocks are the last in their chain: a block
taken for use is never held as long as one that is not is left.
"""

from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.loops.compiled import compiled, inlined
from pagedkv.optimized.loops.memory import (
    BEFORE, BLOCKS_FIELD, ENTRY, EVICTIONS, HELD, HOLDS_FIELD, NEXT, NEXT_FREE, NEXT_STEP, NOTHING, NUM_FREE,
    OLDEST_HELD, OLDEST_IDLE, REFERENCES, RELEASE, STEPS, USED, USED_INDEXED, Memory, put,
)  # fmt: skip
from pagedkv.optimized.loops.paths import forget

# A chain of blocks: columns NEXT and BEFORE of an array, and three counters: its first block, its last, and how many
# there are. Neither NEXT of the last nor BEFORE of the first mean anything, so that adding a block overwrites nothing
# that would have to be logged. Taking one out logs what it may not have again when it comes back. Free blocks need NEXT
# only: what comes last goes first.


@inlined
def add_last(m: Memory, lines: Int32 | Int64, ends: int, block: int) -> None:
    """A block that is not in this chain becomes its last."""
    if m.counters[ends + 2]:
        lines[m.counters[ends + 1], NEXT] = block
        lines[block, BEFORE] = m.counters[ends + 1]
    else:
        m.counters[ends] = block
    m.counters[ends + 1] = block
    m.counters[ends + 2] += 1


@inlined
def take_out(m: Memory, field: int, lines: Int32 | Int64, ends: int, block: int) -> None:
    """A block of this chain is in it no more."""
    before, after = lines[block, BEFORE], lines[block, NEXT]
    put(m, field, lines, block, BEFORE, before)
    put(m, field, lines, block, NEXT, after)
    m.counters[ends + 2] -= 1
    if block != m.counters[ends]:
        put(m, field, lines, before, NEXT, after)
    if block == m.counters[ends + 1]:
        m.counters[ends + 1] = before
    elif block != m.counters[ends]:
        put(m, field, lines, after, BEFORE, before)
    if block == m.counters[ends]:
        m.counters[ends] = after


@compiled
def take(m: Memory) -> int:
    """Hand out an available block, with one reference: a free one, or else the longest idle. The caller knows that
    there is one."""
    if m.counters[NUM_FREE]:
        block = m.counters[NEXT_FREE]
        put(m, BLOCKS_FIELD, m.blocks, block, NEXT, m.blocks[block, NEXT])  # which it may not have when it comes back
        m.counters[NEXT_FREE] = m.blocks[block, NEXT]
        m.counters[NUM_FREE] -= 1
    else:
        block = evict(m)
    put(m, BLOCKS_FIELD, m.blocks, block, REFERENCES, 1)
    m.counters[USED] += 1
    return block


@compiled
def evict(m: Memory) -> int:
    """The block that has been idle longest: its entry goes, and it is nowhere yet."""
    block = m.counters[OLDEST_IDLE]
    take_out(m, BLOCKS_FIELD, m.blocks, OLDEST_IDLE, block)
    forget(m, block)
    m.counters[EVICTIONS] += 1
    return block


@compiled
def acquire(m: Memory, block: int) -> None:
    """One more reference to a used or idle block."""
    references = m.blocks[block, REFERENCES]
    if references == 0:
        take_out(m, BLOCKS_FIELD, m.blocks, OLDEST_IDLE, block)
        m.counters[USED] += 1
        m.counters[USED_INDEXED] += 1
        hold_no_more(m, block)
    put(m, BLOCKS_FIELD, m.blocks, block, REFERENCES, references + 1)


@compiled
def release(m: Memory, block: int) -> None:
    """One reference fewer. With its last one a block is idle, free or held."""
    references = m.blocks[block, REFERENCES] - 1
    put(m, BLOCKS_FIELD, m.blocks, block, REFERENCES, references)
    if references:
        return
    m.counters[USED] -= 1
    if m.counters[STEPS]:
        hold(m, block)
    if m.blocks[block, ENTRY] != NOTHING:
        add_last(m, m.blocks, OLDEST_IDLE, block)
        m.counters[USED_INDEXED] -= 1
    elif not m.counters[STEPS]:
        push_free(m, block)


@compiled
def drop_entry(m: Memory, block: int) -> None:
    """A block with an entry holds nothing that may be found: it is wrong, or about to be written."""
    forget(m, block)
    if m.blocks[block, REFERENCES] == 0:
        take_out(m, BLOCKS_FIELD, m.blocks, OLDEST_IDLE, block)
        if not is_held(m, block):
            push_free(m, block)


@compiled
def push_free(m: Memory, block: int) -> None:
    """A block without references and entry is the next to be taken."""
    m.blocks[block, NEXT] = m.counters[NEXT_FREE]
    m.counters[NEXT_FREE] = block
    m.counters[NUM_FREE] += 1


@compiled
def is_held(m: Memory, block: int) -> bool:
    """It waits for steps in flight."""
    return m.counters[HELD] > 0 and m.holds[block, RELEASE] > 0


@compiled
def hold(m: Memory, block: int) -> None:
    """A block waits for the steps in flight, the last to come free."""
    put(m, HOLDS_FIELD, m.holds, block, RELEASE, m.counters[NEXT_STEP])
    add_last(m, m.holds, OLDEST_HELD, block)


@compiled
def hold_no_more(m: Memory, block: int) -> None:
    """A block waits for nothing, whether it has or not."""
    if is_held(m, block):
        take_out(m, HOLDS_FIELD, m.holds, OLDEST_HELD, block)
        put(m, HOLDS_FIELD, m.holds, block, RELEASE, 0)


@compiled
def come_free(m: Memory, oldest: int) -> None:
    """Blocks that wait for no step as young as the `oldest` one in flight wait no more."""
    while m.counters[HELD] and m.holds[m.counters[OLDEST_HELD], RELEASE] <= oldest:
        block = m.counters[OLDEST_HELD]
        hold_no_more(m, block)
        if m.blocks[block, REFERENCES] == 0 and m.blocks[block, ENTRY] == NOTHING:
            push_free(m, block)


@compiled
def chain(lines: Int32 | Int64, first: int, out: Int64) -> None:
    """The blocks of a chain from this one on, as many as `out` has room for."""
    block = first
    for i in range(len(out)):
        out[i] = block
        if i + 1 < len(out):
            block = lines[block, NEXT]
