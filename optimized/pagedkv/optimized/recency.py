"""Blocks in the order in which they came: those that are idle, the least recent first, and those that are held.

A queue of entries with lazy removal. Each block knows the place of its latest entry, and an entry is *live* if it is
the latest of its block and the block is still what the queue is for; the owner of the queue knows that. So a block
leaves without a write, and adding or popping many is a few array operations. There is room for twice as many entries
as blocks, so that one compaction pays for at least as many additions as there are blocks: O(1) a block, amortised.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.arguments import Int32, Int64, counting


class BlockQueue:
    """At most `num_blocks` distinct blocks, first in, first out. `belongs(blocks)`, (count,) bool, tells which of
    these blocks are in the queue if they have an entry."""

    def __init__(self, num_blocks: int) -> None:
        self._order = np.empty(2 * num_blocks, np.int32)
        self._place = np.full(num_blocks, -1, np.int32)
        """Of each block its latest entry. Means nothing for blocks that do not belong."""
        self._head = self._tail = 0

    def push(self, blocks: Int64, belongs: Callable[[Int32], NDArray[np.bool_]]) -> None:
        """Add blocks that are not in the queue, the first of them to go first."""
        end = self._tail + len(blocks)
        if end > len(self._order):
            self._compact(belongs)
            end = self._tail + len(blocks)
        self._order[self._tail : end] = blocks
        self._place[blocks] = self._tail + counting(len(blocks))
        self._tail = end

    def pop(self, count: int, belongs: Callable[[Int32], NDArray[np.bool_]]) -> Int32:
        """The `count` blocks that came first; the queue holds as many. The caller makes them belong no more."""
        found: list[Int32] = []
        while count:
            assert self._head < self._tail  # or the books are wrong
            end = min(self._head + max(count, 8), self._tail)
            candidates = self._order[self._head : end]
            live = self._live(self._head, end, belongs)[:count]
            found.append(candidates[live])
            count -= len(live)
            self._head = end if count else self._head + int(live[-1]) + 1
        return np.concatenate(found) if found else np.empty(0, np.int32)

    def blocks(self, belongs: Callable[[Int32], NDArray[np.bool_]]) -> Int32:
        """All blocks in the queue, the next to go first."""
        return self._order[self._head : self._tail][self._live(self._head, self._tail, belongs)]

    def refill(self, blocks: Int32 | Int64) -> None:
        """Hold these blocks only, in this order. Into arrays of its own: a failing operation gets the old ones back."""
        self._order, self._place = np.empty_like(self._order), np.full_like(self._place, -1)
        self._order[: len(blocks)] = blocks
        self._place[blocks] = np.arange(len(blocks), dtype=np.int32)
        self._head, self._tail = 0, len(blocks)

    def _live(self, start: int, end: int, belongs: Callable[[Int32], NDArray[np.bool_]]) -> Int64:
        """Which of the entries start..end-1 are live, as offsets from `start`."""
        blocks = self._order[start:end]
        latest = self._place[blocks] == np.arange(start, end, dtype=np.int32)
        return np.flatnonzero(latest & belongs(blocks))

    def _compact(self, belongs: Callable[[Int32], NDArray[np.bool_]]) -> None:
        self.refill(self.blocks(belongs))
