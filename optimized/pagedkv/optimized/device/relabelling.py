"""permute: the blocks get other numbers, and nothing that can be observed through the tables changes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pagedkv.optimized.device.state import PoolShape, PoolState


def permute(shape: PoolShape, state: PoolState, new_block: Tensor, caches: Sequence[Tensor]) -> None:
    """What block `b` held, block `new_block[b]` holds, (num_blocks,)."""
    new = new_block.to(torch.int64)
    for each in (state.references, state.owned, state.lent):
        each.copy_(torch.empty_like(each).index_copy_(0, new, each))
    for named in (state.tables, state.free_list):
        is_block = (named >= 0) & (named < shape.num_blocks)  # holes, and what is behind the end of a row
        relabelled = new[named.masked_fill(~is_block, 0).to(torch.int64)].to(torch.int32)
        named.copy_(torch.where(is_block, relabelled, named))
    for cache in caches:
        cache.copy_(torch.empty_like(cache).index_copy_(0, new, cache))
