"""The pool: which blocks are used, idle, free or held, in arrays over all blocks.

`references[b]` counts the tables and pins that own block b. A block with none is *idle* if the prefix index knows it,
else *free*. Free blocks lie on a stack, idle ones in a queue. A block released while steps are in flight is *held*:
it is hit like any other, and not handed out before those steps have ended.

Steps are numbered as they begin. A block released now waits for the steps in flight, all of which have smaller
numbers than the next one to begin. So it is held exactly as long as the oldest step in flight is older than its
release, blocks come free in the order of their release, and the held idle blocks are the last in the queue: a block
popped for use is never held as long as one that is not is left.
"""

import numpy as np

from pagedkv.optimized.arguments import Int32, last_of_each
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.index import PrefixIndex
from pagedkv.optimized.recency import IdleQueue
from pagedkv.spec.words import StepId


class BlockPool:
    """`num_blocks` blocks. Callers check availability first: nothing here refuses."""

    def __init__(self, num_blocks: int, index: PrefixIndex) -> None:
        self.num_blocks = num_blocks
        self.references = np.zeros(num_blocks, np.int32)
        """(num_blocks,): table occurrences + pins."""
        self.used = 0
        """Blocks with references."""
        self.idle = IdleQueue(num_blocks)
        self.held: dict[int, int] = {}
        """Held block -> the number of the next step at its release; in the order of release."""
        self.steps: dict[StepId, int] = {}
        """Steps in flight and their numbers, in the order in which they began."""
        self.evictions = 0
        self._next_step = 0
        self._scratch = np.empty(num_blocks, np.int32)
        self._index = index
        self._free = np.arange(num_blocks, dtype=np.int32)[::-1].copy()  # a stack: the lowest block on top
        self._num_free = num_blocks

    @property
    def available(self) -> int:
        """Blocks that may be handed out: free or idle, and not held."""
        return self.num_blocks - self.used - len(self.held)

    def free_blocks(self) -> Int32:
        """Blocks that are free and not held; the last is the next to go."""
        return self._free[: self._num_free]

    def take(self, count: int) -> Int32:
        """Hand out `count` available blocks, with one reference each. Free ones first, then the longest idle."""
        from_stack = min(count, self._num_free)
        blocks = self._free[self._num_free - from_stack : self._num_free][::-1].copy()
        self._num_free -= from_stack
        if from_stack < count:
            victims = self.idle.pop(count - from_stack)
            self._index.forget(victims)
            self.evictions += len(victims)
            blocks = np.concatenate((blocks, victims))
        self.references[blocks] = 1
        self.used += count
        return blocks

    def acquire(self, blocks: Int32) -> None:
        """One more reference to each of these used or idle blocks, which are distinct."""
        unused = blocks[self.references[blocks] == 0]
        if len(unused):
            self.idle.remove(unused)
            self.used += len(unused)
            if self.held:
                for block in unused.tolist():
                    self.held.pop(block, None)
        self.references[blocks] += 1

    def release(self, blocks: Int32) -> None:
        """One reference fewer for each of these distinct blocks, in this order."""
        self.references[blocks] -= 1
        self._put_back(blocks[self.references[blocks] == 0])

    def release_many(self, blocks: Int32) -> None:
        """The same for blocks that may repeat: each one comes back where its last reference goes."""
        np.subtract.at(self.references, blocks, 1)
        unused = blocks[self.references[blocks] == 0]
        self._put_back(unused[last_of_each(unused, self._scratch)])

    def forget(self, blocks: Int32) -> None:
        """Drop the entries of used blocks: they will be written."""
        self._index.forget(blocks)

    def evict(self, count: int) -> int:
        """Drop the entries of the longest idle blocks, held ones too (they stay held), and return how many."""
        victims = self.idle.pop(min(count, len(self.idle)))
        self._index.forget(victims)
        self.evictions += len(victims)
        self._push_free(self._not_held(victims))
        return len(victims)

    def begin_step(self, step: StepId) -> None:
        self.steps[step] = self._next_step
        self._next_step += 1

    def end_step(self, step: StepId) -> None:
        """Blocks that waited only for this step come free."""
        del self.steps[step]
        oldest = next(iter(self.steps.values()), self._next_step)
        over = [block for block, released in self.held.items() if released <= oldest]
        for block in over:
            del self.held[block]
        blocks = np.array(over, np.int32)
        self._push_free(blocks[~self._index.indexed[blocks]])

    def copy(self, index: PrefixIndex) -> "BlockPool":
        """The same pool over a copy of its index."""
        twin = twin_of(self)
        twin.idle, twin._index = twin_of(self.idle), index
        return twin

    def relabel(self, new_block: Int32) -> None:
        """Block `b` is called `new_block[b]` from now on. No block is held."""
        self.references[new_block] = self.references.copy()
        self._free[: self._num_free] = new_block[self.free_blocks()]
        self.idle.relabel(new_block)

    def _put_back(self, unused: Int32) -> None:
        """Blocks that have just lost their last reference, in the order in which they did."""
        self.used -= len(unused)
        if self.steps:
            self.held.update(dict.fromkeys(unused.tolist(), self._next_step))
        known = self._index.indexed[unused]
        self.idle.push(unused[known])
        self._push_free(self._not_held(unused[~known]))

    def _push_free(self, blocks: Int32) -> None:
        self._free[self._num_free : self._num_free + len(blocks)] = blocks
        self._num_free += len(blocks)

    def _not_held(self, blocks: Int32) -> Int32:
        if not self.held:
            return blocks
        return np.array([block for block in blocks.tolist() if block not in self.held], np.int32)
