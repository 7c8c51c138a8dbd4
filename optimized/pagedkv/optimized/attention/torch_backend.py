"""The simple backend: gather the pages of a request, then attend with torch's own products.

For tensors on the CPU where numba is not installed, and by name on any device, for which it waits, as it looks at
lengths. One request at a time, so that no bit depends on the batch; in float32 whatever the dtype of the cache. A row
reads what it sees and nothing else: unused slots may hold anything.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import AttentionCall, Mask
from pagedkv.optimized.attention.backends import Copier
from pagedkv.optimized.attention.debug import check_call, check_gather, check_pairs, check_slots
from pagedkv.spec.words import ceil_div


class TorchBackend:
    """See `pagedkv.optimized.attention.Backend`."""

    def attend(self, call: AttentionCall) -> None:
        """Fill `out` and `lse`. Splits make no sense here: `split_size` changes nothing."""
        query, block_tables, out, lse, mask = call.query, call.block_tables, call.out, call.lse, call.mask
        caches, lengths = (call.k_cache, call.v_cache), call.seq_lens.tolist()
        ends = list(range(len(lengths) + 1)) if call.cu_seqlens_q is None else call.cu_seqlens_q.tolist()
        size = caches[0].shape[1]
        check_call(call)  # of all requests, before the first is computed: Misuse leaves `out` as it was
        out[ends[-1] :], lse[ends[-1] :] = 0, -torch.inf
        for r, length in enumerate(lengths):
            rows = slice(ends[r], ends[r + 1])
            if rows.start == rows.stop:
                continue
            first = first_seen(length, rows.stop - rows.start, mask)
            blocks = block_tables[r, first // size : ceil_div(length, size)].long()
            key, value = (cache[blocks].flatten(0, 1)[first % size :][: length - first] for cache in caches)
            out[rows], lse[rows] = attend_request(query[rows], key, value, first, length, mask)

    def write_kv(self, rows: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor], slot_mapping: Tensor) -> None:
        """Rows to slots; `Misuse` for a slot past the cache or given twice."""
        size = caches[0].shape[1]
        check_slots(slot_mapping, caches[0].shape[0] * size)
        kept = slot_mapping >= 0
        slots = slot_mapping[kept]
        chosen = [row[kept].to(cache.dtype) for row, cache in zip(rows, caches, strict=True)]  # they may lie in a cache
        for row, cache in zip(chosen, caches, strict=True):
            cache[slots // size, slots % size] = row

    def copier(self, sources: Sequence[Tensor], destinations: Sequence[Tensor]) -> Copier:
        """All sources are read before any destination is written; `Misuse` for pairs that get in each other's way."""

        def copy(pairs: Tensor) -> None:
            check_pairs(pairs, len(sources[0]), len(destinations[0]), apart=sources is destinations)
            origins, targets = pairs[pairs[:, 0] >= 0].long().unbind(1)
            for source, destination in zip(sources, destinations, strict=True):
                destination[targets] = source[origins]

        return copy

    def gather(
        self, cache: Tensor, block_tables: Tensor, cu_seqlens: Tensor, starts: Tensor | None, out: Tensor
    ) -> None:
        """Request after request; `Misuse` for what the tables do not hold."""
        check_gather(cache, block_tables, cu_seqlens, starts, len(out))
        ends, size = cu_seqlens.tolist(), cache.shape[1]
        firsts = [0] * len(block_tables) if starts is None else starts.tolist()
        for table, first, (begin, end) in zip(block_tables, firsts, pairwise(ends), strict=True):
            blocks = table[first // size : ceil_div(first + end - begin, size)][: end - begin].long()  # none for no row
            out[begin:end] = cache[blocks].flatten(0, 1)[first % size :][: end - begin]
        out[ends[-1] :] = 0

    def merge(self, outs: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> None:
        """Part after part; `out` and `lse` are new."""
        lses = lses.masked_fill(lses == torch.inf, -torch.inf)  # of a row that saw nothing, in FlashAttention-2
        largest = lses.amax(0)
        shift = torch.where(largest == -torch.inf, 0.0, largest)
        total, acc = torch.zeros_like(shift), torch.zeros(out.shape, dtype=torch.float32, device=out.device)
        for part, weight in zip(outs, torch.exp(lses - shift), strict=True):
            total += weight
            acc += torch.where(weight[..., None] == 0, 0.0, part.float()) * weight[..., None]
        nothing = total == 0
        out.copy_(acc / torch.where(nothing, 1.0, total)[..., None])
        lse.copy_(torch.where(nothing, -torch.inf, shift + torch.log(total)))


def first_seen(length: int, rows: int, mask: Mask) -> int:
    """The first position that any row of a request sees."""
    return 0 if mask.window is None else min(length, max(0, length - rows - mask.window + 1))


def attend_request(
    query: Tensor, key: Tensor, value: Tensor, first: int, length: int, mask: Mask
) -> tuple[Tensor, Tensor]:
    """(out (m, num_q_heads, value_dim), lse (m, num_q_heads)) of one request; `key`, `value` (length - first, …)."""
    rows, num_q_heads, _ = query.shape
    num_kv_heads = key.shape[1]
    device = key.device
    positions = torch.arange(first, length, device=device)
    own = torch.arange(length - rows, length, device=device)[:, None]
    seen = (positions <= own) if mask.causal else torch.ones(rows, len(positions), dtype=torch.bool, device=device)
    if mask.window is not None:
        seen &= (positions > own - mask.window) & (positions < own + mask.window)
    # Rows of one KV head's group together: (num_kv_heads, m * group, dim), row-major in (m, group).
    group = num_q_heads // num_kv_heads
    q = query.float().view(rows, num_kv_heads, group, -1).transpose(0, 1).flatten(1, 2)
    k, v = key.float().transpose(0, 1), value.float().transpose(0, 1)
    s = (q @ k.transpose(1, 2)).view(num_kv_heads, rows, group, -1).permute(1, 0, 2, 3).flatten(1, 2) * mask.scale
    if mask.softcap:
        s = mask.softcap * torch.tanh(s / mask.softcap)
    if mask.alibi_slopes is not None:
        s = s + mask.alibi_slopes[:, None] * (positions - own).float()[:, None, :]
    s = s.masked_fill(~seen[:, None, :], -torch.inf)
    extra = None if mask.sinks is None else mask.sinks.expand(rows, num_q_heads)
    top = s.amax(2) if s.shape[2] else torch.full((rows, num_q_heads), -torch.inf, device=device)
    top = top if extra is None else torch.maximum(top, extra)
    shift = torch.where(top == -torch.inf, 0.0, top)
    p = torch.exp(s - shift[..., None])
    total = p.sum(2) if extra is None else p.sum(2) + torch.exp(extra - shift)
    weighted = weigh(p.view(rows, num_kv_heads, group, -1).transpose(0, 1).flatten(1, 2), v, seen, group)
    out = weighted.view(num_kv_heads, rows, group, -1).permute(1, 0, 2, 3).flatten(1, 2)
    nothing = ~seen.any(1)[:, None].expand(rows, num_q_heads)
    divisor = torch.where(nothing | (total == 0), 1.0, total)
    out = torch.where(nothing[..., None], 0.0, out / divisor[..., None])
    lse = torch.where(nothing | (total == 0), -torch.inf, shift + torch.log(divisor))  # total 0: all logits are -inf
    return out.to(query.dtype), lse


def weigh(p: Tensor, v: Tensor, seen: Tensor, group: int) -> Tensor:
    """p @ v, where what a row does not see counts for nothing: 0 * NaN and 0 * inf are no 0.

    `p` (num_kv_heads, m * group, n), `v` (num_kv_heads, n, value_dim), `seen` (m, n). Rows that see the same of the odd
    tokens share one product, of the shape that the product would have without any: the same bits.
    """
    odd = ~v.isfinite().all(2).all(0)
    if not odd.any():
        return p @ v
    rows_that_see: dict[tuple[bool, ...], list[int]] = {}
    for row, pattern in enumerate(seen[:, odd].tolist()):
        rows_that_see.setdefault(tuple(pattern), []).append(row)
    result = p.new_empty((len(p), len(seen), group, v.shape[2]))
    for rows in rows_that_see.values():
        cleaned = v.clone()  # with the strides of v, which the order of a sum may depend on
        cleaned[:, odd & ~seen[rows[0]]] = 0.0
        result[:, rows] = (p @ cleaned).view_as(result)[:, rows]
    return result.flatten(1, 2)
