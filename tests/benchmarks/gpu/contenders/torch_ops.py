"""What torch brings: `varlen_attn` over pages and over contiguous keys, and `scaled_dot_product_attention`.

Contiguous keys and values are no paged cache: they are what attention could be at best if nothing were paged.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tests.benchmarks.gpu.contenders.common import Attend, Unserved, absent, accepted, first_of
from tests.benchmarks.gpu.inputs import Inputs

VARLEN = "torch.nn.attention.varlen"


class Varlen:
    """`torch.nn.attention.varlen.varlen_attn`, whose pages came with torch 2.13."""

    def __init__(self, *, paged: bool) -> None:
        self.paged = paged
        self.name = f"torch varlen_attn, {'paged' if paged else 'contiguous'}"
        self.until_tier = 1

    def available(self, device: torch.device) -> str | None:
        missing = absent(device, VARLEN)
        if missing is None and self.paged and not accepted(first_of(VARLEN).varlen_attn, block_table=None):
            return f"varlen_attn of torch {torch.__version__} has no block_table"
        return missing

    def prepare(self, inputs: Inputs) -> Sequence[Attend]:
        attend = first_of(VARLEN).varlen_attn
        shape = inputs.shape
        options = accepted(attend, window_size=(-1, 0), enable_gqa=shape.group > 1, scale=inputs.scale)
        if "window_size" not in options:  # torch 2.10 and before
            options["is_causal"] = True
        ends = dict(max_q=max(shape.rows), max_k=max(shape.lengths), **options)
        calls: list[Attend] = []
        for copy, table in enumerate(inputs.tables):
            if self.paged:
                pages: dict[str, Any] = {"seqused_k": inputs.seq_lens, "block_table": table, "cu_seq_k": None}
                keys = inputs.k_cache, inputs.v_cache
            else:
                pages = {"cu_seq_k": starts(inputs.seq_lens)}
                keys = inputs.contiguous(copy)
            calls.append(partial(attend, inputs.query, *keys, cu_seq_q=inputs.cu_seqlens_q, **pages, **ends))
        return calls


class Sdpa:
    """`scaled_dot_product_attention` over contiguous keys, for requests that are all alike."""

    name = "torch SDPA, contiguous"
    until_tier = 1

    def available(self, device: torch.device) -> str | None:
        return None

    def prepare(self, inputs: Inputs) -> Sequence[Attend]:
        shape = inputs.shape
        requests, rows, length = len(shape.lengths), shape.rows[0], shape.lengths[0]
        if {*shape.rows} != {rows} or {*shape.lengths} != {length}:
            raise Unserved("takes requests of one length only")
        query = inputs.query.view(requests, rows, *inputs.query.shape[1:]).transpose(1, 2)
        mask: dict[str, Any] = {"is_causal": rows > 1}  # a single row, the last one, sees everything
        if 1 < rows < length:
            mask = {"attn_mask": first_of("torch.nn.attention.bias").causal_lower_right(rows, length)}
        grouped = {"enable_gqa": True} if shape.group > 1 else {}
        calls: list[Attend] = []
        for copy in range(len(inputs.tables)):
            key, value = (
                side.view(requests, length, *side.shape[1:]).transpose(1, 2) for side in inputs.contiguous(copy)
            )
            calls.append(partial(_sdpa, query, key, value, scale=inputs.scale, **grouped, **mask))
        return calls


def _sdpa(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    return scaled_dot_product_attention(query, key, value, **options).transpose(1, 2)


def starts(lengths: Tensor) -> Tensor:
    """Where each of the parts of these lengths begins, and where the last one ends: int32."""
    return torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
