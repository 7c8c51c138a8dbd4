"""`gather_kv`: paged positions side by side, for whoever cannot read pages: another attention, another node."""

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import (
    check_cache, check_dense, check_integer, check_integers, check_out, check_tensors, overlap, require,
)  # fmt: skip
from pagedkv.optimized.attention.backends import BackendName, backend_for
from pagedkv.optimized.attention.tracing import is_traced, traced_gather


def gather_kv(
    cache: Tensor,
    block_tables: Tensor,
    cu_seqlens: Tensor | int,
    *,
    starts: Tensor | None = None,
    total: int | None = None,
    out: Tensor | None = None,
    backend: BackendName | None = None,
) -> Tensor:
    """The positions of requests side by side: (total, num_kv_heads, dim), a copy, byte for byte.

    `cache` (num_blocks, block_size, num_kv_heads, dim), keys or values, any strides with a contiguous last dimension.
    `block_tables` (num_requests, max_blocks) int32. `cu_seqlens` (num_requests + 1,) int32 counts rows from 0: rows
    cu_seqlens[r]..cu_seqlens[r + 1]-1 are the positions of request r from starts[r] on, or from 0 without `starts`
    (num_requests,) int32. Table entries of other positions may hold anything, and so may the start of a request that
    has no rows.

    How many rows there are only the device knows, so `total` is an upper bound, or that of `out`, which is written if
    given. Rows past cu_seqlens[-1] are zeros. Nothing waits for the device.

    One request may be given as a table (max_blocks,) and the number of its rows, an integer.

    Raises `Misuse`; on a GPU nobody looks for values out of range.
    """
    if is_traced(cache, block_tables, cu_seqlens, starts):
        return traced_gather(cache, block_tables, cu_seqlens, starts, total, out, backend)
    check_cache("cache", cache)
    check_tensors(block_tables=block_tables)
    if not isinstance(cu_seqlens, Tensor):
        most = block_tables.shape[-1] * cache.shape[1] if block_tables.dim() else 0
        allowed = f"0..{most}, what the table holds, or (num_requests + 1,) int32"
        check_integer("cu_seqlens", cu_seqlens, 0, allowed)
        require(cu_seqlens <= most, "cu_seqlens", cu_seqlens, allowed)
        require(block_tables.dim() == 1, "block_tables.shape", tuple(block_tables.shape), "(max_blocks,)")
        require(total is None, "total", total, "None: the number of rows is given")
        total, block_tables = int(cu_seqlens), block_tables[None]
        cu_seqlens = torch.arange(2, dtype=torch.int32, device=cache.device) * total  # made on the device: no transfer
    num_requests = len(block_tables) if block_tables.dim() else 0
    require(block_tables.dim() == 2, "block_tables.shape", tuple(block_tables.shape), "(num_requests, max_blocks)")
    check_integers("block_tables", block_tables, tuple(block_tables.shape), cache.device)
    check_dense("block_tables", block_tables)
    check_integers("cu_seqlens", cu_seqlens, (num_requests + 1,), cache.device)
    if starts is not None:
        check_integers("starts", starts, (num_requests,), cache.device)
    result = output(cache, total, out)
    backend_for(cache.device, backend).gather(cache, block_tables, cu_seqlens, starts, result)
    return result


def output(cache: Tensor, total: int | None, out: Tensor | None) -> Tensor:
    """`out` if it can hold the rows, or new memory for `total` rows."""
    if out is None:
        allowed = "an integer >= 0, no fewer than the rows, or out"
        check_integer("total", total, 0, allowed)
        return cache.new_empty((int(total or 0), *cache.shape[2:]))
    check_tensors(out=out)
    rows = len(out) if total is None and out.dim() else total
    check_out(out, (rows, *cache.shape[2:]), "cache", cache)
    require(not overlap(out, cache), "out", "memory of the cache", "memory of its own")
    return out
