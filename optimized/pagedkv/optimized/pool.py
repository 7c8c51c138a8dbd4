"""The pool: which blocks are used, idle, free or held. See `loops.blocks`, which does it."""

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.index import PrefixIndex
from pagedkv.optimized.journal import Journal
from pagedkv.optimized.loops import calls
from pagedkv.optimized.loops.memory import (
    BEFORE, EVICTIONS, HELD, IDLE, NEWEST_IDLE, NEXT, NEXT_FREE, NEXT_STEP, NUM_FREE, OLDEST_IDLE, REFERENCES, RELEASE,
    STEPS, USED,
)  # fmt: skip
from pagedkv.spec.words import StepId


class BlockPool:
    """`num_blocks` blocks. Callers check availability first: nothing here refuses.

    Loops are compiled for each kind of array that they get, so they get contiguous int64 only."""

    def __init__(self, num_blocks: int, index: PrefixIndex, journal: Journal) -> None:
        self.num_blocks, self._index, self._journal = num_blocks, index, journal
        self.steps: dict[StepId, int] = {}
        """Steps in flight and their numbers, in the order in which they began."""
        self.leased: Int64 = np.empty(0, np.int64)
        """Blocks on lease to a device, ascending. Never written into: another array takes its place."""

    @property
    def references(self) -> Int32:
        """(num_blocks,): table occurrences + pins + leases."""
        references: Int32 = self._journal.memory.blocks[:, REFERENCES]
        return references

    @property
    def used(self) -> int:
        """Blocks with references that are not leased."""
        return int(self._journal.counters[USED]) - len(self.leased)

    @property
    def idle(self) -> int:
        """Blocks without, that the index knows."""
        return int(self._journal.counters[IDLE])

    @property
    def held(self) -> int:
        """Held blocks."""
        return int(self._journal.counters[HELD])

    @property
    def evictions(self) -> int:
        """Blocks that have lost their entry to be taken, or by `evict`."""
        return int(self._journal.counters[EVICTIONS])

    @property
    def available(self) -> int:
        """Blocks that may be handed out: free or idle, and not held."""
        return self.num_blocks - int(self._journal.counters[USED]) - self.held

    def free_blocks(self) -> Int64:
        """Blocks that are free and not held, the next to be taken first."""
        blocks = np.empty(self._journal.counters[NUM_FREE], np.int64)
        calls.free(self._journal.reading, blocks)
        return blocks

    def idle_blocks(self) -> Int64:
        """Idle blocks, held ones too, the next to be evicted first."""
        blocks = np.empty(self.idle, np.int64)
        calls.idle(self._journal.reading, blocks)
        return blocks

    def held_blocks(self) -> Int64:
        """Held blocks, in the order in which they come free."""
        blocks = np.empty(self.held, np.int64)
        calls.held(self._journal.reading, blocks)
        return blocks

    def is_held(self, blocks: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of these wait for steps in flight."""
        return self.releases(blocks) > 0 if self.held else np.zeros(len(blocks), np.bool_)

    def releases(self, blocks: NDArray[np.integer]) -> Int64:
        """Of held blocks the number of the next step at their release."""
        numbers: Int64 = self._journal.memory.holds[:, RELEASE].take(blocks)
        return numbers

    def take(self, count: int) -> Int64:
        """Hand out `count` available blocks, with one reference each. Free ones first, then the longest idle."""
        blocks = np.empty(count, np.int64)
        if count:
            calls.take(self._journal.fields(), blocks)
            self._index.settle()
        return blocks

    def acquire(self, blocks: Int64) -> None:
        """One more reference to each of these used or idle blocks."""
        calls.acquire(self._journal.fields(), np.ascontiguousarray(blocks))

    def release(self, blocks: Int64) -> None:
        """One reference fewer for each of these blocks, in this order."""
        calls.release(self._journal.fields(), np.ascontiguousarray(blocks))

    def lease(self, count: int) -> Int64:
        """Take `count` available blocks. The reference that they have is the lease."""
        blocks = self.take(count)
        self._journal.set(vars(self), "leased", np.union1d(self.leased, blocks))
        return blocks

    def end_lease(self, blocks: Int64) -> None:
        """The reference of those of these blocks that are leased is somebody else's now."""
        self._journal.set(vars(self), "leased", np.setdiff1d(self.leased, blocks))

    def evict(self, count: int) -> int:
        """Drop the entries of the longest idle blocks, held ones too (they stay held), and return how many."""
        count = min(count, self.idle)
        calls.evict(self._journal.fields(), count)
        self._index.settle()
        return count

    def drop_entries(self, blocks: Int64) -> None:
        """These blocks, each with an entry, hold nothing that may be found: used ones are about to be written."""
        calls.drop_entries(self._journal.fields(), np.ascontiguousarray(blocks))
        self._index.settle()

    def begin_step(self, step: StepId) -> None:
        """Blocks released from now on wait for this step, too."""
        counters = self._journal.counters
        self._journal.set(self.steps, step, int(counters[NEXT_STEP]))
        counters[NEXT_STEP] += 1
        counters[STEPS] += 1

    def end_step(self, step: StepId) -> None:
        """Blocks that waited only for this step come free."""
        steps = self.steps.copy()
        del steps[step]
        self._journal.set(vars(self), "steps", steps)
        self._journal.counters[STEPS] -= 1
        calls.come_free(self._journal.fields(), next(iter(steps.values()), int(self._journal.counters[NEXT_STEP])))

    def copy(self, index: PrefixIndex, journal: Journal) -> "BlockPool":
        """The same pool over copies of the memory and the index."""
        twin = BlockPool(self.num_blocks, index, journal)
        twin.steps, twin.leased = self.steps.copy(), self.leased
        return twin

    def relabel(self, new_block: Int64) -> None:
        """Block `b` is called `new_block[b]` from now on. No block is held. In new arrays, so that the old ones can
        come back."""
        memory, counters = self._journal.memory, self._journal.counters
        blocks = np.empty_like(memory.blocks)
        blocks[new_block] = memory.blocks
        for column in (NEXT, BEFORE):
            blocks[new_block, column] = new_block.take(memory.blocks[:, column], mode="clip")  # or it means nothing
        for end in (NEXT_FREE, OLDEST_IDLE, NEWEST_IDLE):
            counters[end] = new_block[min(counters[end], self.num_blocks - 1)]
        self._journal.replace(blocks=blocks)
        self._journal.set(vars(self), "leased", np.sort(new_block[self.leased]))
