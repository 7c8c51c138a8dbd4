"""FlashInfer: its decode and its prefill wrapper over pages, planned once and run (its `decode.py`, `prefill.py`)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pagedkv.spec.words import ceil_div
from tests.benchmarks.gpu.contenders.common import Attend, absent, first_of
from tests.benchmarks.gpu.contenders.torch_ops import starts
from tests.benchmarks.gpu.inputs import Inputs

WORKSPACE_BYTES = 256 * 2**20
TENSOR_CORES_FROM = 4
"""Query heads a KV head from which its decode wrapper is told to use tensor cores, as its documentation advises."""


class FlashInfer:
    """`plan` is host work that an engine does once a step, and is not timed; `run` is."""

    name = "FlashInfer"
    until_tier = 1

    def __init__(self) -> None:
        self._workspaces: dict[torch.device, Tensor] = {}

    def available(self, device: torch.device) -> str | None:
        return absent(device, "flashinfer")

    def prepare(self, inputs: Inputs) -> Sequence[Attend]:
        device = inputs.query.device
        if device not in self._workspaces:
            self._workspaces[device] = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        plan = self._decode if inputs.shape.is_decode else self._prefill
        caches, scratch = (inputs.k_cache, inputs.v_cache), self._workspaces[device]  # a plan is kept elsewhere
        return [partial(plan(inputs, table, scratch).run, inputs.query, caches) for table in inputs.tables]

    def _decode(self, inputs: Inputs, table: Tensor, workspace: Tensor) -> Any:
        shape = inputs.shape
        wrapper = first_of("flashinfer").BatchDecodeWithPagedKVCacheWrapper(
            workspace, "NHD", use_tensor_cores=shape.group >= TENSOR_CORES_FROM
        )
        heads = (shape.num_q_heads, shape.num_kv_heads, shape.head_dim, shape.block_size)
        wrapper.plan(*csr(inputs, table), *heads, sm_scale=inputs.scale, **_types(inputs))
        return wrapper

    def _prefill(self, inputs: Inputs, table: Tensor, workspace: Tensor) -> Any:
        shape = inputs.shape
        wrapper = first_of("flashinfer").BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
        heads = (shape.num_q_heads, shape.num_kv_heads, shape.head_dim, shape.block_size)
        options = {"causal": True, "sm_scale": inputs.scale, **_types(inputs)}
        wrapper.plan(inputs.cu_seqlens_q, *csr(inputs, table), *heads, **options)
        return wrapper


def _types(inputs: Inputs) -> dict[str, torch.dtype]:
    return {"q_data_type": inputs.query.dtype, "kv_data_type": inputs.k_cache.dtype}


def csr(inputs: Inputs, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(indptr, indices, last_page_len) int32 of a padded table. A request of length 0 has no page."""
    size, lengths = inputs.shape.block_size, inputs.seq_lens
    counts = torch.tensor([ceil_div(n, size) for n in inputs.shape.lengths], dtype=torch.int32, device=table.device)
    used = torch.arange(table.shape[1], device=table.device) < counts[:, None]
    last = torch.where(lengths > 0, (lengths - 1) % size + 1, 0).to(torch.int32)
    return starts(counts), table[used], last
