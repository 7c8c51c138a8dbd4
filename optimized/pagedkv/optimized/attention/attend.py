"""`paged_attention`: the checks, the output, and the call of a backend."""

from dataclasses import replace

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import (
    AttentionCall, Mask, check_attention, check_integer, check_mask, check_out, overlap, reach_of, require,
)  # fmt: skip
from pagedkv.optimized.attention.backends import BackendName, backend_for

SPLIT_SIZE = 512
"""Positions in one split, unless told: fixed, so that a request's bits do not depend on its batch."""


def check_split_size(size: int) -> None:
    """A split is made of whole tiles, of 16 positions at least."""
    check_integer("split_size", size, 16, "a multiple of 16, at least 16")
    require(size % 16 == 0, "split_size", size, "a multiple of 16, at least 16")


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
    split_size: int | None = None,
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
    nothing. `alibi_slopes`, `sinks` (num_q_heads,) float32. `split_size`: positions a split, a multiple of 16.

    Returns out (total_q, num_q_heads, value_dim), in `out` if given; with `return_lse` also the natural log-sum-exp
    (total_q, num_q_heads) float32. A row that sees nothing gives 0 and -inf. Raises `Misuse`, also for gradients.
    """
    check_attention(query, k_cache, v_cache, block_tables, seq_lens, cu_seqlens_q)
    mask = Mask(query.shape[2] ** -0.5 if scale is None else scale, causal, window, softcap, alibi_slopes, sinks)
    check_mask(query, mask)
    furthest = block_tables.shape[1] * k_cache.shape[1] + len(query)
    mask = replace(mask, scale=float(mask.scale), softcap=float(softcap), window=reach_of(window, furthest))
    size = SPLIT_SIZE if split_size is None else split_size
    check_split_size(size)
    result = query.new_empty((*query.shape[:2], v_cache.shape[3])) if out is None else out
    check_out(result, query, v_cache.shape[3])
    apart = not any(overlap(result, tensor) for tensor in (query, k_cache, v_cache))
    target = result if apart else torch.empty_like(result)  # nothing is overwritten before it is read
    lse = torch.empty(query.shape[:2], dtype=torch.float32, device=query.device)
    call = AttentionCall(query, k_cache, v_cache, block_tables, seq_lens, cu_seqlens_q, mask, target, lse, int(size))
    backend_for(query.device, backend).attend(call)
    result = result if apart else result.copy_(target)
    return (result, lse) if return_lse else result
