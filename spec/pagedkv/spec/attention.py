"""Chapter 18. Attention: the kernel contract.

For a row at position i and query head h, over the positions j that the row sees,

    s_j = softcap(scale * q_h · k_j) + slope_h * (j - i)        out = sum_j exp(s_j - LSE) v_j
    LSE = log(exp(sink_h) + sum_j exp(s_j))                     natural logarithm

in float64 over the values as stored. Head h reads KV head h // (num_q_heads // num_kv_heads), which is GQA, and MQA
with one KV head (Ainslie et al., EMNLP 2023). A sink is one more logit a head, which takes weight and adds no value.
A row that sees nothing gives output 0 and LSE -inf, also where there is a sink.

Paging is not in the formula: `paged_attention` gathers, then attends (Kwon et al., 2023, §4.1, equation 4). Laws:

* placement: relabelling blocks changes no bit, nor does what unused slots hold;
* rows: m rows at once equal m single rows, each over its own prefix, bit for bit;
* merge: partial results over disjoint sets of keys merge to the whole (Milakov and Gimelshein, 2018; Dao, 2023, §3).

>>> rng = np.random.default_rng(0)
>>> q, k, v = rng.standard_normal((1, 2, 4)), rng.standard_normal((7, 1, 4)), rng.standard_normal((7, 1, 3))
>>> whole, lse = attention(q, k, v, scale=0.5)
>>> parts = [attention(q, k[part], v[part], scale=0.5) for part in (slice(0, 3), slice(3, 3), slice(3, 7))]
>>> merged, total = merge(np.stack([part[0] for part in parts]), np.stack([part[1] for part in parts]))
>>> bool(np.allclose(merged, whole)), bool(np.allclose(total, lse))
(True, True)
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pagedkv.spec.arrays import Array, gather
from pagedkv.spec.masks import alibi, row_positions, seen, softcap
from pagedkv.spec.attention_subject import Problem
from pagedkv.spec.words import Misuse


def attention(
    query: Array,
    key: Array,
    value: Array,
    *,
    scale: float,
    causal: bool = True,
    window: int | None = None,
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    sinks: Array | None = None,
) -> tuple[Array, Array]:
    """Output (m, num_q_heads, value_dim) and LSE (m, num_q_heads), float64, of the last m positions of one request.

    `query` (m, num_q_heads, head_dim); `key` (n, num_kv_heads, head_dim), `value` (n, num_kv_heads, value_dim), all
    positions in order; `alibi_slopes`, `sinks` (num_q_heads,) or None.
    """
    check_heads(query, key, value)
    rows, num_q_heads, _ = query.shape
    out = np.zeros((rows, num_q_heads, value.shape[2]))
    lse = np.full((rows, num_q_heads), -np.inf)
    for row, position in enumerate(row_positions(rows, len(key))):
        visible = seen(position, len(key), causal=causal, window=window)
        if not visible:
            continue
        s = logits(query[row], key, position, visible, scale, softcap, alibi_slopes)
        shift = largest(s, sinks)  # cancels; it keeps exp from overflowing
        weights = np.exp(s - shift[:, None])
        total = weights.sum(axis=1) + (0.0 if sinks is None else np.exp(sinks - shift))
        out[row] = (weights[:, :, None] * by_query_head(value, visible, num_q_heads)).sum(axis=1) / total[:, None]
        lse[row] = shift + np.log(total)
    return out, lse


def check_heads(query: Array, key: Array, value: Array) -> None:
    """The shapes must fit each other."""
    if query.shape[1] % key.shape[1]:
        raise Misuse("query.shape", query.shape, f"a number of heads that the {key.shape[1]} KV heads divide")
    if query.shape[2] != key.shape[2] or key.shape[:2] != value.shape[:2]:
        raise Misuse("key.shape", key.shape, f"(n, num_kv_heads, {query.shape[2]}), and values for as many")


def by_query_head(rows: Array, visible: range, num_q_heads: int) -> Array:
    """The visible rows of keys or values, one a query head: (num_q_heads, len(visible), dim) float64."""
    chosen = np.asarray(rows[visible.start : visible.stop], dtype=np.float64)
    return np.ascontiguousarray(np.repeat(chosen, num_q_heads // rows.shape[1], axis=1).swapaxes(0, 1))


def logits(
    query: Array, key: Array, position: int, visible: range, scale: float, cap: float, slopes: Array | None
) -> Array:
    """s_j (num_q_heads, len(visible)) float64 of one row, `query` (num_q_heads, head_dim)."""
    keys = by_query_head(key, visible, len(query))
    dot = (np.asarray(query, dtype=np.float64)[:, None, :] * keys).sum(axis=2)
    capped = softcap(scale * dot, cap)
    return capped if slopes is None else capped + alibi(slopes, position, visible)


def largest(s: Array, sinks: Array | None) -> Array:
    """The largest logit of each head (num_q_heads,) float64, the sink among them."""
    return np.asarray(s.max(axis=1) if sinks is None else np.maximum(s.max(axis=1), sinks))


def merge(outs: Array, lses: Array) -> tuple[Array, Array]:
    """The result over the union of disjoint key sets, from the results over each: float64.

    `outs` (parts, m, num_q_heads, value_dim), `lses` (parts, m, num_q_heads). A part that saw nothing (LSE -inf) counts
    for nothing, whatever its output holds. A sink belongs to one part only; by itself it is the part (0, sink).
    """
    parts = np.asarray(lses, dtype=np.float64)
    top = parts.max(axis=0)
    shift = np.where(np.isneginf(top), 0.0, top)
    weights = np.exp(parts - shift)[..., None]
    total = weights.sum(axis=0)
    total[total == 0] = 1.0  # nothing was seen by any part
    out = (weights * np.where(weights == 0, 0.0, outs)).sum(axis=0) / total
    return out, np.where(np.isneginf(top), -np.inf, shift + np.log(total[..., 0]))


def requests(problem: Problem) -> Iterator[tuple[slice, Array, Array, dict[str, Any]]]:
    """Each request of a launch: its rows of the query, its keys and values in order, the options of `attention`."""
    names = ("scale", "causal", "window", "softcap", "alibi_slopes", "sinks")
    options = {name: getattr(problem, name) for name in names}
    end = 0
    for table, length, rows in zip(problem.block_tables, problem.seq_lens, problem.query_lens, strict=True):
        start, end = end, end + int(rows)
        key, value = (gather(cache, table, int(length)) for cache in (problem.key_cache, problem.value_cache))
        yield slice(start, end), key, value, options


def paged_attention(problem: Problem) -> tuple[Array, Array]:
    """Output (total_q, num_q_heads, value_dim) and LSE (total_q, num_q_heads) of a launch, float64.

    Each request is gathered through its block table and attends by itself.
    """
    out = np.zeros((*problem.query.shape[:2], problem.value_cache.shape[3]))
    lse = np.full(problem.query.shape[:2], -np.inf)  # rows past the last request see nothing
    for rows, key, value, options in requests(problem):
        out[rows], lse[rows] = attention(problem.query[rows], key, value, **options)
    return out, lse
