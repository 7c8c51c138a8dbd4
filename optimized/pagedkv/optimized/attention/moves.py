"""What moves KV: writing new rows to slots, copying blocks, gathering a request."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import (
    check_cache, check_caches, check_dense, check_integer, check_no_gradient, check_tensors, on_device, require,
)  # fmt: skip
from pagedkv.optimized.attention.backends import BackendName, backend_for


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
