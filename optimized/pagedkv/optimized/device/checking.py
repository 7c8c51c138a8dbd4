"""The invariants of a device pool, counted on the device: nothing waits until somebody reads the counts."""

from typing import Final

import torch
from torch import Tensor

from pagedkv.optimized.device.outcomes import NUM_FREE
from pagedkv.optimized.device.state import HOLES, IN_USE, LENGTH, UNCLAIMED, PoolShape, PoolState

INVARIANTS: Final = (
    "rows that are not in use are empty",
    "a row has no more blocks than its table has room for",
    "holes lie within the full blocks of a row, behind its sinks",
    "a table names blocks of the pool, and holes where the window has released one",
    "no block stands twice in one table",
    "a block is the pool's own, lent by the host, or in no table",
    "references = table entries, and one for a lent block",
    "the free list names blocks of the pool, each once",
    "a block is on the free list if it is the pool's own and nothing refers to it",
    "between calls the working memory is as it was made",
)
"""Each counts the rows or blocks that break it."""


def broken(shape: PoolShape, state: PoolState) -> Tensor:
    """(len(INVARIANTS),) int64: how often each of them is broken."""
    blocks = shape.num_blocks
    numbers, tables = state.numbers, state.tables.to(torch.int64)
    in_use, length, holes = numbers[IN_USE] > 0, numbers[LENGTH], numbers[HOLES]
    used = -(-length // shape.block_size)
    column = torch.arange(shape.max_blocks, device=tables.device)
    is_entry = column < used[:, None]
    is_hole = (column >= shape.sink_blocks) & (column < shape.sink_blocks + holes[:, None])
    names_block = is_entry & ~is_hole
    is_block = (tables >= 0) & (tables < blocks)
    named = torch.where(names_block & is_block, tables, blocks)

    in_order = named.sort(1).values
    twice = (in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] < blocks)
    entries = _tally(named.view(-1), blocks)
    free = torch.arange(blocks, device=tables.device) < state.counters[NUM_FREE]
    is_listed = free & (state.free_list >= 0) & (state.free_list < blocks)
    on_list = _tally(torch.where(is_listed, state.free_list, blocks).to(torch.int64), blocks)
    owned, lent, references = (each.to(torch.int64) for each in (state.owned, state.lent, state.references))
    counts = (
        ~in_use & ((length != 0) | (holes != 0)),
        used > shape.max_blocks,
        (holes > 0) & (holes + shape.sink_blocks > length // shape.block_size),
        torch.where(is_hole & is_entry, tables != -1, names_block & ~is_block).any(1),
        twice.any(1),
        owned + lent + (entries > 0) * (1 - owned) * (1 - lent) * 2 > 1,
        references != entries + lent,
        torch.cat([on_list > 1, free & ~is_listed, state.counters[NUM_FREE : NUM_FREE + 1] > blocks]),
        (on_list > 0) != ((owned > 0) & (references == 0)),
        torch.cat([
            state.claims != UNCLAIMED, state.writers != 0, state.last_writer != -1, state.last_release != -1,
        ]),
    )  # fmt: skip
    return torch.stack([each.sum() for each in counts])


def _tally(named: Tensor, count: int) -> Tensor:
    """(count,) int64: how often each number below `count` is named."""
    return torch.zeros(count + 1, dtype=torch.int64, device=named.device).index_add_(0, named, torch.ones_like(named))[
        :count
    ]
