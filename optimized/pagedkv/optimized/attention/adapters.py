"""The calls that people already make, answered by `paged_attention`.

Names, defaults and shapes are those of FlashAttention (Dao, 2023) and of its fork in vLLM, for a paged cache. What is
not supported is `Misuse` that names the argument; nothing is ignored that would change the result. One difference: a
row that sees nothing has the log-sum-exp -inf, as in FlashAttention-3, where FlashAttention-2 answers +inf.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import (
    Mask, check_cache, check_integer, check_integers, check_tensors, require, scale_of,
)  # fmt: skip
from pagedkv.optimized.attention.attend import checked_call, paged_attention
from pagedkv.optimized.attention.csr import can_be_read
from pagedkv.optimized.attention.debug import check_call
from pagedkv.optimized.attention.moves import write_kv
from pagedkv.optimized.attention.tracing import is_traced
from pagedkv.spec.words import Misuse, ceil_div


DEFAULTS: Final = {"dropout_p": 0.0, "return_attn_probs": False, "cp_world_size": 1, "cp_rank": 0}
"""Arguments of the varlen call that change nothing at these values, and have no others here."""
DESCALES: Final = ("q_descale", "k_descale", "v_descale")
"""Of an FP8 cache only, which is refused as such."""


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int | None] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of `q` (batch, seqlen_q, num_q_heads, head_dim) over a paged cache (num_blocks, block_size, …).

    `block_table` (batch, max_blocks) int32. `cache_seqlens`: positions in the cache before this call, (batch,) int32 or
    one number, the whole table if absent; `k` and `v` (batch, seqlen_new, num_kv_heads, dim) are written behind them
    first. Window and `causal`: see `mask_of_window`. `num_splits`: 0 for splits of the usual size, else their number.

    Returns out (batch, seqlen_q, num_q_heads, value_dim), with `return_softmax_lse` also (batch, num_q_heads,
    seqlen_q) float32. Raises `Misuse`, also for rotary embedding, `cache_batch_idx`, `cache_leftpad`, a cache without
    a table, and slopes that differ by request.
    """
    refuse(rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_batch_idx=cache_batch_idx, cache_leftpad=cache_leftpad)
    batch, rows = rows_of(q)
    table, capacity = checked_table(block_table, batch, "k_cache", k_cache)
    mask = mask_of_window(causal or rows == 1, window_size)  # one row is the last position: nothing lies behind it
    refuse_odd_slopes(alibi_slopes, mask.causal)
    before = lengths_of(cache_seqlens, batch, capacity, k_cache.device)
    seq_lens = before if k is None and v is None else grown(k, v, before, capacity)
    options: dict[str, Any] = {
        "cu_seqlens_q": torch.arange(batch + 1, dtype=torch.int32, device=q.device) * rows if rows != 1 else None,
        "scale": softmax_scale, "causal": mask.causal, "window": mask.window, "softcap": softcap,
        "alibi_slopes": alibi_slopes, "split_size": split_size_of(num_splits, capacity),
    }  # fmt: skip
    tensors = (q.flatten(0, 1), k_cache, v_cache, table, seq_lens)
    if k is not None:
        append(k, v, before, tensors, options)
    result = paged_attention(*tensors, **options, return_lse=True)
    out, lse = (part.view(batch, rows, *part.shape[1:]) for part in result)
    return (out, lse.transpose(1, 2)) if return_softmax_lse else out


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    cu_seqlens_q: Tensor,
    seqused_k: Tensor,
    block_table: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Sequence[int | None] | None = None,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax_lse: bool = False,
    out: Tensor | None = None,
    num_splits: int = 0,
    s_aux: Tensor | None = None,
    scheduler_metadata: object = None,
    fa_version: int | None = None,
    deterministic: bool = False,
    **others: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of rows of many requests, `q` (total_q, num_q_heads, head_dim), over paged `k` and `v`.

    By keyword, as vLLM's fork and FlashAttention order their arguments differently. `cu_seqlens_q` (batch + 1,),
    `seqused_k` (batch,) and `block_table` (batch, max_blocks) int32; `s_aux` (num_q_heads,): sinks, of any float dtype.
    `max_seqlen_q`, `max_seqlen_k`, `scheduler_metadata`, `fa_version` and `deterministic` say how to compute, not what,
    and change nothing here; nor do the descales, which FlashAttention reads of an FP8 cache only, and vLLM always
    passes. Window and `causal`: see `mask_of_window`.

    Returns out (total_q, num_q_heads, value_dim), in `out` if given; with `return_softmax_lse` also (num_q_heads,
    total_q) float32. Raises `Misuse`, also for any other argument of the fork that is not at its default.
    """
    refuse_others(others)
    table, capacity = checked_table(block_table, None, "k", k)
    mask = mask_of_window(causal, (-1, -1) if window_size is None else window_size)
    refuse_odd_slopes(alibi_slopes, mask.causal)
    if s_aux is not None:
        check_tensors(s_aux=s_aux)
        s_aux = s_aux.float()
    result = paged_attention(
        q, k, v, table, seqused_k, cu_seqlens_q=cu_seqlens_q, scale=softmax_scale, causal=mask.causal,
        window=mask.window, softcap=softcap, alibi_slopes=alibi_slopes, sinks=s_aux, return_lse=True, out=out,
        split_size=split_size_of(num_splits, capacity),
    )  # fmt: skip
    return (result[0], result[1].T) if return_softmax_lse else result[0]


def checked_table(block_table: Tensor | None, batch: int | None, name: str, cache: Tensor) -> tuple[Tensor, int]:
    """A table for a paged cache, and the positions that a row of it holds. `batch`: its rows, if they are known."""
    check_cache(name, cache)
    check_tensors(block_table=block_table)
    assert block_table is not None
    shape = tuple(block_table.shape)
    fits = len(shape) == 2 and batch in (None, shape[0])
    require(fits, "block_table.shape", shape, f"({'batch' if batch is None else batch}, max_blocks)")
    check_integers("block_table", block_table, shape, cache.device)
    return block_table, shape[1] * cache.shape[1]


class SeenMask(NamedTuple):
    """A window as `paged_attention` takes it."""

    causal: bool
    window: int | None


def mask_of_window(causal: bool, window_size: Sequence[int | None]) -> SeenMask:
    """FlashAttention's (left, right), positions seen on each side of the row's own; -1 or None: all of them.

    `causal` sets right to 0. What `paged_attention` has: right 0, or both sides alike. Raises `Misuse` for others.
    """
    require(isinstance(causal, bool), "causal", causal, "True or False")
    pair = isinstance(window_size, Sequence) and len(window_size) == 2
    require(pair, "window_size", window_size, "(left, right), each -1 for all or >= 0")
    for side in window_size:
        if side is not None:
            check_integer("window_size", side, -1, "(left, right), each -1 for all or >= 0")
    left, right = (None if side is None or side < 0 else int(side) for side in window_size)
    right = 0 if causal else right
    allowed = "a right side of 0 (or causal=True), or equal to the left side"
    require(right in (0, left), "window_size", tuple(window_size), allowed)
    return SeenMask(right == 0, None if left is None else left + 1)


def split_size_of(num_splits: int, capacity: int) -> int | None:
    """So many positions that `capacity` of them make `num_splits` splits; None, the default, for 0."""
    check_integer("num_splits", num_splits, 0, "an integer >= 0; 0 for splits of the usual size")
    return max(1, ceil_div(ceil_div(capacity, num_splits), 16)) * 16 if num_splits else None


def lengths_of(cache_seqlens: int | Tensor | None, batch: int, capacity: int, device: torch.device) -> Tensor:
    """The positions in the cache, (batch,) int32; where looking costs nothing, all fit the table."""
    if cache_seqlens is None:
        cache_seqlens = capacity
    if isinstance(cache_seqlens, Tensor):
        check_integers("cache_seqlens", cache_seqlens, (batch,), device)
        return cache_seqlens
    allowed = f"0..{capacity}, what block_table holds, or a tensor of them"
    check_integer("cache_seqlens", cache_seqlens, 0, allowed)
    require(cache_seqlens <= capacity, "cache_seqlens", cache_seqlens, allowed)
    return torch.full((batch,), cache_seqlens, dtype=torch.int32, device=device)


def grown(k: Tensor | None, v: Tensor | None, seq_lens: Tensor, capacity: int) -> Tensor:
    """The lengths with `k` and `v` (batch, seqlen_new, num_kv_heads, dim) behind them.

    On the CPU a table that is too narrow is `Misuse`; elsewhere what does not fit is not written.
    """
    check_tensors(k=k, v=v)
    assert k is not None
    assert v is not None
    for name, new in (("k", k), ("v", v)):
        fits = new.dim() == 4 and new.shape[0] == len(seq_lens)
        require(fits, f"{name}.shape", tuple(new.shape), f"({len(seq_lens)}, seqlen_new, num_kv_heads, dim)")
    require(v.shape[1] == k.shape[1], "v.shape", tuple(v.shape), f"{k.shape[1]} new positions, as in k")
    total = seq_lens + k.shape[1]
    if can_be_read(total):
        fit = not len(total) or (int(seq_lens.min()) >= 0 and int(total.max()) <= capacity)
        require(fit, "cache_seqlens", seq_lens.tolist(), f"0..{capacity - k.shape[1]}, so that the new positions fit")
    return total


def append(k: Tensor, v: Tensor | None, seq_lens: Tensor, tensors: tuple[Tensor, ...], options: dict[str, Any]) -> None:
    """Write `k` and `v` behind `seq_lens`, unless the call of attention that follows would be `Misuse`."""
    assert v is not None
    query, k_cache, v_cache, block_table, total = tensors
    if not is_traced(query, k_cache, v_cache, block_table, total):
        scale, cu_seqlens_q = scale_of(query, options["scale"]), options["cu_seqlens_q"]
        mask = Mask(scale, options["causal"], options["window"], options["softcap"], options["alibi_slopes"], None)
        size = options["split_size"]
        call = checked_call(query, k_cache, v_cache, block_table, total, cu_seqlens_q, mask, split_size=size)
        if can_be_read(total):
            check_call(call)
    size, capacity = k_cache.shape[1], block_table.shape[1] * k_cache.shape[1]
    position = seq_lens[:, None].long() + torch.arange(k.shape[1], device=seq_lens.device)
    index = (position // size).clamp(min=0, max=max(0, block_table.shape[1] - 1))
    block = block_table.long().gather(1, index)
    slots = torch.where((position >= 0) & (position < capacity), block * size + position % size, -1)
    write_kv(k.flatten(0, 1), v.flatten(0, 1), k_cache, v_cache, slots.flatten())


def rows_of(q: Tensor) -> tuple[int, int]:
    """(batch, query rows a request)."""
    check_tensors(q=q)
    require(q.dim() == 4, "q.shape", tuple(q.shape), "(batch, seqlen_q, num_q_heads, head_dim)")
    return q.shape[0], q.shape[1]


def refuse(**arguments: object) -> None:
    """`Misuse` for the first argument that is given."""
    for name, value in arguments.items():
        if value is not None:
            raise Misuse(name, value, "None: it is not supported")


def refuse_others(given: Mapping[str, object]) -> None:
    """`Misuse` for what the varlen call is given beside its arguments, unless it changes nothing."""
    for name, default in DEFAULTS.items():
        value = given.get(name, default)
        same = not isinstance(value, Tensor) and value == default
        require(same, name, value, f"{default}: other values are not supported")
    refuse(**{name: value for name, value in given.items() if name not in (*DEFAULTS, *DESCALES)})


def refuse_odd_slopes(alibi_slopes: Tensor | None, causal: bool) -> None:
    """FlashAttention's bias falls on both sides of a row, ours goes on rising behind it: they agree if causal."""
    if alibi_slopes is not None:
        allowed = "None, or causal=True: the bias behind a row's own position would differ"
        require(causal, "alibi_slopes", tuple(alibi_slopes.shape), allowed)
