"""The launches of `paged_attention`, as values: run on a GPU, interpreted by the tests, or compiled for the audit.

Nothing here waits for the device, nor looks at what tensors hold: grids are upper bounds taken from shapes, and
programs that find nothing to do end. So a launch can be captured in a CUDA graph, and replayed with other lengths and
tables.

A request with at most `DECODE_ROWS` query rows is attended by `decode`, split along its keys, and `merge`; one with
more by `prefill`. A batch that may hold both gets both, and each kernel passes the other's requests over: which kernel
serves a request, in which tiles and splits, follows from the request and from the shapes of a model, never from its
batch.
"""

from dataclasses import replace
from math import gcd
from typing import Any

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import AttentionCall, Mask, require
from pagedkv.optimized.attention.cutting import (
    DECODE_ROWS, MAX_SPLITS, NO_OVERRIDES, Overrides, Plan, Shape, architecture_of, cut, plan_of, programs_for,
    shape_of, turns, word_of,
)  # fmt: skip
from pagedkv.optimized.attention.tuned import Tiling, max_registers, power_of_two
from pagedkv.optimized.kernels.decode import decode_kernel
from pagedkv.optimized.kernels.merge import merge_kernel
from pagedkv.optimized.kernels.prefill import prefill_kernel
from pagedkv.optimized.launch import Launch
from pagedkv.spec.words import ceil_div

SMALLEST = 2.0**-126
"""Where float32, as which the scale is passed, ends; a product with it may be 0, and 0 * -inf is no logit."""
MOST_DIMS = 256
MERGE_REGISTERS = 48
"""Of a thread of `merge` on NVIDIA, at the most: enough not to spill, and few enough for many programs at once."""


def attention_launches(
    call: AttentionCall, overrides: Overrides = NO_OVERRIDES, architecture: str | None = None
) -> list[Launch]:
    """The launches of a call, in order; for the device's architecture, or that of another name in `tiles.csv`.

    Kernels step through tensors of one dimension by 1, so those are made contiguous, which is free if they are.
    """
    shape = shape_of(call.query, call.v_cache, call.block_tables, call.cu_seqlens_q)
    dims = (shape.head_dim, shape.value_dim)
    require(max(dims) <= MOST_DIMS, "k_cache.shape, v_cache.shape", dims, f"dims up to {MOST_DIMS} on a GPU")
    architecture = architecture_of(call.query.device) if architecture is None else architecture
    launches: list[Launch] = []
    if shape.num_requests or shape.several:
        launches = _decode(call, shape, cut("decode", shape, architecture, overrides.tiling), overrides, architecture)
    if shape.several and shape.total_q > DECODE_ROWS:  # else no request can have more
        launches.append(
            _prefill(call, shape, cut("prefill", shape, architecture, overrides.tiling), overrides, architecture)
        )
    return launches


