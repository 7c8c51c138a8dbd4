"""What the operations of the block manager stand on: requests, their tables, and the one test for refusal."""

from dataclasses import dataclass, field
from typing import Literal

from pagedkv.reference.index import Prefix
from pagedkv.reference.pool import BlockPool
from pagedkv.spec.words import (
    HOLE,
    Block,
    Config,
    Misuse,
    Namespace,
    Reason,
    Refused,
    RequestId,
    Slot,
    Token,
    ceil_div,
)


@dataclass(slots=True)
class Request:
    """One request. While it is resident its table has ceil(reserved / block_size) entries."""

    namespace: Namespace
    tokens: list[Token]
    reserved: int = 0
    """Positions that have a slot; those past `tokens` are lookahead."""
    computed: int = 0
    """Positions whose KV is written."""
    table: list[Block] = field(default_factory=list)
    """Sinks, then `holes` entries that are `HOLE`, then what lives."""
    holes: int = 0
    residency: Literal["resident", "recompute", "swap"] = "resident"
    """How a preempted request comes back, or that it is there."""
    saved: list[Block] = field(default_factory=list)
    """Swapped out: its blocks of swap space, in logical order."""
    prefixes: list[Prefix] = field(default_factory=list)
    """Of its first full blocks; `prefix` makes the missing ones."""

    @property
    def length(self) -> int:
        return len(self.tokens)

    def prefix(self, logical: int, block_size: int) -> Prefix:
        """The prefix that ends with its full block number `logical`."""
        for i in range(len(self.prefixes), logical + 1):
            parent = self.prefixes[i - 1] if i else None
            tokens = tuple(self.tokens[i * block_size : (i + 1) * block_size])
            self.prefixes.append(Prefix(self.namespace, parent, tokens))
        return self.prefixes[logical]

    def slots(self, start: int, end: int, block_size: int) -> tuple[Slot, ...]:
        """Where the KV of the positions `start..end-1` lies."""
        return tuple(self.table[p // block_size] * block_size + p % block_size for p in range(start, end))

    def copy(self) -> "Request":
        return Request(
            self.namespace, self.tokens.copy(), self.reserved, self.computed, self.table.copy(), self.holes,
            self.residency, self.saved.copy(), self.prefixes.copy(),
        )  # fmt: skip


class ManagerBase:
    """A pool and the requests that live in it."""

    def __init__(self, config: Config, pool: BlockPool | None = None) -> None:
        if not isinstance(config, Config):
            raise Misuse("config", config, "a Config")
        self.config = config
        self.pool = pool or BlockPool(config)
        self.requests: dict[RequestId, Request] = {}
        self.pins: dict[tuple[Namespace, tuple[Token, ...]], list[list[Block]]] = {}
        """For each pinned path the blocks of each of its pins, the latest last."""
        self.free_swap: list[Block] = list(range(config.swap_blocks))
        """Blocks of swap space, numbered from 0, that hold nothing."""
        self.sinks = 0 if config.sliding_window is None else ceil_div(config.sink_tokens, config.block_size)
        """Leading blocks of a table that the sliding window never releases."""

    def _known(self, request: RequestId, argument: str = "request") -> Request:
        try:
            return self.requests[request]
        except (KeyError, TypeError):
            raise Misuse(argument, request, "a request that was admitted and not freed") from None

    def _resident(self, request: RequestId, argument: str = "request") -> Request:
        entry = self._known(request, argument)
        if entry.residency != "resident":
            raise Misuse(argument, request, "a resident request; this one is preempted (resume it first)")
        return entry

    def _refusal(self, blocks: int, need: int, joins: bool = False, held_hits: int = 0) -> Refused | None:
        """Whether an operation is refused: the request would hold `blocks`, `need` of them available ones.

        `joins`: it would become resident. `held_hits`: held blocks that it would use again.
        """
        if blocks > self.pool.num_blocks:
            return Refused(Reason.UNSERVABLE)
        if joins and self._is_full():
            return Refused(Reason.MAX_REQUESTS)
        if need > self.pool.available:
            fits_later = need <= self.pool.available + len(self.pool.held) - held_hits
            return Refused(Reason.IN_FLIGHT if fits_later else Reason.CAPACITY)
        return None

    def _is_full(self) -> bool:
        most = self.config.max_requests
        return most is not None and most <= sum(r.residency == "resident" for r in self.requests.values())

    def _dead_blocks(self, computed: int) -> int:
        """Blocks after the sinks that hold only positions which the sliding window has passed for good."""
        if self.config.sliding_window is None:
            return 0
        dead = computed - self.config.sliding_window + 1 - self.config.max_rollback
        return max(0, dead // self.config.block_size - self.sinks)

    def _with_holes(self, blocks: list[Block], holes: int) -> list[Block]:
        """A table with so many holes after the sinks."""
        return blocks[: self.sinks] + [HOLE] * holes + blocks[self.sinks :]

    def _release_table(self, entry: Request, keep: int = 0) -> None:
        """Release the table past its first `keep` entries, the last block first."""
        for block in reversed(entry.table[keep:]):
            if block != HOLE:
                self.pool.release(block)
        del entry.table[keep:]
        entry.holes = entry.table.count(HOLE)

    def _publish(self, entry: Request, logical: int, written: bool = True) -> Block:
        """Enter a full block into the index, unless its prefix is there; the block that the index has for it now."""
        index = self.pool.index
        present = index.insert(entry.prefix(logical, self.config.block_size), entry.table[logical], written)
        entry.prefixes[logical] = index.prefix_of[present]  # equal; a chain in common ends comparisons at once
        return present

    def _publish_planned(self, entry: Request, start: int) -> None:
        """With `publish="schedule"`: full blocks that end after `start` enter the index before they are written."""
        if not self.config.prefix_cache or self.config.publish != "schedule":
            return
        size = self.config.block_size
        for i in range(start // size, min(entry.reserved, entry.length) // size):
            if entry.table[i] != HOLE:
                self._publish(entry, i, written=False)
