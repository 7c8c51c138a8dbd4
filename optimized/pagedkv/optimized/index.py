"""The prefix index: which block holds which path.

An entry is a path and a cache group, and the block that holds its KV. A path may outlive its entries, since somebody
else needs it: it then only keeps the paths below it exact, and a block published for the same path again finds them.
Entries come and go in `loops.paths`; here a listener hears of it.
"""

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.events import BlocksRemoved, BlocksStored, EventLog
from pagedkv.optimized.journal import Journal
from pagedkv.optimized.loops.memory import ENTRY, HOLDERS, NOTHING, REMOVED, STORED, TOLD, UNSETTLED
from pagedkv.optimized.paths import PathTree


class PrefixIndex:
    """Entries of the blocks of a pool."""

    def __init__(self, paths: PathTree, journal: Journal, events: EventLog) -> None:
        self.paths, self._journal, self._events = paths, journal, events

    @property
    def num_groups(self) -> int:
        return int(self.paths.blocks.shape[1])

    @property
    def entry(self) -> Int32:
        """(num_blocks,): node * num_groups + group of the entry of a block, or NOTHING."""
        entries: Int32 = self._journal.memory.blocks[:, ENTRY]
        return entries

    def has_entry(self, blocks: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of these blocks may be found."""
        known: NDArray[np.bool_] = self.entry.take(blocks) >= 0
        return known

    def entries(self) -> list[tuple[int, int]]:
        """Indexed blocks and the nodes of their paths."""
        blocks = np.flatnonzero(self.entry != NOTHING)
        return list(zip(blocks.tolist(), (self.entry[blocks] // self.num_groups).tolist(), strict=True))

    def settle(self) -> None:
        """A loop has run that may have dropped or stored entries: what is not in arrays follows."""
        counters = self._journal.counters
        if counters[UNSETTLED]:
            self._tell(self._journal.memory.log[::-1][: counters[TOLD]].tolist())
            self.paths.settle()
            counters[TOLD] = 0

    def copy(self, paths: PathTree, journal: Journal, events: EventLog) -> "PrefixIndex":
        """The same index, over other copies of what it needs."""
        return PrefixIndex(paths, journal, events)

    def relabel(self, new_block: Int64) -> None:
        """Block `b` is called `new_block[b]` from now on. In a new array, so that the old one can come back."""
        links = self._journal.memory.links.copy()
        holders = links[:, HOLDERS:]
        holders[holders != NOTHING] = new_block[holders[holders != NOTHING]]
        self._journal.replace(links=links)

    def _tell(self, told: list[list[int]]) -> None:
        """One event for each run of blocks stored, each on the path of the one before it, and for each run removed."""
        run: list[int] = []
        last, group = NOTHING, NOTHING
        for what, entry in told:
            node, of = divmod(entry, self.num_groups)
            goes_on = what == last == REMOVED or (what == last and run and self.paths.parent[node] == run[-1])
            if not (goes_on and of == group):
                self._add(last, group, run)
                run = []
            run.append(node)
            last, group = what, of
        self._add(last, group, run)

    def _add(self, what: int, group: int, nodes: list[int]) -> None:
        """The event of a run."""
        if not nodes:
            return
        digests, paths = tuple(map(self.paths.path_digest, nodes)), self.paths
        if what == STORED:
            parent = int(paths.parent[nodes[0]])
            tokens = tuple(paths.tokens[nodes].reshape(-1).tolist())
            self._events.add(BlocksStored(digests, paths.path_digest(parent), tokens, paths.path_of(parent)[0], group))
        else:
            self._events.add(BlocksRemoved(digests, group))
