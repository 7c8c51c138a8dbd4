"""The state of a device pool: tensors of fixed shapes, and the numbers that they were made with."""

from dataclasses import dataclass, fields, replace
from typing import Final

import torch
from torch import Tensor

from pagedkv.optimized.device.outcomes import NUM_COUNTERS, NUM_FREE
from pagedkv.spec.words import ceil_div

IN_USE: Final = 0
LENGTH: Final = 1
HOLES: Final = 2
NUM_NUMBERS: Final = 3
"""Lines of `PoolState.numbers`: 1 for a row in use, its tokens, and the table entries that a window has released."""


MOST: Final = 2**30
"""Of table entries of a pool, and of positions of a row: so that their numbers, and small sums of them, are int32."""
NO_LIMIT: Final = 2**62
"""Of the slots of a call that asks for none."""
UNCLAIMED: Final = 2**31 - 1


@dataclass(frozen=True)
class PoolShape:
    """What a pool is made with; see `DevicePool`."""

    num_blocks: int
    block_size: int
    num_rows: int
    max_blocks: int
    """Entries of a table row."""
    sliding_window: int | None
    sink_tokens: int
    max_rollback: int
    leased: bool = False
    """Whether it begins without blocks of its own."""

    @property
    def sink_blocks(self) -> int:
        """Leading blocks that never die."""
        return 0 if self.sliding_window is None else ceil_div(self.sink_tokens, self.block_size)

    @property
    def kept(self) -> int:
        """Positions before the end of what is computed that a window keeps."""
        return 0 if self.sliding_window is None else self.sliding_window - 1 + self.max_rollback


@dataclass(frozen=True)
class PoolState:
    """All on one device, and contiguous."""

    numbers: Tensor
    """(NUM_NUMBERS, num_rows) int32; see `IN_USE`."""
    tables: Tensor
    """(num_rows, max_blocks) int32. Past the blocks of a row: anything."""
    references: Tensor
    """(num_blocks,) int32: table entries, and one for a block that the host has lent."""
    free_list: Tensor
    """(num_blocks,) int32: a stack, of which counters[NUM_FREE] entries from the beginning are in use."""
    counters: Tensor
    """(NUM_COUNTERS,) int64."""
    owned: Tensor
    """(num_blocks,) int32: 1 for a block that the pool may hand out."""
    lent: Tensor
    """(num_blocks,) int32: 1 for a block of the host's, which may be read here and never written."""
    claims: Tensor
    """(num_rows,) int32, between calls `UNCLAIMED`: where in a call a row stands first."""
    writers: Tensor
    """(num_blocks,) int32, between calls 0: rows of a call that would write into a shared block."""
    last_writer: Tensor
    """(num_blocks,) int32, between calls -1: the last of them."""
    last_release: Tensor
    """(num_blocks,) int32, between calls -1: the last table entry of a call that gives a block back."""

    def clone(self) -> "PoolState":
        """The same state in memory of its own."""
        return replace(self, **{field.name: getattr(self, field.name).clone() for field in fields(self)})


@torch.inference_mode(mode=False)  # an engine may make it inside, and what is made inside cannot be changed outside
def empty_state(shape: PoolShape, device: torch.device) -> PoolState:
    """A pool without requests. Block 0 is the first to be handed out."""
    blocks, rows, owns_all = shape.num_blocks, shape.num_rows, not shape.leased

    def filled(value: int, *size: int) -> Tensor:
        if value == 0:  # memory that is not touched until it is used
            return torch.zeros(size, dtype=torch.int32, device=device)
        return torch.full(size, value, dtype=torch.int32, device=device)

    counters = torch.zeros(NUM_COUNTERS, dtype=torch.int64, device=device)
    counters[NUM_FREE : NUM_FREE + 1].fill_(blocks * owns_all)
    return PoolState(
        numbers=filled(0, NUM_NUMBERS, rows),
        tables=filled(0, rows, shape.max_blocks),
        references=filled(0, blocks),
        free_list=torch.arange(blocks - 1, -1, -1, dtype=torch.int32, device=device),
        counters=counters,
        owned=filled(int(owns_all), blocks),
        lent=filled(0, blocks),
        claims=filled(UNCLAIMED, rows),
        writers=filled(0, blocks),
        last_writer=filled(-1, blocks),
        last_release=filled(-1, blocks),
    )
