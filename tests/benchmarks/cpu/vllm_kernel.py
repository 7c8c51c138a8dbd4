"""vLLM's attention on the CPU, from its wheel: the same work in its own layout, head-major within a block."""

from importlib import import_module
from typing import Any

import torch

from tests.benchmarks.cpu.contenders import Contender
from tests.benchmarks.cpu.shapes import HEAD_DIM, NUM_KV_HEADS, NUM_Q_HEADS, Inputs


def instructions(given: Inputs) -> str:
    """The path that vLLM takes on this processor: "amx" or "vec" (`_get_attn_isa`)."""
    amx = torch.cpu._is_amx_tile_supported() and given.shape.dtype == "bfloat16"
    return "amx" if amx else "vec"


def vllm(given: Inputs, isa: str | None = None) -> Contender:
    """Its kernel by the path named, or that of the processor. Its plan of a step is not timed: layers share it."""
    ops: Any = import_module("vllm._custom_ops")  # takes the library that the processor can run
    shape, isa = given.shape, isa or instructions(given)
    blocks, size = given.k_cache.shape[:2]
    cache = torch.zeros(blocks, NUM_KV_HEADS, 2 * size, HEAD_DIM, dtype=given.query.dtype)
    keys, values = cache.chunk(2, dim=2)
    rows = [each.flatten(0, 1) for each in (given.k_cache, given.v_cache)]
    ops.cpu_attn_reshape_and_cache(*rows, keys, values, torch.arange(blocks * size), isa)
    ends = torch.arange(shape.batch + 1, dtype=torch.int32) * shape.rows
    heads = NUM_Q_HEADS, NUM_KV_HEADS, HEAD_DIM
    plan = ops.cpu_attn_get_scheduler_metadata(
        shape.batch, *heads, given.seq_lens, given.query.dtype, ends, True, -1, isa, True
    )
    out = torch.empty_like(given.query)

    def attend() -> torch.Tensor:
        ops.cpu_attention_with_kv_cache(
            given.query, keys, values, out, ends, given.seq_lens, HEAD_DIM**-0.5, True, None, -1, given.block_tables,
            0.0, plan, None,
        )  # fmt: skip
        return out

    return attend
