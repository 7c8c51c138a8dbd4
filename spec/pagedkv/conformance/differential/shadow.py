"""What was written where: a shadow of the pool's contents, without tensors.

The KV of a position is a function of the namespace and of all tokens up to it, so one number, a chained digest of
that path, stands for its keys and values. The shadow carries out what a plan tells an engine to do (copies, then
writes; swaps by the reported pairs) on an array of such numbers, and then asks of every request whether its computed
positions, read through the *subject's* table, hold what they must. It catches what tables alone cannot show: a copy
forgotten or made too late, a write into a shared block, a hit on another prefix, a swap restored in another order.
"""

from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from pagedkv.spec import HOLE, Block, Config, Copy, RequestId, Token, ceil_div

Digests = NDArray[np.int64]


def path_digests(previous: int, tokens: Sequence[Token]) -> Digests:
    """One digest a position, each chained to the one before it."""
    digests = np.empty(len(tokens), np.int64)
    for i, token in enumerate(tokens):
        previous = hash((previous, token))
        digests[i] = previous
    return digests


class Shadow:
    """Digests by slot, by swap block, and the digests that each request should find."""

    def __init__(self, config: Config) -> None:
        self.block_size = config.block_size
        self.pool: Digests = np.zeros((config.num_blocks, config.block_size), np.int64)
        self.swap: Digests = np.zeros((config.swap_blocks, config.block_size), np.int64)
        self.swapped: dict[RequestId, tuple[Block, ...]] = {}
        """Swap blocks of each swapped request, in the order of its table (holes left out)."""
        self.expected: dict[RequestId, Digests] = {}

    def admit(self, request: RequestId, namespace: object, tokens: Sequence[Token]) -> None:
        self.expected[request] = path_digests(hash(("namespace", namespace)), tokens)

    def append(self, request: RequestId, tokens: Sequence[Token]) -> None:
        known = self.expected[request]
        self.expected[request] = np.concatenate([known, path_digests(int(known[-1]), tokens)])

    def truncate(self, request: RequestId, length: int) -> None:
        self.expected[request] = self.expected[request][:length]

    def copy(self) -> "Shadow":
        twin = copy(self)
        twin.pool, twin.swap = self.pool.copy(), self.swap.copy()
        twin.swapped, twin.expected = dict(self.swapped), dict(self.expected)
        return twin

    def copy_blocks(self, copies: Sequence[Copy]) -> None:
        """All together: every source is read before any destination is written."""
        if copies:
            sources, destinations = np.asarray(copies).T
            self.pool[destinations] = self.pool[sources]

    def write(self, request: RequestId, table: Sequence[Block], start: int, end: int) -> None:
        """The KV of the positions start..end-1 is computed and stored through the table."""
        positions = np.arange(start, end)
        blocks = np.asarray(table, np.int64)[positions // self.block_size]
        self.pool[blocks, positions % self.block_size] = self.expected[request][start:end]

    def save(self, request: RequestId, table: Sequence[Block], pairs: Sequence[Copy]) -> str | None:
        """Swap out by the reported pairs; what is wrong with them, or None. No pairs reported: in table order."""
        live = [block for block in table if block != HOLE]
        taken = {block for blocks in self.swapped.values() for block in blocks}
        if not pairs:
            room = (block for block in range(len(self.swap)) if block not in taken)
            pairs = [Copy(block, next(room)) for block in live]
        by_source = dict(pairs)
        if sorted(by_source) != sorted(live) or len(pairs) != len(live):
            return f"saved blocks {sorted(s for s, _ in pairs)}, the table holds {sorted(live)}"
        homes = [destination for _, destination in pairs]
        if len(set(homes)) != len(homes) or taken & set(homes) or not all(0 <= h < len(self.swap) for h in homes):
            return f"swap blocks {homes} are not distinct, free blocks of 0..{len(self.swap) - 1}"
        self.swapped[request] = tuple(by_source[block] for block in live)
        for source, destination in pairs:
            self.swap[destination] = self.pool[source]
        return None

    def restore(self, request: RequestId, table: Sequence[Block], pairs: Sequence[Copy]) -> str | None:
        """Swap in by the reported pairs; what is wrong with them, or None. Whether they arrive where they belong is
        seen when the positions are read."""
        live, homes = [block for block in table if block != HOLE], self.swapped.pop(request)
        pairs = pairs or [Copy(home, block) for home, block in zip(homes, live, strict=True)]
        if sorted(p.source for p in pairs) != sorted(homes) or sorted(p.destination for p in pairs) != sorted(live):
            return f"restores {list(pairs)}, saved were {list(homes)}, the table holds {live}"
        for source, destination in pairs:
            self.pool[destination] = self.swap[source]
        return None

    def forget(self, request: RequestId) -> None:
        self.expected.pop(request, None)
        self.swapped.pop(request, None)

    def permute(self, new_block: Sequence[Block]) -> None:
        moved = np.empty_like(self.pool)
        moved[np.asarray(new_block)] = self.pool
        self.pool = moved

    def wrong_position(self, request: RequestId, table: Sequence[Block], start: int, end: int) -> int | None:
        """The first of the positions start..end-1 that does not hold what it must; holes are skipped."""
        if end <= start:
            return None
        blocks = np.asarray(table[: ceil_div(end, self.block_size)])
        found = self.pool[blocks].reshape(-1)[start:end]
        wrong = (found != self.expected[request][start:end]) & (np.repeat(blocks, self.block_size)[start:end] != HOLE)
        return start + int(np.argmax(wrong)) if wrong.any() else None
