"""`paged_attention`: the checks, the output, and the call of a backend."""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import (
    AttentionCall, Mask, check_attention, check_integer, check_mask, check_out, check_tensors, check_workspace,
    overlap, reach_of, require, scale_of,
)  # fmt: skip
from pagedkv.optimized.attention.backends import BackendName, backend_for
from pagedkv.optimized.attention.cutting import filling_split_size, shape_of, workspace_elements
from pagedkv.optimized.attention.tracing import is_traced, traced_attention

SPLIT_SIZE = 512
"""Positions in one split of a decode, unless told: fixed, so that a request's bits do not depend on its batch."""


SplitSize = int | Literal["fill"] | None


def split_size_of(
    split_size: SplitSize, query: Tensor, v_cache: Tensor, block_tables: Tensor, cu_seqlens_q: Tensor | None
) -> int:
    """Positions in one split: a multiple of 16, so that a split is made of whole tiles."""
    if split_size is None:
        return SPLIT_SIZE
    if isinstance(split_size, str) and split_size == "fill":
        require(not query.is_meta, "query.device", "meta", "the GPU that is to be filled")
        if query.device.type != "cuda":
            return SPLIT_SIZE
        processors = torch.cuda.get_device_properties(query.device).multi_processor_count
        return filling_split_size(shape_of(query, v_cache, block_tables, cu_seqlens_q), processors)
    allowed = "a multiple of 16, at least 16; 'fill', or None for 512"
    check_integer("split_size", split_size, 16, allowed)
    require(split_size % 16 == 0, "split_size", split_size, allowed)
    return int(split_size)


def workspace_size(
    query: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    *,
    cu_seqlens_q: Tensor | None = None,
    split_size: SplitSize = None,
) -> int:
    """float32 elements that `paged_attention` needs beside its output, for the partial results of splits.

    It depends on shapes only, and grows with each of them: a workspace for the largest batch serves all. (With "fill"
    it also depends on the card, and a larger batch may need less.) Arguments as `paged_attention`; on the meta device
    they cost nothing. On the CPU 0 would do. Raises `Misuse`.
    """
    check_tensors(query=query, v_cache=v_cache, block_tables=block_tables)
    for name, tensor, dims in (("query", query, 3), ("v_cache", v_cache, 4), ("block_tables", block_tables, 2)):
        require(tensor.dim() == dims, f"{name}.shape", tuple(tensor.shape), f"{dims} dimensions")
    if cu_seqlens_q is not None:
        check_tensors(cu_seqlens_q=cu_seqlens_q)
    size = split_size_of(split_size, query, v_cache, block_tables, cu_seqlens_q)
    return workspace_elements(shape_of(query, v_cache, block_tables, cu_seqlens_q), size)


def paged_attention(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    *,
    cu_seqlens_q: Tensor | None = None,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    return_lse: bool = False,
    out: Tensor | None = None,
    split_size: SplitSize = None,
    workspace: Tensor | None = None,
    backend: BackendName | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Softmax attention of the last positions of each request over its paged keys and values.

    `query` (total_q, num_q_heads, head_dim): one row a request (decode), or, with `cu_seqlens_q` (num_requests + 1,)
    int32, the rows cu_seqlens_q[r]..cu_seqlens_q[r + 1]-1 of request r, which stand at its last positions. `k_cache`
    (num_blocks, block_size, num_kv_heads, head_dim) and `v_cache` (…, value_dim), any strides with a contiguous last
    dimension, in the dtype of `query`: float32, float16 or bfloat16. `block_tables` (num_requests, max_blocks) int32:
    entries past ceil(seq_lens[r] / block_size) may hold anything. `seq_lens` (num_requests,) int32, the queries
    included: their KV is in the cache already.

    `scale`: 1 / sqrt(head_dim) unless given. `window`: positions seen, the row's own included. `softcap`: 0 caps
    nothing. `alibi_slopes`, `sinks` (num_q_heads,) float32.
    `split_size`: positions in a split of a decode, a multiple of 16, best of 64. As it is fixed (512), bits of
    a request do not depend on its batch; "fill" takes what fills the GPU. `workspace`: `workspace_size` elements.

    Returns out (total_q, num_q_heads, value_dim), in `out` if given; with `return_lse` also the natural log-sum-exp
    (total_q, num_q_heads) float32. A row that sees nothing gives 0 and -inf. Raises `Misuse`, also for gradients.
    """
    if is_traced(query, k_cache, v_cache, block_tables, seq_lens, cu_seqlens_q, alibi_slopes, sinks):
        return traced_attention(
            (query, k_cache, v_cache, block_tables, seq_lens), out, workspace, return_lse, cu_seqlens_q=cu_seqlens_q,
            scale=scale, causal=causal, window=window, softcap=softcap, alibi_slopes=alibi_slopes, sinks=sinks,
            split_size=split_size, backend=backend,
        )  # fmt: skip
    mask = Mask(scale_of(query, scale), causal, window, softcap, alibi_slopes, sinks)
    call = checked_call(query, k_cache, v_cache, block_tables, seq_lens, cu_seqlens_q, mask, out, split_size, workspace)
    backend_for(query.device, backend).attend(call)
    result = call.out if out is None or call.out is out else out.copy_(call.out)
    return (result, call.lse) if return_lse else result


def checked_call(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None,
    mask: Mask,
    out: Tensor | None = None,
    split_size: SplitSize = None,
    workspace: Tensor | None = None,
) -> AttentionCall:
    """The call with these arguments, or `Misuse`. Its output is `out`, or apart where `out` overlaps what is read."""
    check_attention(query, k_cache, v_cache, block_tables, seq_lens, cu_seqlens_q)
    check_mask(query, mask)
    furthest = max(block_tables.shape[1] * k_cache.shape[1], len(query))
    window = reach_of(mask.window, furthest)
    mask = replace(mask, scale=float(mask.scale), softcap=float(mask.softcap), window=window)
    size = split_size_of(split_size, query, v_cache, block_tables, cu_seqlens_q)
    if workspace is not None:
        elements = workspace_elements(shape_of(query, v_cache, block_tables, cu_seqlens_q), size)
        check_workspace(workspace, elements, query.device)
    if out is not None:
        check_out(out, (*query.shape[:2], v_cache.shape[3]), "query", query)
    given = (query, k_cache, v_cache, block_tables, seq_lens, cu_seqlens_q, mask.alibi_slopes, mask.sinks)
    read = [tensor for tensor in given if tensor is not None]
    if workspace is not None:
        apart = not any(overlap(workspace, tensor) for tensor in read)
        require(apart, "workspace", "memory of another argument", "memory of its own")
        read.append(workspace)
    if out is None or any(overlap(out, tensor) for tensor in read):
        out = query.new_empty((*query.shape[:2], v_cache.shape[3]))  # nothing is overwritten before it is read
    lse = torch.empty(query.shape[:2], dtype=torch.float32, device=query.device)
    return AttentionCall(query, k_cache, v_cache, block_tables, seq_lens, cu_seqlens_q, mask, out, lse, size, workspace)
