"""The pool: which blocks are used, idle, free, held, and the four ways in which a block changes between these.

A block is *used* while its reference count (table occurrences + pins) is positive. Unreferenced, it is *idle* if the
prefix index knows it and *free* otherwise. Unreferenced blocks that steps in flight may still read are *held*: they
can be shared again by a hit, and are not handed out. `free` lists what can be handed out without eviction.

    free --take--> used --release--> free or idle      idle --share (a hit)--> used      idle --forget--> free

Which block is taken, and which entry is evicted, are the two choices that the specification leaves open:
`choose_free` and `choose_victim`.
"""

import copy
from collections import deque
from collections.abc import Container, Sequence
from typing import Self

from pagedkv.reference.index import PrefixIndex
from pagedkv.spec.words import Block, Config, StepId


class BlockPool:
    """`config.num_blocks` blocks with reference counts, a free list, holds and the prefix index."""

    def __init__(self, config: Config) -> None:
        self.num_blocks = config.num_blocks
        self.free: deque[Block] = deque(range(config.num_blocks))
        self.references = [0] * config.num_blocks
        self.num_used = 0
        self.index = PrefixIndex(config.block_size)
        self.steps: dict[StepId, None] = {}
        """In flight, in the order in which they began."""
        self.held: dict[Block, set[StepId]] = {}
        """For each held block the steps that it waits for."""

    @property
    def available(self) -> int:
        """Blocks that can be handed out: free or idle, and not held."""
        return self.num_blocks - self.num_used - len(self.held)

    def choose_free(self, free: Sequence[Block]) -> Block:
        """Any element of `free` (never empty) is legal; here the one that has been free for longest."""
        return free[0]

    def choose_victim(self, skip: Container[Block]) -> Block:
        """Any idle block outside `skip` is legal (there is one); here the least recently used, children first."""
        return self.index.least_recent(skip)

    def take(self) -> Block:
        """Hand out a block, its only reference the caller's. Needs `available` >= 1.

        An idle block is evicted only when nothing is free.
        """
        if not self.free:
            self.forget(self.choose_victim(self.held))
        block = self.choose_free(self.free)
        self.free.remove(block)
        self.references[block] = 1
        self.num_used += 1
        return block

    def share(self, block: Block) -> None:
        """One more reference to a used block, or a hit on an idle one, which is then held no longer."""
        if self.references[block] == 0:
            self.num_used += 1
            del self.index.idle[block]
            self.held.pop(block, None)
        self.references[block] += 1

    def release(self, block: Block) -> None:
        """One reference less. After the last, the block is idle or free, and held by the steps now in flight."""
        self.references[block] -= 1
        if self.references[block] > 0:
            return
        self.num_used -= 1
        if block in self.index.unwritten:  # nobody is left to write what the entry promises
            self.index.remove(block)
        if self.steps:
            self.held[block] = set(self.steps)
        if block in self.index:
            self.index.idle[block] = None
        elif not self.steps:
            self.free.append(block)

    def forget(self, block: Block) -> None:
        """Drop the index entry of a block, if it has one. An idle block becomes free (a held one, when let go)."""
        if block in self.index:
            self.index.remove(block)
            if self.references[block] == 0 and block not in self.held:
                self.free.append(block)

    def begin_step(self, step: StepId) -> None:
        self.steps[step] = None

    def end_step(self, step: StepId) -> None:
        """Let go of the blocks that waited for this step alone."""
        del self.steps[step]
        for block in list(self.held):
            self.held[block].discard(step)
            if not self.held[block]:
                del self.held[block]
                if block not in self.index:
                    self.free.append(block)

    def relabel(self, new_block: Sequence[Block]) -> None:
        """Block `b` is called `new_block[b]` from now on. No step is in flight, so none is held."""
        self.free = deque(new_block[block] for block in self.free)
        references = self.references
        self.references = [0] * self.num_blocks
        for block, count in enumerate(references):
            self.references[new_block[block]] = count
        self.index.relabel(new_block)

    def copy(self) -> Self:
        twin = copy.copy(self)
        twin.free = self.free.copy()
        twin.references = self.references.copy()
        twin.index = self.index.copy()
        twin.steps = self.steps.copy()
        twin.held = {block: set(steps) for block, steps in self.held.items()}
        return twin
