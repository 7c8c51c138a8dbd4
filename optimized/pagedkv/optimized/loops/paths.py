"""What full blocks hold, as a tree: following paths, making them, forgetting them. See `pagedkv.optimized.paths`."""

from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.loops.compiled import compiled
from pagedkv.optimized.loops.memory import (
    BLOCKS_FIELD, ENTRY, FIRST_CHILD, GONE, HOLDERS, HOLE, LINKS_FIELD, LISTENING, NODE_STACK, NOTHING,
    NUM_NODES_UNUSED, OTHERS, PARENT, REFERENCES, REMOVED, STORED, UNSETTLED, USED_INDEXED, USERS, Memory, put, tell,
)  # fmt: skip


@compiled
def child_of(m: Memory, node: int, tokens: Int32, start: int) -> int:
    """The first child of a path if these tokens, from `start` on, go on to it; else NOTHING if the path has no
    children, and OTHERS if it may have this one by another way."""
    child = m.links[node, FIRST_CHILD]
    if child < 0:
        return child
    for i in range(m.spelled.shape[1]):
        if m.spelled[child, i] != tokens[start + i]:
            return OTHERS
    return child


@compiled
def follow(m: Memory, start: int, tokens: Int32, out: Int64) -> int:
    """Go on from a path along first children for as many blocks as `out` has room for the nodes of; how many it was."""
    node = start
    for i in range(len(out)):
        node = child_of(m, node, tokens, i * m.spelled.shape[1])
        if node < 0:
            return i
        out[i] = node
    return len(out)


@compiled
def use(m: Memory, node: int, change: int) -> int:
    """So many users more of a path that keeps one; how many it has."""
    users = m.links[node, USERS] + change
    put(m, LINKS_FIELD, m.links, node, USERS, users)
    return users


@compiled
def make_root(m: Memory) -> int:
    """An empty path, which nobody uses yet and nobody finds. There is an unused node for it. No operation makes a path
    after it has forgotten one, so that what the node has held needs no log."""
    m.counters[NUM_NODES_UNUSED] -= 1
    node = int(m.links[m.counters[NUM_NODES_UNUSED], NODE_STACK])
    m.links[node, PARENT], m.links[node, FIRST_CHILD], m.links[node, USERS] = NOTHING, NOTHING, 0
    return node


@compiled
def make(m: Memory, parent: int, tokens: Int32, start: int) -> int:
    """A path one block longer, likewise; but if its parent has no first child, it is found from there. One user of the
    parent is a user of the new path instead, and that one a user of the parent: it has as many as before."""
    node = make_root(m)
    m.links[node, PARENT], m.links[node, USERS] = parent, 1
    for i in range(m.spelled.shape[1]):
        m.spelled[node, i] = tokens[start + i]
    if m.links[parent, FIRST_CHILD] < 0:
        put(m, LINKS_FIELD, m.links, parent, FIRST_CHILD, node)
    return node


@compiled
def drop(m: Memory, node: int) -> None:
    """One user fewer. A path that nobody needs is forgotten, and its ancestors with it if nobody needs them: the last
    GONE on the stack of nodes. UNSETTLED says that some may be known to others than their parent."""
    while node != NOTHING and use(m, node, -1) == 0:
        parent = m.links[node, PARENT]
        if parent != NOTHING and m.links[parent, FIRST_CHILD] == node:
            put(m, LINKS_FIELD, m.links, parent, FIRST_CHILD, OTHERS)
        else:
            m.counters[UNSETTLED] += 1
        m.counters[UNSETTLED] += m.counters[LISTENING]
        put(m, LINKS_FIELD, m.links, m.counters[NUM_NODES_UNUSED], NODE_STACK, node)
        m.counters[NUM_NODES_UNUSED] += 1
        m.counters[GONE] += 1
        node = parent


@compiled
def publish(m: Memory, node: int, group: int, block: int) -> None:
    """A used block without an entry holds this path; none does if it is a hole. If another one is known to, that one
    stays."""
    if block != HOLE and m.links[node, HOLDERS + group] == NOTHING:
        entry = node * m.tables.shape[0] + group
        put(m, LINKS_FIELD, m.links, node, HOLDERS + group, block)
        put(m, BLOCKS_FIELD, m.blocks, block, ENTRY, entry)
        m.counters[USED_INDEXED] += 1
        use(m, node, 1)
        tell(m, STORED, entry)


@compiled
def forget(m: Memory, block: int) -> None:
    """The entry of a block, which has one, goes."""
    entry = m.blocks[block, ENTRY]
    node, group = entry // m.tables.shape[0], entry % m.tables.shape[0]
    put(m, BLOCKS_FIELD, m.blocks, block, ENTRY, NOTHING)
    if m.blocks[block, REFERENCES] > 0:
        m.counters[USED_INDEXED] -= 1
    put(m, LINKS_FIELD, m.links, node, HOLDERS + group, NOTHING)
    tell(m, REMOVED, entry)
    drop(m, node)
