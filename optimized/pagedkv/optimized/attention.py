"""Attention over a paged KV cache, and what goes with it: write, copy, gather, merge.

The backend follows the device of the tensors (`triton` on a GPU, `torch` on the CPU) or is named; it is never changed
silently. Semantics, odd cases and the order of masks are those of `pagedkv.spec.attention`. (Kwon et al., SOSP 2023,
§4.1 and §5.1; split along the keys: Dao et al., "Flash-Decoding", 2023.)
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol

import torch
from torch import Tensor

from pagedkv.optimized.attention_arguments import (
    FORMATS, AttentionCall, Mask, check_attention, check_cache, check_caches, check_dense, check_integer, check_mask,
    check_no_gradient, check_out, check_tensors, on_device, overlap, reach_of, require,
)  # fmt: skip
from pagedkv.optimized.lazy_triton import triton_module
from pagedkv.spec.words import Misuse

BackendName = Literal["torch", "triton"]
SPLIT_SIZE = 512
"""Positions in one split, unless told: fixed, so that a request's bits do not depend on its batch."""


class Backend(Protocol):
    """What a backend does; all arguments have been checked."""

    def attend(self, call: AttentionCall) -> None: ...
    def write_kv(self, rows: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor], slot_mapping: Tensor) -> None: ...
    def copy_blocks(self, cache: Tensor, pairs: Tensor) -> None: ...


def backend_for(device: torch.device, name: BackendName | None = None) -> Backend:
    """The backend named, or the one of the device. Raises `Misuse` if it cannot serve the device."""
    if name is None:
        name = "triton" if device.type == "cuda" else "torch"
    if name == "torch":
        from pagedkv.optimized.torch_backend import TorchBackend  # noqa: PLC0415  # loaded when it is chosen

        return TorchBackend()
    if name == "triton":
        require(device.type == "cuda", "backend", name, f"'torch' for tensors on {device}; 'triton' needs a GPU")
        triton_module("triton")  # or the error that says what to install
        from pagedkv.optimized.triton_backend import TritonBackend  # noqa: PLC0415  # loaded when it is chosen

        return TritonBackend()
    raise Misuse("backend", name, "'torch', 'triton', or None to follow the device")


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


def write_kv(
    key: Tensor,
    value: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    backend: BackendName | None = None,
) -> None:
    """Write row t of `key` and `value` (num_tokens, num_kv_heads, dim) to slot_mapping[t] (int64), in place.

    A slot is block * block_size + offset; rows with a slot < 0 are skipped. Rows are rounded to the caches' dtype, to
    nearest, ties to even. Slots are distinct and inside the cache; on a GPU nobody looks. Raises `Misuse`.
    """
    check_caches(k_cache, v_cache, written=True)
    check_tensors(key=key, value=value, slot_mapping=slot_mapping)
    require(slot_mapping.dim() == 1, "slot_mapping.shape", tuple(slot_mapping.shape), "(num_tokens,)")
    for name, rows, cache in (("key", key, k_cache), ("value", value, v_cache)):
        shape = (slot_mapping.shape[0], *cache.shape[2:])
        require(tuple(rows.shape) == shape, f"{name}.shape", tuple(rows.shape), f"{shape}")
        allowed = f"{' or '.join(dict.fromkeys(('torch.float32', str(cache.dtype))))}"
        require(rows.dtype in (torch.float32, cache.dtype), f"{name}.dtype", rows.dtype, allowed)
        check_dense(name, rows)
        check_no_gradient(name, rows)
        on_device(name, rows, k_cache.device)
    require(slot_mapping.dtype == torch.int64, "slot_mapping.dtype", slot_mapping.dtype, "int64")
    on_device("slot_mapping", slot_mapping, k_cache.device)
    backend_for(k_cache.device, backend).write_kv((key, value), (k_cache, v_cache), slot_mapping)


