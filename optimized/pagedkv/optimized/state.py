"""What a manager consists of, and the rules that several operations share.

The rules themselves are functions over this state, in modules that follow the chapters of the specification:
`admission`, `growth` (and `batch`, the same for many rows at once), `residency`. `manager` is the public face.
"""

from typing import Final

import numpy as np

from pagedkv.optimized.arguments import Int64
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.events import EventLog
from pagedkv.optimized.groups import CacheGroup, Windows
from pagedkv.optimized.hashing import HashFunction
from pagedkv.optimized.index import PrefixIndex
from pagedkv.optimized.journal import Journal
from pagedkv.optimized.paths import NOTHING, PathTree
from pagedkv.optimized.plan import TableBuffers
from pagedkv.optimized.pool import BlockPool
from pagedkv.optimized.rows import PATH, Rows
from pagedkv.spec.words import Config, Namespace, Ok, Reason, Refused


DONE: Final = Ok()
"""All that there is to say of most operations."""


class ManagerState:
    """Pool, prefix index, rows, pins and counters of one manager."""

    def __init__(
        self, config: Config, groups: tuple[CacheGroup, ...], hash_function: HashFunction, *, events: bool = False
    ) -> None:
        self.config, self.journal = config, Journal()
        self.windows = Windows(groups, config.block_size, config.max_rollback)
        self.whole_prefix = len(groups) == 1
        """A hit is present from its beginning on, though a window would not look at all of it."""
        self.events = EventLog(enabled=events)
        self.paths = PathTree(config.block_size, len(groups), hash_function, self.journal)
        self.index = PrefixIndex(config.num_blocks, len(groups), self.paths, self.journal, self.events)
        self.pool = BlockPool(config.num_blocks, self.index, self.journal, overlapped_steps=config.overlapped_steps)
        self.rows = Rows(self.windows.sinks, self.journal)
        self.pins: dict[tuple[Namespace, bytes], tuple[Int64, ...]] = {}
        """For each pinned prefix (namespace, tokens) the blocks of each pin, the latest last."""
        self.swap_free = np.arange(config.swap_blocks - 1, -1, -1, dtype=np.int64)
        """Blocks of swap space, a stack: the first `num_swap_free` are free."""
        self.num_swap_free = config.swap_blocks
        self.buffers = TableBuffers(len(groups))
        self.hit_tokens = self.resumed_hit_tokens = self.copy_on_writes = self.preemptions = 0
        self._watch()

    @property
    def groups(self) -> range:
        """Indices of the cache groups."""
        return range(len(self.windows.groups))

    def begin(self) -> None:
        """An operation starts."""
        self.journal.begin()

    def roll_back(self) -> None:
        """It has failed: nothing has happened."""
        self.journal.roll_back()
        self.buffers.forget()

    def copy(self) -> "ManagerState":
        """The same state; ids, namespaces and the hash function are shared."""
        twin = twin_of(self)
        twin.journal, twin.events = Journal(), self.events.copy()
        twin.paths = self.paths.copy(twin.journal)
        twin.index = self.index.copy(twin.paths, twin.journal, twin.events)
        twin.pool, twin.rows = self.pool.copy(twin.index, twin.journal), self.rows.copy(twin.journal)
        twin.buffers = TableBuffers(len(self.groups))
        twin._watch()
        return twin

    def _watch(self) -> None:
        parts = [self, self.rows, self.paths, self.index, *self.pool.parts()]
        self.journal.watch(*parts, *([self.events] if self.events.enabled else []))

    def refusal(self, need: int, total: int, *, entering: bool = False, hit_held: int = 0) -> Refused | None:
        """The one place where capacity refuses: `need` blocks must be available, and `total` must fit the pool.
        `hit_held`: held blocks that the request would own again, so that nothing waits for them."""
        limit = self.config.max_requests
        if total > self.config.num_blocks:
            return Refused(Reason.UNSERVABLE)
        if entering and limit is not None and self.rows.resident >= limit:
            return Refused(Reason.MAX_REQUESTS)
        if need > self.pool.available:
            would_fit = need <= self.pool.available + self.pool.held - hit_held
            return Refused(Reason.IN_FLIGHT if would_fit else Reason.CAPACITY)
        return None

    def move_path(self, row: int, node: int) -> None:
        """The row's full computed blocks now end at this path (NOTHING: it needs none)."""
        old = int(self.rows.path[row])
        if node != NOTHING:
            self.paths.hold(node)
        if old != NOTHING:
            self.paths.drop((old,))
        self.rows.set(PATH, row, node)
