"""Blocks between the host and the pool. Each block is owned by one of the two, and that one alone hands it out.

What is here moves a few numbers once in a while, so torch's own operations do it; they do not wait for the device
either.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pagedkv.optimized.device.outcomes import NUM_FREE
from pagedkv.optimized.device.state import HOLES, IN_USE, LENGTH, PoolShape, PoolState


class ExportedRows(NamedTuple):
    """Rows as the host takes them back, on the device. Zeros of rows that do not exist or are not in use."""

    block_tables: Tensor
    """(num_asked, max_blocks) int32"""
    seq_lens: Tensor
    """(num_asked,) int32"""
    num_holes: Tensor
    """(num_asked,) int32"""
    goes_along: Tensor
    """(num_asked, max_blocks) bool: a block of the pool's own that only this row has: `hand_over` gives it away."""


def export(shape: PoolShape, state: PoolState, rows: Tensor) -> ExportedRows:
    """See `DevicePool.export`."""
    at = rows.to(torch.int64).clamp(0, shape.num_rows - 1)
    numbers = state.numbers.index_select(1, at)
    known = (rows == at) & (numbers[IN_USE] > 0)
    length = numbers[LENGTH] * known
    column = torch.arange(shape.max_blocks, device=rows.device)
    inside = column < ((length + shape.block_size - 1) // shape.block_size)[:, None]
    tables = state.tables.index_select(0, at) * inside
    blocks = tables.clamp(min=0).view(-1)  # a hole is no block, and block 0 stands in for it
    alone = (state.references.index_select(0, blocks) == 1) & (state.owned.index_select(0, blocks) > 0)
    along = alone.view(tables.shape) & inside & (tables >= 0)
    return ExportedRows(tables, length, numbers[HOLES] * known, along)


def lease(state: PoolState, blocks: Tensor) -> None:
    """See `DevicePool.lease`."""
    place = state.counters[NUM_FREE] + torch.arange(len(blocks), device=blocks.device)
    most = len(state.free_list)  # where blocks are named twice, memory stays whole, and `check` finds them
    place = place.clamp(max=most - 1)
    state.free_list.index_copy_(0, place, blocks.to(torch.int32))
    state.owned.index_fill_(0, blocks.to(torch.int64), 1)
    state.counters[NUM_FREE].add_(len(blocks)).clamp_(max=most)


def return_lease(state: PoolState, count: int) -> Tensor:
    """See `DevicePool.return_lease`."""
    place = state.counters[NUM_FREE] - 1 - torch.arange(count, device=state.counters.device)
    there = place >= 0
    blocks = state.free_list.index_select(0, place.clamp(min=0)) * there  # what is above the stack may be anything
    state.owned.index_add_(0, blocks, -there.to(torch.int32))
    state.counters[NUM_FREE] -= there.sum()
    return blocks.masked_fill(~there, -1)


def end_loan(state: PoolState, blocks: Tensor) -> None:
    """See `DevicePool.end_loan`."""
    at = blocks.to(torch.int64)
    state.lent.index_fill_(0, at, 0)
    state.references.index_add_(0, at, torch.full_like(at, -1, dtype=torch.int32))
