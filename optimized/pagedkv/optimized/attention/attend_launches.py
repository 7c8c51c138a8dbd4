"""The launches of `paged_attention`, as values: run on a GPU, interpreted by the tests, or compiled for the audit.

Nothing here waits for the device: grids are upper bounds taken from shapes, and what rows are is computed by tensor
operations.
"""

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import AttentionCall, Mask
from pagedkv.optimized.attention.move_launches import power_of_two
from pagedkv.optimized.kernels.decode import decode_kernel
from pagedkv.optimized.kernels.merge import merge_kernel
from pagedkv.optimized.launch import Launch
from pagedkv.spec.words import ceil_div

MAX_TILE = 64
"""Tokens that one step of the loop over keys takes, at the most."""
TILE_BYTES = 16 * 1024
"""What a tile of keys may take; one of values takes as much."""


def row_places(total_q: int, seq_lens: Tensor, cu_seqlens_q: Tensor | None) -> tuple[Tensor, Tensor]:
    """For each query row its request (-1: none) and its position, (total_q,) int32 each; no synchronisation."""
    rows = torch.arange(total_q, dtype=torch.int32, device=seq_lens.device)
    if cu_seqlens_q is None:
        return rows, seq_lens - 1
    if len(seq_lens) == 0:  # every row is padding
        return torch.full_like(rows, -1), torch.zeros_like(rows)
    cu_seqlens_q = cu_seqlens_q.contiguous()
    request = torch.searchsorted(cu_seqlens_q, rows, right=True, out_int32=True) - 1
    known = rows < cu_seqlens_q[-1]
    request = torch.where(known, request, 0)
    position = seq_lens[request] - cu_seqlens_q[request + 1] + rows
    return torch.where(known, request, -1).to(torch.int32), position.to(torch.int32)


def attention_launches(call: AttentionCall, *, tile: int | None = None, upcast: bool = False) -> list[Launch]:
    """`decode_kernel` over all query rows, and `merge_kernel` if the table is wider than one split.

    Kernels step through tensors of one dimension by 1, so those are made contiguous, which is free if they are.
    `tile`: tokens a step at the most, by default those of `tile_and_warps`; it is halved until it divides the split
    size. `upcast` is for the interpreter.
    """
    query, key_cache, value_cache, block_tables = call.query, call.k_cache, call.v_cache, call.block_tables
    mask, out, lse, split_size = call.mask, call.out, call.lse, call.split_size
    num_rows, num_q_heads, _ = query.shape
    size, num_kv_heads, value_dim = value_cache.shape[1:]
    num_splits = max(1, ceil_div(block_tables.shape[1] * size, split_size))
    kept = num_rows if num_splits > 1 else 0  # one split writes its result itself
    parts = query.new_empty((kept, num_q_heads, num_splits, value_dim), dtype=torch.float32)
    part_max, part_sum = (parts.new_empty(parts.shape[:3]) for _ in range(2))
    constants = _constants(query, value_cache, mask)
    tile = constants["TILE"] if tile is None else tile
    while split_size % tile:
        tile //= 2
    constants |= {"TILE": tile, "SPLIT_SIZE": split_size, "ONE_SPLIT": num_splits == 1, "UPCAST": upcast}
    lengths = call.seq_lens.contiguous()
    rows = row_places(len(query), lengths, call.cu_seqlens_q)
    slopes, sinks = (  # in place of one that is absent, a pointer that the kernel does not follow
        lengths if heads is None else heads.contiguous() for heads in (mask.alibi_slopes, mask.sinks)
    )
    args = (
        query, key_cache, value_cache, block_tables, lengths, *rows, slopes, sinks,
        out, lse, parts, part_max, part_sum, float(mask.scale), float(mask.softcap),
        *query.stride()[:2], *key_cache.stride()[:3], *value_cache.stride()[:3], block_tables.stride(0),
        *out.stride()[:2], num_splits,
    )  # fmt: skip
    name = _described(query, value_cache, mask)
    launches = [Launch("decode", name, decode_kernel, (num_rows, num_kv_heads, num_splits), args, constants)]
    if num_splits > 1:
        merge_args = (parts, part_max, part_sum, out, lse, *out.stride()[:2], num_splits)
        dims = {"VALUE_DIM": value_dim, "VALUE_DIM_PADDED": constants["VALUE_DIM_PADDED"], "num_warps": 1}
        launches.append(Launch("merge", name, merge_kernel, (num_rows, num_q_heads), merge_args, dims))
    return launches


def _constants(query: Tensor, value_cache: Tensor, mask: Mask) -> dict[str, int | bool]:
    """What `decode_kernel` is compiled for, but for the splits."""
    _, num_q_heads, head_dim = query.shape
    size, num_kv_heads, value_dim = value_cache.shape[1:]
    group = num_q_heads // num_kv_heads
    group_padded, dim_padded = max(16, power_of_two(group)), max(16, power_of_two(max(head_dim, value_dim)))
    tile, num_warps = tile_and_warps(query.dtype, dim_padded, group_padded)
    return {
        "TILE": tile,
        "BLOCK_SIZE": size,
        "GROUP": group,
        "GROUP_PADDED": group_padded,
        "HEAD_DIM": head_dim,
        "HEAD_DIM_PADDED": max(16, power_of_two(head_dim)),
        "VALUE_DIM": value_dim,
        "VALUE_DIM_PADDED": max(16, power_of_two(value_dim)),
        "WINDOW": mask.window or 0,
        "CAUSAL": mask.causal,
        "HAS_SOFTCAP": mask.softcap > 0,
        "HAS_ALIBI": mask.alibi_slopes is not None,
        "HAS_SINKS": mask.sinks is not None,
        "num_warps": num_warps,
        "num_stages": 1 if query.dtype == torch.float32 else 2,
    }


def _described(query: Tensor, value_cache: Tensor, mask: Mask) -> str:
    group, size = query.shape[1] // value_cache.shape[2], value_cache.shape[1]
    name = f"{str(query.dtype).removeprefix('torch.')} head_dim={query.shape[2]} group={group} block_size={size}"
    name += "".join(f" {k}={getattr(mask, k)}" for k in ("window", "softcap") if getattr(mask, k))
    return name + "".join(f" {k}" for k in ("alibi_slopes", "sinks") if getattr(mask, k) is not None)


def tile_and_warps(dtype: torch.dtype, dim_padded: int, group_padded: int) -> tuple[int, int]:
    """The tile and the number of warps of `decode_kernel`: the largest that the audit finds to spill on no target.

    Nothing but shapes decides, so that no bit depends on the batch. Products of float32 keep their operands in
    registers, where tensor cores read those of 16-bit formats from shared memory.
    """
    wide = dtype == torch.float32
    row_bytes = dim_padded * dtype.itemsize * (max(1, group_padded // 32) if wide else 1)
    tile = MAX_TILE
    while tile > 16 and tile * row_bytes > TILE_BYTES:
        tile //= 2
    return tile, 8 if group_padded >= 64 or (wide and dim_padded >= 128) else 4