def _decode(call: AttentionCall, shape: Shape, cuts: Tiling, overrides: Overrides, architecture: str) -> list[Launch]:
    """`decode_kernel`, and `merge_kernel` if the table is wider than one split."""
    plan = plan_of(shape, call.split_size)
    tokens = min(plan.most, cuts.rows // shape.group)
    cuts = replace(cuts, tile=gcd(cuts.tile, plan.split_size))
    parts, (lengths, rows, slopes, sinks) = _parts(call, shape, plan), _vectors(call)
    sizes = (
        shape.num_requests,
        shape.total_q,
        plan.num_splits,
        plan.split_size,
        int(plan.by_row),
        call.mask.window or 0,
    )
    args = (
        call.query, call.k_cache, call.v_cache, call.block_tables, lengths, rows, slopes, sinks, call.out, call.lse,
        *parts, *sizes, call.mask.scale, call.mask.softcap, *_strides(call),
    )  # fmt: skip
    constants = _constants(call, shape, cuts, overrides.upcast) | {
        "TOKENS": tokens, "MAX_ROWS": plan.most, "HAS_CU": shape.several, "ONE_SPLIT": plan.num_splits == 1,
        "MAX_SPLITS": MAX_SPLITS,
    }  # fmt: skip
    if tokens > 1 or not constants["PLAIN_LOGITS"] or shape.dtype == "float32":
        # Long code, which would spill. Elsewhere more programs at once are worth more.
        constants |= max_registers(architecture, cuts.num_warps)
    requests = shape.num_requests + shape.several  # the rows past the last request are one more
    programs = overrides.programs or programs_for(call.query.device)
    blocks, name = requests * ceil_div(plan.most, tokens), described(shape, call.mask)
    grid = (blocks, shape.num_kv_heads, turns(plan.num_splits, blocks * shape.num_kv_heads, programs))
    launches = [Launch("decode", name, decode_kernel, grid, args, constants)]
    if plan.num_splits > 1:
        kept = (
            "VALUE_DIM", "VALUE_DIM_PADDED", "CAUSAL", "HAS_CU", "HAS_WINDOW", "PLAIN_LOGITS", "HAS_SINKS", "MAX_ROWS",
            "MAX_SPLITS",
        )  # fmt: skip
        warps = 4 if constants["VALUE_DIM_PADDED"] < 128 else 8
        constants = {name: constants[name] for name in kept} | {"SPLITS": overrides.merged, "num_warps": warps}
        constants |= max_registers(architecture, warps, MERGE_REGISTERS)
        args = (*parts, lengths, rows, sinks, call.out, call.lse, *sizes, call.mask.scale, *call.out.stride()[:2])
        grid = (requests, shape.num_q_heads, turns(plan.most, requests * shape.num_q_heads, programs))
        launches.append(Launch("merge", name, merge_kernel, grid, args, constants))
    return launches


def _prefill(call: AttentionCall, shape: Shape, cuts: Tiling, overrides: Overrides, architecture: str) -> Launch:
    """`prefill_kernel` over as many blocks of rows as there can be."""
    tokens = cuts.rows // shape.group
    lengths, rows, slopes, sinks = _vectors(call)
    args = (
        call.query, call.k_cache, call.v_cache, call.block_tables, lengths, rows, slopes, sinks,
        call.out, call.lse, shape.num_requests, shape.total_q, call.mask.window or 0, call.mask.scale,
        call.mask.softcap, *_strides(call),
    )  # fmt: skip
    constants = _constants(call, shape, cuts, overrides.upcast) | {
        "TOKENS": tokens,
        "DECODE_ROWS": DECODE_ROWS,
    }
    constants |= max_registers(architecture, cuts.num_warps)
    long = min(shape.num_requests, shape.total_q // (DECODE_ROWS + 1))  # requests that can have more rows
    grid = (shape.total_q // tokens + long + 1, shape.num_kv_heads)
    return Launch("prefill", described(shape, call.mask), prefill_kernel, grid, args, constants)


def _parts(call: AttentionCall, shape: Shape, plan: Plan) -> tuple[Tensor, Tensor, Tensor]:
    """The partial results, in the workspace of the call or in one of their own."""
    elements = plan.parts * (shape.value_dim + 2)
    room = call.workspace
    if room is None:
        room = torch.empty(elements, dtype=torch.float32, device=call.query.device)
    outputs = plan.parts * shape.value_dim
    return room[:outputs], room[outputs : outputs + plan.parts], room[outputs + plan.parts : elements]


def _vectors(call: AttentionCall) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Lengths, query rows, slopes and sinks; for one that is absent a tensor that the kernel does not look at."""
    lengths = call.seq_lens.contiguous()
    others = (call.cu_seqlens_q, call.mask.alibi_slopes, call.mask.sinks)
    rows, slopes, sinks = (lengths if vector is None else vector.contiguous() for vector in others)
    return lengths, rows, slopes, sinks


def _strides(call: AttentionCall) -> tuple[int, ...]:
    return (
        *call.query.stride()[:2], *call.k_cache.stride()[:3], *call.v_cache.stride()[:3],
        call.block_tables.stride(0), *call.out.stride()[:2],
    )  # fmt: skip


def _constants(call: AttentionCall, shape: Shape, cuts: Tiling, upcast: bool) -> dict[str, Any]:
    """What both kernels that attend are compiled for."""
    mask = call.mask
    return {
        "BLOCK_SIZE": shape.block_size,
        "GROUP": shape.group,
        "HEAD_DIM": shape.head_dim,
        "HEAD_DIM_PADDED": max(16, power_of_two(shape.head_dim)),
        "VALUE_DIM": shape.value_dim,
        "VALUE_DIM_PADDED": max(16, power_of_two(shape.value_dim)),
        "ROWS": cuts.rows,
        "TILE": cuts.tile,
        "CAUSAL": mask.causal,
        "HAS_WINDOW": mask.window is not None,
        "PLAIN_LOGITS": mask.softcap == 0 and mask.alibi_slopes is None and SMALLEST <= mask.scale <= 1 / SMALLEST,
        "HAS_SOFTCAP": mask.softcap > 0,
        "HAS_ALIBI": mask.alibi_slopes is not None,
        "HAS_SINKS": mask.sinks is not None,
        "WORD": gcd(word_of(call.k_cache), word_of(call.v_cache)),
        "ROW_WORD": gcd(word_of(call.query), word_of(call.out)),
        "UPCAST": upcast,
        "num_warps": cuts.num_warps,
        "num_stages": cuts.num_stages,
    }


def described(shape: Shape, mask: Mask) -> str:
    """A configuration in words."""
    dim = f"{shape.head_dim}" if shape.head_dim == shape.value_dim else f"{shape.head_dim}/{shape.value_dim}"
    name = f"{shape.dtype} head_dim={dim} group={shape.group} block_size={shape.block_size}"
    name += "" if mask.causal else " non-causal"
    name += "".join(f" {k}={getattr(mask, k)}" for k in ("window", "softcap") if getattr(mask, k))
    return name + "".join(f" {k}" for k in ("alibi_slopes", "sinks") if getattr(mask, k) is not None)
