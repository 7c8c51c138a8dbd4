"""The prefix index: which block holds which path.

An entry is a path and a cache group, and the block that holds its KV. A path may outlive its entries, since somebody
else needs it: it then only keeps the paths below it exact, and a block published for the same path again finds them.
"""

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.arguments import Int32, Int64
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.events import BlocksRemoved, BlocksStored, EventLog
from pagedkv.optimized.journal import Journal
from pagedkv.optimized.paths import NOTHING, PathTree


class PrefixIndex:
    """Entries of `num_blocks` blocks in `num_groups` cache groups."""

    def __init__(self, num_blocks: int, num_groups: int, paths: PathTree, journal: Journal, events: EventLog) -> None:
        self.num_groups, self.paths, self._journal, self._events = num_groups, paths, journal, events
        self.entry: Int32 = np.full(num_blocks, NOTHING, np.int32)
        """(num_blocks,): node * num_groups + group of the entry of a block, or NOTHING."""

    def has_entry(self, blocks: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of these blocks may be found."""
        known: NDArray[np.bool_] = self.entry.take(blocks) >= 0
        return known

    def publish(self, nodes: Int64, group: int, blocks: Int64) -> None:
        """These blocks hold these paths, and have no entry yet. Where another block is known to, that one stays."""
        entries, holders = self._entries(nodes, group), self.paths.blocks.reshape(-1)
        taken = holders.take(entries) >= 0
        if np.count_nonzero(taken):
            nodes, entries, blocks = nodes[~taken], entries[~taken], blocks[~taken]
        self._journal.note(holders, entries, NOTHING)
        holders[entries] = blocks
        self._journal.note(self.entry, blocks, NOTHING)
        self.entry[blocks] = entries
        self.paths.hold(nodes)
        if self._events.enabled:
            self._tell_stored(nodes.tolist(), group)

    def forget(self, blocks: Int64) -> None:
        """Drop the entries of these blocks; each has one."""
        entries, holders = self.entry.take(blocks), self.paths.blocks.reshape(-1)
        self._journal.note(self.entry, blocks, entries)
        self.entry[blocks] = NOTHING
        self._journal.note(holders, entries, blocks)
        holders[entries] = NOTHING
        if self._events.enabled:
            self._tell_removed(entries.tolist())
        self.paths.drop((entries // self.num_groups).tolist() if self.num_groups > 1 else entries.tolist())

    def _entries(self, nodes: Int64, group: int) -> Int64:
        return nodes * self.num_groups + group if self.num_groups > 1 else nodes

    def entries(self) -> list[tuple[int, int]]:
        """Indexed blocks and the nodes of their paths."""
        blocks = np.flatnonzero(self.entry != NOTHING)
        return list(zip(blocks.tolist(), (self.entry[blocks] // self.num_groups).tolist(), strict=True))

    def copy(self, paths: PathTree, journal: Journal, events: EventLog) -> "PrefixIndex":
        """The same index, over other copies of what it needs."""
        twin = twin_of(self)
        twin.paths, twin._journal, twin._events = paths, journal, events
        return twin

    def relabel(self, new_block: Int64) -> None:
        """Block `b` is called `new_block[b]` from now on. In new arrays, so that the old ones can come back."""
        indexed = np.flatnonzero(self.entry != NOTHING)
        entry, blocks = np.full_like(self.entry, NOTHING), self.paths.blocks.copy()
        entry[new_block[indexed]] = self.entry[indexed]
        blocks.reshape(-1)[self.entry[indexed]] = new_block[indexed]
        self.entry, self.paths.blocks = entry, blocks

    def _tell_stored(self, nodes: list[int], group: int) -> None:
        """One event for each run of nodes, each the parent of the next."""
        paths, start = self.paths, 0
        for stop in range(1, len(nodes) + 1):
            if stop < len(nodes) and paths.parent[nodes[stop]] == nodes[stop - 1]:
                continue
            run, parent = nodes[start:stop], int(paths.parent[nodes[start]])
            digests, start = tuple(map(paths.path_digest, run)), stop
            tokens = tuple(paths.tokens[run].reshape(-1).tolist())
            namespace = paths.path_of(parent)[0]
            self._events.add(BlocksStored(digests, paths.path_digest(parent), tokens, namespace, group))

    def _tell_removed(self, entries: list[int]) -> None:
        """One event for each group; the paths are still known."""
        for group in range(self.num_groups):
            nodes = [entry // self.num_groups for entry in entries if entry % self.num_groups == group]
            if nodes:
                self._events.add(BlocksRemoved(tuple(map(self.paths.path_digest, nodes)), group))
