"""The pool: which blocks are used, idle, free or held, in arrays over all blocks.

`references[b]` counts the tables and pins that own block b. A block with none is *idle* if the prefix index knows it,
else *free*. Free blocks lie on a stack, idle ones in a queue. A block released while steps are in flight is *held*:
it is hit like any other, and not handed out before those steps have ended.

Steps are numbered as they begin, from 1. A block released now waits for the steps in flight, all of which have smaller
numbers than the next one to begin. So it is held exactly as long as the oldest step in flight is older than its
release, blocks come free in the order of their release, and the held idle blocks are the last in the queue: a block
popped for use is never held as long as one that is not is left.
"""

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.arguments import Int32, Int64, last_of_each
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.index import PrefixIndex
from pagedkv.optimized.journal import Journal
from pagedkv.optimized.recency import BlockQueue
from pagedkv.spec.words import StepId


class BlockPool:
    """`num_blocks` blocks. Callers check availability first: nothing here refuses. Block ids index arrays fastest as
    int64, so that is what these functions want; what lies in tables is int32."""

    def __init__(self, num_blocks: int, index: PrefixIndex, journal: Journal, *, overlapped_steps: bool) -> None:
        self.num_blocks = num_blocks
        self.references = np.zeros(num_blocks, np.int32)
        """(num_blocks,): table occurrences + pins."""
        self.used = 0
        """Blocks with references."""
        self.idle = 0
        """Blocks without, that the index knows."""
        self.held = 0
        """Held blocks."""
        self.steps: dict[StepId, int] = {}
        """Steps in flight and their numbers, in the order in which they began."""
        self.evictions = 0
        self._next_step = 1
        self._scratch = np.empty(num_blocks, np.int32)
        self._index, self._journal = index, journal
        self._free = np.arange(num_blocks - 1, -1, -1, dtype=np.int32)  # a stack: the lowest block on top
        self._num_free = num_blocks
        self._idle_queue = BlockQueue(num_blocks)
        self._held_queue = BlockQueue(num_blocks if overlapped_steps else 0)
        self._next_step_at_release: Int64 = np.zeros(num_blocks if overlapped_steps else 0, np.int64)
        """(num_blocks,): of a held block the number of the next step at its release; 0 if it is not held."""

    @property
    def available(self) -> int:
        """Blocks that may be handed out: free or idle, and not held."""
        return self.num_blocks - self.used - self.held

    def parts(self) -> tuple[object, ...]:
        """What the journal keeps by name."""
        queues = (self._idle_queue, self._held_queue)
        return (self, *queues[: 1 + bool(len(self._next_step_at_release))])

    def free_blocks(self) -> Int32:
        """Blocks that are free and not held; the last is the next to go."""
        return self._free[: self._num_free]

    def idle_blocks(self) -> Int32:
        """Idle blocks, held ones too, the next to be evicted first."""
        return self._idle_queue.blocks(self._is_idle)

    def held_blocks(self) -> Int32:
        """Held blocks, in the order in which they come free."""
        return self._held_queue.blocks(self.is_held)

    def is_held(self, blocks: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of these wait for steps in flight."""
        if not self.held:
            return np.zeros(len(blocks), np.bool_)
        held: NDArray[np.bool_] = self._next_step_at_release[blocks] > 0
        return held

    def releases(self, blocks: NDArray[np.integer]) -> Int64:
        """Of held blocks the number of the next step at their release."""
        numbers: Int64 = self._next_step_at_release[blocks]
        return numbers

    def take(self, count: int) -> Int64:
        """Hand out `count` available blocks, with one reference each. Free ones first, then the longest idle."""
        from_stack = min(count, self._num_free)
        blocks = self._free[self._num_free - from_stack : self._num_free][::-1].astype(np.int64)
        self._num_free -= from_stack
        if from_stack < count:
            blocks = np.concatenate((blocks, self._evict_idle(count - from_stack)))
        self._journal.note(self.references, blocks, 0)
        self.references[blocks] = 1
        self.used += count
        return blocks

    def acquire(self, blocks: Int64) -> None:
        """One more reference to each of these used or idle blocks, which are distinct."""
        references = self.references.take(blocks)
        unused = len(blocks) - int(np.count_nonzero(references))
        if unused:
            self.idle -= unused
            self.used += unused
            if self.held:
                self._hold_no_more(blocks[references == 0])
        self._journal.note(self.references, blocks, references)
        self.references[blocks] = references + 1

    def release(self, blocks: Int64) -> None:
        """One reference fewer for each of these distinct blocks, in this order."""
        references = self.references.take(blocks)
        self._journal.note(self.references, blocks, references)
        references = references - 1
        self.references[blocks] = references
        self._put_back(blocks[references == 0] if np.count_nonzero(references) else blocks)

    def release_many(self, blocks: Int64) -> None:
        """The same for blocks that may repeat: each one comes back where its last reference goes."""
        last = last_of_each(blocks, self._scratch)
        if last.all():
            self.release(blocks)
            return
        self._journal.note(self.references, blocks, self.references.take(blocks))
        np.subtract.at(self.references, blocks, 1)
        self._put_back(blocks[last & (self.references.take(blocks) == 0)])

    def evict(self, count: int) -> int:
        """Drop the entries of the longest idle blocks, held ones too (they stay held), and return how many."""
        victims = self._evict_idle(min(count, self.idle))
        self._push_free(victims[~self.is_held(victims)])
        return len(victims)

    def drop_entries(self, blocks: Int64) -> None:
        """These blocks, each with an entry, hold nothing that may be found: used ones are about to be written."""
        unused = blocks[self.references.take(blocks) == 0]
        self._index.forget(blocks)
        self.idle -= len(unused)
        self._push_free(unused[~self.is_held(unused)])

    def begin_step(self, step: StepId) -> None:
        self._journal.set(self.steps, step, self._next_step)
        self._next_step += 1

    def end_step(self, step: StepId) -> None:
        """Blocks that waited only for this step come free."""
        self.steps = {other: number for other, number in self.steps.items() if other != step}
        oldest = next(iter(self.steps.values()), self._next_step)
        held = self.held_blocks().astype(np.int64)
        over = held[self._next_step_at_release.take(held) <= oldest]
        self._hold_no_more(over)
        self._push_free(over[(self.references.take(over) == 0) & ~self._index.has_entry(over)])

    def copy(self, index: PrefixIndex, journal: Journal) -> "BlockPool":
        """The same pool over a copy of its index."""
        twin = twin_of(self)
        twin._idle_queue, twin._held_queue = twin_of(self._idle_queue), twin_of(self._held_queue)
        twin._index, twin._journal = index, journal
        return twin

    def relabel(self, new_block: Int64, idle: Int64) -> None:
        """Block `b` is called `new_block[b]` from now on; `idle` are the idle blocks, so called already. No block is
        held. All in new arrays, so that the old ones can come back."""
        references = np.empty_like(self.references)
        references[new_block] = self.references
        free = self._free.copy()
        free[: self._num_free] = new_block.take(self.free_blocks())
        self.references, self._free = references, free
        self._idle_queue.refill(idle)

    def _is_idle(self, blocks: NDArray[np.integer]) -> NDArray[np.bool_]:
        idle: NDArray[np.bool_] = (self.references[blocks] == 0) & self._index.has_entry(blocks)
        return idle

    def _evict_idle(self, count: int) -> Int64:
        """The blocks that have been idle longest, as many as that: their entries go, and they are nowhere yet."""
        victims = self._idle_queue.pop(count, self._is_idle).astype(np.int64)
        self._index.forget(victims)
        self.idle -= len(victims)
        self.evictions += len(victims)
        return victims

    def _put_back(self, unused: Int64) -> None:
        """Blocks that have just lost their last reference, in the order in which they did."""
        self.used -= len(unused)
        if self.steps:
            self._journal.put(self._next_step_at_release, unused, self._next_step)
            self._held_queue.push(unused, self.is_held)
            self.held += len(unused)
        known = self._index.has_entry(unused)
        num_known = int(np.count_nonzero(known))
        if num_known < len(unused):
            if not self.steps:
                self._push_free(unused[~known])
            unused = unused[known]
        if num_known:
            self.idle += num_known
            self._idle_queue.push(unused, self._is_idle)

    def _hold_no_more(self, blocks: Int64) -> None:
        """Those of these blocks that are held are so no more."""
        released = self._next_step_at_release.take(blocks)
        self._journal.note(self._next_step_at_release, blocks, released)
        self._next_step_at_release[blocks] = 0
        self.held -= int(np.count_nonzero(released))

    def _push_free(self, blocks: Int64) -> None:
        end = self._num_free + len(blocks)
        self._journal.put(self._free, slice(self._num_free, end), blocks)
        self._num_free = end
