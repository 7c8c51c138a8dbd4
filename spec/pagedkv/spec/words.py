"""Chapter 1. The words.

A *request* is one conversation: a sequence of *tokens* at *positions* 0, 1, 2, … Its keys and values lie in *blocks*
of `block_size` tokens. Its *block table* maps logical indices (position // block_size) to physical blocks, and

    slot = table[position // block_size] * block_size + position % block_size

is where the KV of a position lies. The *pool* has `num_blocks` usable blocks. Every operation answers `Ok` or
`Refused`: **Refused changes nothing**. Running out of memory is data. Calling an operation in a way that can never
be right is *misuse*, an exception, and changes nothing either. (Kwon et al., SOSP 2023, §4.)
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple, TypeAlias

from pagedkv.spec.misuse import Misuse, check_id, check_integer

__all__ = [
    "HOLE", "Block", "Config", "Copy", "Identity", "Misuse", "Namespace", "Ok", "Outcome", "PreemptMode", "Reason",
    "Refused", "RequestId", "Slot", "StepId", "Token", "ceil_div", "check_id", "check_integer",
]  # fmt: skip

Token: TypeAlias = int
RequestId: TypeAlias = Hashable
Namespace: TypeAlias = Hashable  # tenant, adapter, salt: what identifies a prefix besides its tokens
StepId: TypeAlias = Hashable
Block: TypeAlias = int
Slot: TypeAlias = int
PreemptMode: TypeAlias = Literal["recompute", "swap"]

HOLE: Final = -1
"""What a block table holds where a sliding window has released a block; indices after it stay aligned."""


class Reason(StrEnum):
    """Why an operation is refused; the list is closed. Where several hold, the first in this order is given."""

    UNSERVABLE = "unservable"
    """The request would hold more blocks than the pool has: it never fits."""
    MAX_REQUESTS = "max_requests"
    """`max_requests` requests are resident."""
    RELEASED = "released"
    """A truncate would bring back positions that the sliding window has released."""
    PINNED = "pinned"
    """The prefix index cannot be reset while pins exist."""
    SWAP_SPACE = "swap_space"
    """The blocks to save exceed what is left of `swap_blocks`."""
    IN_FLIGHT = "in_flight"
    """It would fit but for blocks held by steps in flight."""
    CAPACITY = "capacity"
    """More blocks are needed than are available."""


class Copy(NamedTuple):
    """A copy of one whole block that runs before the writes of the plan that lists it."""

    source: Block
    destination: Block


@dataclass(frozen=True)
class Ok:
    """The operation was carried out. Fields that an operation does not set keep their defaults."""

    cached_tokens: int = 0
    """admit, resume: positions whose KV was found. lookup, pin: length of the present prefix. In tokens."""
    slots: tuple[Slot, ...] = ()
    """append, reserve: the slots of the positions handed out, in order."""
    copies: tuple[Copy, ...] = ()
    """append, reserve: the copy-on-writes to run first."""
    remapped: tuple[Copy, ...] = ()
    """commit, with `dedup`: (block given up, block that took its place)."""
    swapped: tuple[Copy, ...] = ()
    """preempt by swap: (block, swap block) to save; resume: the reverse. Which swap block is free: () here."""
    evicted: int = 0
    """evict: index entries dropped."""


@dataclass(frozen=True)
class Refused:
    """The operation could not be carried out; the state is as it was."""

    reason: Reason


Outcome: TypeAlias = Ok | Refused


class Identity(NamedTuple):
    """What a full block holds: the namespace and the *whole* token path up to the block's end.

    Two blocks with the same sixteen tokens after different beginnings hold different KV, so the tokens of the block
    alone are no identity.
    """

    namespace: Namespace
    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class Config:
    """What a pool is made with. The options are those of the trace header."""

    num_blocks: int
    block_size: int
    prefix_cache: bool = True
    sliding_window: int | None = None
    """Positions that a query sees, itself included; None: all."""
    sink_tokens: int = 0
    """With a window: so many positions from the beginning are seen for ever, and never released."""
    max_rollback: int = 0
    """Positions kept beyond the window, so that a rejected draft can be truncated."""
    swap_blocks: int = 0
    """Blocks of swap space."""
    max_requests: int | None = None
    """Requests that may be resident at once; None: any number."""
    overlapped_steps: bool = False
    """Forwards may be in flight while the next is planned: released blocks are held until they end."""
    publish: Literal["commit", "schedule"] = "commit"
    """When a full block enters the prefix index: once its KV is written, or once the write is planned."""
    dedup: bool = False
    """commit may replace a block by one of the same identity."""

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size"):
            check_integer(name, getattr(self, name), 1)
        for name in ("sink_tokens", "max_rollback", "swap_blocks"):
            check_integer(name, getattr(self, name), 0)
        for name in ("sliding_window", "max_requests"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)
        for name in ("prefix_cache", "overlapped_steps", "dedup"):
            if type(getattr(self, name)) is not bool:
                raise Misuse(name, getattr(self, name), "True or False")
        if self.publish not in ("commit", "schedule"):
            raise Misuse("publish", self.publish, "'commit' or 'schedule'")
        if self.dedup and self.publish == "schedule":
            raise Misuse("dedup", True, "False with publish='schedule': a block is compared once it is written")


def ceil_div(length: int, block_size: int) -> int:
    """Blocks that `length` tokens fill, the last one perhaps partly: 5 tokens fill 2 blocks of 4."""
    return -(-length // block_size)
