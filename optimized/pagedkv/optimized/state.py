"""What a manager consists of, and the rules that several operations share.

The rules themselves are functions over this state, in modules that follow the chapters of the specification:
`admission`, `growth` (and `batch`, the same for many rows at once), `residency`. `manager` is the public face.
"""

from typing import TypeVar

import numpy as np

from pagedkv.optimized.arguments import Int32, Int64
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.index import HashFunction, Node, PrefixIndex
from pagedkv.optimized.pool import BlockPool
from pagedkv.optimized.rows import Rows
from pagedkv.spec.words import Config, Namespace, Reason, Refused


IntOrArray = TypeVar("IntOrArray", int, Int64)


class ManagerState:
    """Pool, prefix index, rows, pins and counters of one manager."""

    def __init__(self, config: Config, hash_function: HashFunction) -> None:
        self.config = config
        self.index = PrefixIndex(config.num_blocks, config.block_size, hash_function)
        self.pool = BlockPool(config.num_blocks, self.index)
        self.rows = Rows()
        self.pins: dict[tuple[Namespace, bytes], list[Int32]] = {}
        """For each pinned prefix (namespace, tokens) the blocks of each pin, the latest last."""
        self.swap_free = list(range(config.swap_blocks - 1, -1, -1))
        """Free blocks of swap space, a stack."""
        self.hit_tokens = self.copy_on_writes = self.preemptions = 0

    def copy(self) -> "ManagerState":
        """The same state; ids, namespaces and the hash function are shared."""
        twin = twin_of(self)
        twin.index, nodes = self.index.copy()
        twin.pool, twin.rows = self.pool.copy(twin.index), twin_of(self.rows)
        twin.rows.cursor = [node and nodes[node] for node in self.rows.cursor]
        twin.pins = {pinned: stack.copy() for pinned, stack in self.pins.items()}
        return twin

    def refusal(self, need: int, total: int, *, entering: bool = False) -> Refused | None:
        """The one place where capacity refuses: `need` blocks must be available, and `total` must fit the pool."""
        limit = self.config.max_requests
        if total > self.config.num_blocks:
            return Refused(Reason.UNSERVABLE)
        if entering and limit is not None and self.rows.resident >= limit:
            return Refused(Reason.MAX_REQUESTS)
        if need > self.pool.available:
            would_fit = need <= self.pool.available + len(self.pool.held)
            return Refused(Reason.IN_FLIGHT if would_fit else Reason.CAPACITY)
        return None

    def match(self, namespace: Namespace, tokens: Int32, limit: int) -> list[Node]:
        return self.index.match(namespace, tokens, limit) if self.config.prefix_cache else []

    def move_cursor(self, row: int, node: Node | None) -> None:
        """The row's full computed blocks now end at this path (None: it needs no path)."""
        old = self.rows.cursor[row]
        if node is not None:
            self.index.hold(node)
        if old is not None:
            self.index.drop(old)
        self.rows.cursor[row] = node

    def release_table(self, row: int, keep: int = 0) -> None:
        """Release the blocks of a row past its first `keep` table entries, the last first: children before parents."""
        rows = self.rows
        start = max(keep, int(rows.holes[row]))
        self.pool.release(rows.tables[row, start : rows.blocks[row]][::-1].copy())
        rows.blocks[row] = min(keep, int(rows.blocks[row]))

    def dead_blocks(self, computed: IntOrArray) -> IntOrArray:
        """Leading blocks that hold only dead positions once `computed` positions are written; of many rows at once."""
        window = self.config.sliding_window
        if window is None:
            return computed * 0
        dead = computed - window + 1 - self.config.max_rollback
        return dead * (dead > 0) // self.config.block_size


def blocks_of(nodes: list[Node]) -> Int32:
    """The blocks that hold these paths, (count,)."""
    return np.array([node.block for node in nodes], np.int32)
