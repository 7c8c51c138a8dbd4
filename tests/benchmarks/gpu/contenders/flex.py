"""FlexAttention over pages: `torch.nn.attention.experimental._paged_attention.PagedAttention` on our tables.

Its own tables are filled from ours, so that both read the same blocks. The mask is made once, as an engine would for a
step; a new mask means a new table of blocks, and the compiled kernel stays.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pagedkv.spec.words import ceil_div
from tests.benchmarks.gpu.contenders.common import Attend, Unserved, absent, first_of
from tests.benchmarks.gpu.inputs import Inputs

FLEX = "torch.nn.attention.flex_attention"
PAGED = "torch.nn.attention.experimental._paged_attention"
MOST_CELLS = 2**28
"""Entries of its tables, which have a column for every block of the pool in every request."""


class Flex:
    """Equal requests; compiled once a shape, which takes long, so that it is timed on few."""

    name = "torch FlexAttention, paged"
    until_tier = 0

    def available(self, device: torch.device) -> str | None:
        return absent(device, PAGED)

    def prepare(self, inputs: Inputs) -> Sequence[Attend]:
        shape = inputs.shape
        requests, rows = len(shape.lengths), shape.rows[0]
        if {*shape.rows} != {rows} or len({*shape.lengths}) > 1:
            raise Unserved("takes requests of one length only")
        if requests * len(inputs.k_cache) > MOST_CELLS:
            raise Unserved("its tables have a column for every block of the pool in every request")
        attend = torch.compile(first_of(FLEX).flex_attention, dynamic=False)
        query = inputs.query.view(requests, rows, *inputs.query.shape[1:]).transpose(1, 2)
        flat = [cache.flatten(0, 1).transpose(0, 1)[None] for cache in (inputs.k_cache, inputs.v_cache)]
        keys = [cache.expand(requests, -1, -1, -1) for cache in flat]  # all requests share the pool
        calls: list[Attend] = []
        for table in inputs.tables:
            mask = block_mask(inputs, table)
            options = {"block_mask": mask, "scale": inputs.scale, "enable_gqa": shape.group > 1}
            calls.append(partial(_flex, attend, query, keys, options))
        return calls


def _flex(attend: Callable[..., Tensor], query: Tensor, keys: list[Tensor], options: dict[str, Any]) -> Tensor:
    return attend(query, *keys, **options).transpose(1, 2)


def block_mask(inputs: Inputs, table: Tensor) -> Any:
    """The causal mask over the physical blocks that `table` names; all requests have one length."""
    shape, device = inputs.shape, table.device
    requests, rows, length = len(shape.lengths), shape.rows[0], shape.lengths[0]
    blocks = ceil_div(length, shape.block_size)
    paged = first_of(PAGED).PagedAttention(len(inputs.k_cache), shape.block_size, requests, device=str(device))
    named = table[:, :blocks].long()
    paged.page_table[:, :blocks] = named
    logical = torch.arange(blocks, device=device).expand(requests, -1)
    paged.physical_to_logical.scatter_(1, named, logical)

    def causal(b: Tensor, h: Tensor, row: Tensor, position: Tensor) -> Tensor:
        return position <= row + (length - rows)

    sizes = (ceil_div(rows, 128) * 128, shape.block_size)
    plain = first_of(FLEX).create_block_mask(causal, requests, None, rows, length, device=str(device), BLOCK_SIZE=sizes)
    return paged.convert_logical_block_mask(plain, kv_len=inputs.seq_lens.long())