def copy_blocks(caches: Sequence[Tensor], pairs: Tensor, *, backend: BackendName | None = None) -> None:
    """Copy whole blocks within each cache, in place. `pairs` (num_pairs, 2) int32 or int64: source, destination.

    The caches (keys and values of all layers, say) have equally many blocks, and lie on one device.
    All copies happen as if at once: destinations are distinct, and none is a source. A pair with a source < 0 is
    skipped. On the CPU a bad pair is `Misuse`; on a GPU nobody looks.
    """
    check_tensors(pairs=pairs)
    several = isinstance(caches, Sequence)
    require(several, "caches", f"a {type(caches).__name__}", "a sequence of caches, such as [k_cache, v_cache]")
    shape = tuple(pairs.shape)
    require(pairs.dtype in (torch.int32, torch.int64), "pairs.dtype", pairs.dtype, "int32 or int64")
    require(len(shape) == 2 and shape[1] == 2, "pairs.shape", shape, "(num_pairs, 2)")
    for i, cache in enumerate(caches):
        check_cache(f"caches[{i}]", cache, written=True)
        on_device("pairs", pairs, cache.device)
        blocks = len(caches[0])  # what is checked for the first cache holds for all: none is changed in vain
        require(len(cache) == blocks, f"caches[{i}].shape", tuple(cache.shape), f"{blocks} blocks, as in caches[0]")
    if caches:
        chosen, wide = backend_for(caches[0].device, backend), pairs.long()
        for cache in caches:
            chosen.copy_blocks(cache, wide)


def gather_kv(cache: Tensor, block_table: Tensor, length: int) -> Tensor:
    """The first `length` positions of a request side by side: (length, num_kv_heads, dim), a copy.

    `block_table` (max_blocks,) int32; on a GPU nobody looks for ids out of range. Raises `Misuse`.
    """
    check_cache("cache", cache)
    size = cache.shape[1]
    check_tensors(block_table=block_table)
    fits = block_table.dim() == 1 and block_table.dtype == torch.int32
    require(fits, "block_table", (tuple(block_table.shape), block_table.dtype), "(max_blocks,) int32")
    most = len(block_table) * size
    check_integer("length", length, 0, f"0..{most}, what the table holds")
    require(length <= most, "length", length, f"0..{most}, what the table holds")
    on_device("block_table", block_table, cache.device)
    blocks = block_table[: -(-length // size)].long()
    if blocks.device.type == "cpu":  # elsewhere looking would mean waiting
        legal = bool(((blocks >= 0) & (blocks < len(cache))).all())
        require(legal, "block_table", blocks.tolist(), f"block ids 0..{len(cache) - 1}")
    return cache[blocks].flatten(0, 1)[:length]


def merge_attention(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """Merge results over disjoint sets of keys: `outs` (parts, total_q, num_q_heads, value_dim), `lses` (parts,
    total_q, num_q_heads) float32, natural. Returns (out in the dtype of `outs`, lse). A part that saw nothing (-inf)
    counts for nothing, whatever its output holds. Parts are added in order, in float32. (Dao, 2023, §3.)
    """
    check_tensors(outs=outs, lses=lses)
    require(outs.dtype in FORMATS, "outs.dtype", outs.dtype, "float32, float16 or bfloat16")
    allowed = "(parts >= 1, total_q, num_q_heads, value_dim)"
    require(outs.dim() == 4 and len(outs) > 0, "outs.shape", tuple(outs.shape), allowed)
    fits = tuple(lses.shape) == tuple(outs.shape[:3])
    require(fits, "lses.shape", tuple(lses.shape), f"{tuple(outs.shape[:3])}, that of outs without its last dimension")
    require(lses.dtype == torch.float32, "lses.dtype", lses.dtype, "float32")
    on_device("lses", lses, outs.device)
    top = lses.amax(0)
    shift = torch.where(top == -torch.inf, 0.0, top)
    total = torch.zeros_like(top)
    out = torch.zeros(outs.shape[1:], dtype=torch.float32, device=outs.device)
    for part, lse in zip(outs, lses, strict=True):
        weight = torch.exp(lse - shift)
        total += weight
        out += torch.where(weight[..., None] == 0, 0.0, part.float()) * weight[..., None]
    nothing = total == 0
    merged = out / torch.where(nothing, 1.0, total)[..., None]
    return merged.to(outs.dtype), torch.where(nothing, -torch.inf, shift + torch.log(total))
