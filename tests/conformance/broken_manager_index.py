"""Broken optimized managers: what enters the prefix index, what leaves it, and what is found."""

from typing import Final

from tests.conformance.broken_manager_tool import mutant

ENTERING: Final = (
    mutant(
        "publication before commit",
        "cached implies computed",
        "loops.rows",
        (
            "range(before // block_size, computed // block_size)",
            "range(before // block_size, min(m.numbers[RESERVED, row], m.numbers[LENGTH, row]) // block_size)",
        ),
    ),
    mutant(
        "a block is published twice",
        "rule 7: the present entry stays",
        "loops.paths",
        ("    if block != HOLE and m.links[node, HOLDERS + group] == NOTHING:\n", "    if block != HOLE:\n"),
    ),
    mutant(
        "one path for all blocks of a commit",
        "an entry names what its block holds",
        "loops.rows",
        ("            node, known = child, NOTHING\n", "            node = child\n"),
    ),
    mutant(
        "a path is spelled with the first tokens",
        "an entry names what its block holds",
        "loops.paths",
        ("m.spelled[node, i] = tokens[start + i]", "m.spelled[node, i] = tokens[i]"),
    ),
    mutant(
        "a branch takes the place of the first child",
        "the longest present prefix is hit",
        "loops.paths",
        ("    if m.links[parent, FIRST_CHILD] < 0:\n", "    if True:\n"),
    ),
    mutant(
        "a request does not need its path",
        "an entry names what its block holds",
        "loops.rows",
        ("                use(m, child, 1)\n", ""),
    ),
    mutant(
        "a request that comes in does not need its path",
        "an entry names what its block holds",
        "loops.rows",
        (
            "        use(m, path, 1)\n    for group in range(m.tables.shape[0]):\n        holes",
            "        pass\n    for group in range(m.tables.shape[0]):\n        holes",
        ),
    ),
    mutant(
        "a path does not need its parent",
        "an entry names what its block holds",
        "loops.rows",
        (
            "                child = make(m, node, m.tokens[row], i * block_size)\n",
            "                child = make(m, node, m.tokens[row], i * block_size)\n                use(m, node, -1)\n",
        ),
    ),
)

LEAVING: Final = (
    mutant(
        "room after a rollback",
        "a write into an indexed block drops its entry",
        "residency",
        ("    rows.set(ROOM, row, UNKNOWN)\n    rows.set(COMPUTED", "    rows.set(COMPUTED"),
    ),
    mutant(
        "stale index entry",
        "a write into an indexed block drops its entry",
        "loops.growth",
        ("        elif m.blocks[block, ENTRY] != NOTHING:\n", "        elif False:\n"),
    ),
    mutant(
        "evicted block still found",
        "what was handed out is forgotten by the index",
        "loops.blocks",
        ("    forget(m, block)\n    m.counters[EVICTIONS]", "    m.counters[EVICTIONS]"),
    ),
    mutant(
        "a path keeps the block that has lost its entry",
        "what was handed out is forgotten by the index",
        "loops.paths",
        ("    put(m, LINKS_FIELD, m.links, node, HOLDERS + group, NOTHING)\n", ""),
    ),
    mutant(
        "a parent keeps the child that is forgotten",
        "a hit compares the whole path",
        "loops.paths",
        ("            put(m, LINKS_FIELD, m.links, parent, FIRST_CHILD, OTHERS)\n", "            pass\n"),
    ),
    mutant(
        "eviction of a pinned block",
        "a pin keeps its blocks",
        "prefixes",
        ("        state.pool.acquire(blocks)\n        state.journal", "        state.journal"),
    ),
)

MATCHING: Final = (
    mutant(
        "hit that leaves nothing to compute",
        "at least one token is left to compute",
        "admission",
        ("(len(tokens) - 1) // bs if reads", "len(tokens) // bs if reads"),
    ),
    mutant(
        "wrong namespace hit",
        "identity is the namespace and the whole path",
        "paths",
        ("root = self.roots.get(namespace, NOTHING)", "root = next(iter(self.roots.values()), NOTHING)"),
    ),
    mutant(
        "a line is followed though its tokens differ",
        "a hit compares the tokens",
        "loops.paths",
        ("            return OTHERS\n", "            break\n"),
    ),
    mutant(
        "a branch is followed though its tokens differ",
        "a hit compares the tokens",
        "paths",
        ("node = self._others.get(digest, NOTHING)", "node = next(iter(self._others.values()), NOTHING)"),
        (
            "while node != NOTHING and not (self.parent[node] == parent and (self.tokens[node] == tokens).all()):",
            "while False:",
        ),
    ),
    mutant(
        "a match goes on after a gap",
        "hits are present, all of them",
        "loops.rows",
        ("            return i\n    return stop\n", "            pass\n    return stop\n"),
    ),
    mutant(
        "a match ends where paths part",
        "the longest present prefix is hit",
        "paths",
        ("while count < limit and self._others:", "while False:"),
    ),
)
