"""A plain NumPy kernel in the shape of a split-KV one: tiles, online softmax, partial results, a merge by LSE.

It is the subject that the kit is tested with: simple enough to be right, and close enough to a real kernel that its
lines can be broken in the ways real kernels break (`attention_mutants`). Nothing else uses it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pagedkv.spec.attention_subject import AttentionCapabilities, Problem, RoundingModel

TILE = 8


def round_to(array: Any, dtype: str) -> Any:
    """Round float32 to the values of a dtype, ties to even."""
    single = np.ascontiguousarray(array, dtype=np.float32)
    if dtype != "bfloat16":
        return single.astype(np.float16 if dtype == "float16" else np.float32)
    bits = single.view(np.uint32)
    even = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.where(np.isnan(single), single, ((bits + even) & np.uint32(0xFFFF0000)).view(np.float32))


def load(pool: Any, table: Any, positions: Any, seen: Any, head: int) -> Any:
    """Rows (positions, dim) float32 of a pool; rows of positions outside `seen` are 0 and never read."""
    rows = np.zeros((len(positions), pool.shape[-1]), dtype=np.float32)
    inside = positions[seen]
    rows[seen] = pool[table[inside // pool.shape[1]], inside % pool.shape[1], head]
    return rows


def logits(problem: Problem, query: Any, key: Any, positions: Any, row_positions: Any, heads: Any) -> Any:
    """(rows, positions) float32 for packed rows: scale, softcap, ALiBi; no mask."""
    scores = (query @ key.T) * np.float32(problem.scale)
    if problem.softcap > 0:
        cap = np.float32(problem.softcap)
        scores = cap * np.tanh(scores / cap)
    if problem.alibi_slopes is not None:
        distance = positions[None, :] - row_positions[:, None]
        scores = scores + problem.alibi_slopes[heads][:, None] * distance.astype(np.float32)
    return scores


def visible(problem: Problem, positions: Any, row_positions: Any, length: int) -> Any:
    """(rows, positions) bool: inside the request, causal, in the window."""
    mask = (positions < length)[None, :] & np.ones((len(row_positions), 1), dtype=bool)
    if problem.causal:
        mask &= positions[None, :] <= row_positions[:, None]
    if problem.window is not None:
        mask &= positions[None, :] > row_positions[:, None] - problem.window
        mask &= positions[None, :] < row_positions[:, None] + problem.window
    return mask


def partial(problem: Problem, query: Any, request: int, head: int, row_positions: Any, heads: Any, span: Any) -> Any:
    """One split `span` = (first, end): (output (rows, value_dim), natural LSE (rows,)) of the positions in it."""
    table = problem.block_tables[request]
    length = int(problem.seq_lens[request])
    rows = len(query)
    maximum = np.full(rows, -np.inf, dtype=np.float32)
    total = np.zeros(rows, dtype=np.float32)
    output = np.zeros((rows, problem.value_cache.shape[3]), dtype=np.float32)
    for first in range(span[0], span[1], TILE):
        positions = np.arange(first, first + TILE)
        mask = visible(problem, positions, row_positions, length) & (positions < span[1])
        seen = mask.any(axis=0)
        key = load(problem.key_cache, table, positions, seen, head)
        value = load(problem.value_cache, table, positions, seen, head)
        scores = np.where(mask, logits(problem, query, key, positions, row_positions, heads), -np.inf)
        raised = np.maximum(maximum, scores.max(axis=1))
        base = np.where(raised == -np.inf, 0, raised)
        rescale = np.exp(maximum - base)
        weights = np.exp(scores - base[:, None])
        total = total * rescale + weights.sum(axis=1)
        values = np.where(mask[:, :, None], value, 0)  # a weight of 0 would not hide NaN
        output = output * rescale[:, None] + (weights[:, None] @ values)[:, 0]
        maximum = raised
    nothing = total == 0
    lse = np.where(nothing, -np.inf, maximum + np.log(np.where(nothing, 1, total))).astype(np.float32)
    return output / np.where(nothing, 1, total)[:, None], lse


def merge(outputs: Any, lses: Any, sinks: Any) -> tuple[Any, Any]:
    """Merge partial results (splits, rows, value_dim) by their LSE (splits, rows); a sink joins the denominator."""
    if sinks is not None:
        outputs = np.concatenate([outputs, np.zeros_like(outputs[:1])])
        lses = np.concatenate([lses, np.where(np.isneginf(lses.max(axis=0)), -np.inf, sinks)[None]])
    maximum = lses.max(axis=0)
    base = np.where(maximum == -np.inf, 0, maximum)
    weights = np.exp(lses - base)
    total = weights.sum(axis=0)
    nothing = total == 0
    divisor = np.where(nothing, 1, total)
    output = (weights[..., None] * outputs).sum(axis=0) / divisor[:, None]
    return output, np.where(nothing, -np.inf, maximum + np.log(np.where(nothing, 1, total))).astype(np.float32)


class TiledAttention:
    """The subject. Everything is declared but `split_invariant`."""

    name = "tiled NumPy"
    capabilities = AttentionCapabilities(
        dtypes=("float32", "float16", "bfloat16"), causal_prefill=True, non_causal=True, window=True, softcap=True,
        alibi=True, sinks=True, value_dim=True, returns_lse=True, writes=True, strided=True, padded=True,
        batch_invariant=True,
    )  # fmt: skip

    def rounding(self, problem: Problem) -> RoundingModel:
        length = int(problem.seq_lens.max(initial=1))
        splits = 1 if problem.split_size is None else -(-length // problem.split_size)
        merges = splits > 1 or problem.sinks is not None
        return RoundingModel(tile=TILE, num_tiles=-(-length // TILE) + splits + 1, lse_merge=merges)

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        out = np.zeros((*problem.query.shape[:2], problem.value_cache.shape[3]), dtype=np.float32)
        lse = np.full(out.shape[:2], -np.inf, dtype=np.float32)
        num_kv_heads = problem.key_cache.shape[2]
        group = out.shape[1] // num_kv_heads
        end = 0
        for request, rows in enumerate(problem.query_lens):
            start, end = end, end + int(rows)
            length = int(problem.seq_lens[request])
            row_positions = np.repeat(length - rows + np.arange(rows), group)
            for head in range(num_kv_heads):
                heads = slice(head * group, (head + 1) * group)
                query = problem.query[start:end, heads].astype(np.float32).reshape(-1, problem.query.shape[2])
                numbers = np.tile(np.arange(head * group, (head + 1) * group), rows)
                whole = max(1, -(-length // TILE)) * TILE
                size = min(whole, problem.split_size or whole)
                spans = [(first, first + size) for first in range(0, max(1, length), size)]
                parts = [partial(problem, query, request, head, row_positions, numbers, span) for span in spans]
                sinks = None if problem.sinks is None else problem.sinks[numbers]
                outputs, lses = zip(*parts, strict=True)
                merged, total = merge(np.stack(outputs), np.stack(lses), sinks)
                out[start:end, heads] = merged.reshape(rows, group, merged.shape[1])
                lse[start:end, heads] = total.reshape(rows, group)
        return round_to(out, problem.dtype), lse

    def write_kv(self, key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any, dtype: str) -> None:
        kept = slot_mapping >= 0
        slots = slot_mapping[kept]
        for rows, cache in ((key, key_cache), (value, value_cache)):
            cache[slots // cache.shape[1], slots % cache.shape[1]] = round_to(rows[kept], dtype)

    def copy_blocks(self, caches: Sequence[Any], pairs: Any, dtype: str) -> None:
        for cache in caches:
            for source, destination in pairs:
                cache[destination] = cache[source]
