"""Idle blocks in the order in which they became idle: the eviction order, least recent first.

A queue of positions with lazy removal. A block that leaves is only unmarked, and its stale entry is skipped when the
head reaches it, so that adding, removing and popping many blocks are each a few array operations. Room for twice the
pool means that one compaction pays for at least as many additions as there are blocks: O(1) a block, amortised.
"""

import numpy as np

from pagedkv.optimized.arguments import Int32


class IdleQueue:
    """At most `num_blocks` distinct blocks, first in, first out."""

    def __init__(self, num_blocks: int) -> None:
        self._order = np.empty(2 * num_blocks, np.int32)
        self._position = np.full(num_blocks, -1, np.int32)  # where a block's live entry stands; -1: not in the queue
        self._head = self._tail = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, blocks: Int32) -> None:
        """Add blocks that are not in the queue, the first of them to go first."""
        if self._tail + len(blocks) > len(self._order):
            self._compact()
        places = np.arange(self._tail, self._tail + len(blocks), dtype=np.int32)
        self._order[places] = blocks
        self._position[blocks] = places
        self._tail += len(blocks)
        self._count += len(blocks)

    def remove(self, blocks: Int32) -> None:
        """Take out blocks that are in the queue, wherever they stand."""
        self._position[blocks] = -1
        self._count -= len(blocks)

    def pop(self, count: int) -> Int32:
        """Take out the `count` blocks that have been idle longest; the queue holds as many."""
        found: list[Int32] = []
        missing = count
        while missing:
            assert self._head < self._tail  # or the books are wrong
            places = np.arange(self._head, min(self._head + max(missing, 8), self._tail), dtype=np.int32)
            candidates = self._order[places]
            live = np.flatnonzero(self._position[candidates] == places)[:missing]
            found.append(candidates[live])
            missing -= len(live)
            self._head += len(places) if missing else int(live[-1]) + 1
        popped = np.concatenate(found) if found else np.empty(0, np.int32)
        self.remove(popped)
        return popped

    def blocks(self) -> Int32:
        """All blocks in the queue, the next to go first."""
        places = np.arange(self._head, self._tail, dtype=np.int32)
        entries = self._order[places]
        live: Int32 = entries[self._position[entries] == places]
        return live

    def relabel(self, new_block: Int32) -> None:
        """Block `b` is called `new_block[b]` from now on."""
        entries = new_block[self.blocks()]
        self._position[:] = -1
        self._head = self._tail = self._count = 0
        self.push(entries)

    def _compact(self) -> None:
        entries = self.blocks()
        self._head, self._tail = 0, len(entries)
        self._order[: len(entries)] = entries
        self._position[entries] = np.arange(len(entries), dtype=np.int32)
