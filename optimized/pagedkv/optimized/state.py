"""What a manager consists of, and the rules that several operations share.

The rules themselves are functions over this state, in modules that follow the chapters of the specification:
`admission`, `growth`, `commits`, `residency`; what they do to arrays is done in `loops`. `manager` is the public face.
"""

from typing import Final

import numpy as np

from pagedkv.optimized.loops.arrays import Int64
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.events import EventLog
from pagedkv.optimized.groups import CacheGroup, Windows
from pagedkv.optimized.hashing import HashFunction
from pagedkv.optimized.index import PrefixIndex
from pagedkv.optimized.journal import Journal
from pagedkv.optimized.loops.memory import LISTENING, NOTHING, PATH, new_memory
from pagedkv.optimized.paths import PathTree
from pagedkv.optimized.plan import TableBuffers
from pagedkv.optimized.pool import BlockPool
from pagedkv.optimized.rows import Rows
from pagedkv.spec.words import Config, Namespace, Ok, Reason, Refused


DONE: Final = Ok()
"""All that there is to say of most operations."""


class ManagerState:
    """Pool, prefix index, rows, pins and counters of one manager."""

    def __init__(
        self, config: Config, groups: tuple[CacheGroup, ...], hash_function: HashFunction, *, events: bool = False
    ) -> None:
        self.config, self.windows = config, Windows(groups, config.block_size, config.max_rollback)
        memory = new_memory(
            config.num_blocks,
            config.block_size,
            self.windows.as_array(),
            num_swap_blocks=config.swap_blocks,
            overlapped_steps=config.overlapped_steps,
        )
        memory.counters[LISTENING] = events
        self.journal = Journal(memory)
        self.events = EventLog(self.journal, enabled=events)
        self.paths = PathTree(hash_function, self.journal)
        self.index = PrefixIndex(self.paths, self.journal, self.events)
        self.pool = BlockPool(config.num_blocks, self.index, self.journal)
        self.rows = Rows(self.windows.sinks, self.journal)
        self.pins: dict[tuple[Namespace, bytes], tuple[Int64, ...]] = {}
        """For each pinned prefix (namespace, tokens) the blocks of each pin, the latest last."""
        self.swap_free = np.arange(config.swap_blocks - 1, -1, -1, dtype=np.int64)
        """Blocks of swap space, a stack: the first NUM_SWAP_FREE are free."""
        self.buffers = TableBuffers(len(groups))

    @property
    def groups(self) -> range:
        """Indices of the cache groups."""
        return range(len(self.windows.groups))

    def roll_back(self) -> None:
        """The operation has failed: nothing has happened."""
        self.buffers.forget()
        self.journal.roll_back()

    def copy(self) -> "ManagerState":
        """The same state; ids, namespaces and the hash function are shared."""
        twin = twin_of(self)
        twin.journal = self.journal.copy()
        twin.events = self.events.copy(twin.journal)
        twin.paths = self.paths.copy(twin.journal)
        twin.index = self.index.copy(twin.paths, twin.journal, twin.events)
        twin.pool, twin.rows = self.pool.copy(twin.index, twin.journal), self.rows.copy(twin.journal)
        twin.buffers = TableBuffers(len(self.groups))
        return twin

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
            self.paths.drop(old)
        self.rows.set(PATH, row, node)
