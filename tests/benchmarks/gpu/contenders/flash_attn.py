"""FlashAttention: version 3 where it is installed (`flash_attn_interface`), else version 2 (`flash_attn`).

Version 2 takes pages of 256 and its multiples only; what it does not take, it refuses by itself, and the line says so.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tests.benchmarks.gpu.contenders.common import Attend, Unserved, absent, first_of
from tests.benchmarks.gpu.inputs import Inputs

MODULES = ("flash_attn_interface", "flash_attn")


class FlashAttention:
    """`flash_attn_with_kvcache`, for requests that bring equally many rows."""

    name = "FlashAttention"
    until_tier = 1

    def available(self, device: torch.device) -> str | None:
        return absent(device, *MODULES)

    def prepare(self, inputs: Inputs) -> Sequence[Attend]:
        shape = inputs.shape
        if len({*shape.rows}) > 1:
            raise Unserved("flash_attn_with_kvcache takes requests with equally many rows only")
        module = first_of(*MODULES)
        query = inputs.query.view(len(shape.rows), shape.rows[0], *inputs.query.shape[1:])
        name = "page_table" if module.__name__ == MODULES[0] else "block_table"
        options: dict[str, Any] = {"cache_seqlens": inputs.seq_lens, "softmax_scale": inputs.scale, "causal": True}
        return [
            partial(_attend, module, query, inputs.k_cache, inputs.v_cache, **options, **{name: table})
            for table in inputs.tables
        ]


def _attend(module: Any, *tensors: Tensor, **options: Any) -> Tensor:
    result = module.flash_attn_with_kvcache(*tensors, **options)
    out: Tensor = result[0] if isinstance(result, tuple) else result
    return out
