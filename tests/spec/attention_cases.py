"""Cases of attention for tests: small random launches, and attention written out as scalar loops.

The loops share nothing with the specification: no arrays, no masks as ranges, exact sums.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from pagedkv.spec.arrays import stored
from pagedkv.spec.attention_subject import Problem, RoundingModel
from pagedkv.spec.words import ceil_div

Array = NDArray[Any]

EXACT = RoundingModel(tile=64, num_tiles=8, u_accumulate=2.0**-53, u_exp=2.0**-51, lse_merge=True)
"""Float64 in any order, merged or not: two such results lie within twice the bound of this model."""


@dataclass(frozen=True)
class Single:
    """One request: arrays and the options of `attention`."""

    query: Array
    key: Array
    value: Array
    options: dict[str, Any]

    def with_options(self, **options: Any) -> "Single":
        return Single(self.query, self.key, self.value, {**self.options, **options})


@st.composite
def options(draw: st.DrawFn, num_q_heads: int, rng: np.random.Generator) -> dict[str, Any]:
    """Any combination of masks and biases."""
    return {
        "scale": draw(st.sampled_from([0.25, 0.5, 1.0])),
        "causal": draw(st.booleans()),
        "window": draw(st.none() | st.integers(1, 12)),
        "softcap": draw(st.sampled_from([0.0, 2.0, 30.0])),
        "alibi_slopes": rng.random(num_q_heads).astype(np.float32) if draw(st.booleans()) else None,
        "sinks": rng.standard_normal(num_q_heads).astype(np.float32) if draw(st.booleans()) else None,
    }


@st.composite
def singles(draw: st.DrawFn, most: int = 10) -> Single:
    """A request of up to `most` positions; it may bring more rows than it has positions."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    heads, group, dim = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    length, rows = draw(st.integers(0, most)), draw(st.integers(1, 5))
    size = draw(st.sampled_from([1.0, 30.0]))
    query = (size * rng.standard_normal((rows, heads * group, dim))).astype(np.float32)
    key, value = (rng.standard_normal((length, heads, width)).astype(np.float32) for width in (dim, dim + 1))
    return Single(query, key, value, draw(options(heads * group, rng)))


@st.composite
def problems(draw: st.DrawFn, dtype: str | None = None) -> Problem:
    """A launch of one to three requests, blocks anywhere, NaN and garbage everywhere else."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    dtype = dtype or draw(st.sampled_from(["float32", "float16", "bfloat16"]))
    heads, group, dim = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.sampled_from([1, 4, 16]))
    block_size = draw(st.sampled_from([1, 2, 4]))
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    rows = [draw(st.integers(0, 4)) for _ in lengths]
    counts = [ceil_div(length, block_size) for length in lengths]
    order = list(rng.permutation(sum(counts) + 2))
    tables = rng.integers(-(2**31), 2**31, size=(len(lengths), max(counts) + 2)).astype(np.int32)
    caches = [np.full((len(order), block_size, heads, dim), np.nan, dtype=np.float32) for _ in range(2)]
    for table, length, count in zip(tables, lengths, counts, strict=True):
        table[:count] = [order.pop() for _ in range(count)]
        for cache in caches:
            for position in range(length):
                row = rng.standard_normal((heads, dim)).astype(np.float32)
                cache[table[position // block_size], position % block_size] = row
    query = draw(st.sampled_from([1.0, 100.0])) * rng.standard_normal((sum(rows), heads * group, dim))
    return Problem(
        query=stored(query, dtype),
        key_cache=stored(caches[0], dtype),
        value_cache=stored(caches[1], dtype),
        block_tables=tables,
        seq_lens=np.array(lengths, dtype=np.int32),
        query_lens=np.array(rows, dtype=np.int32),
        dtype=dtype,
        **draw(options(heads * group, rng)),
    )


def sees(position: int, j: int, causal: bool, window: int | None) -> bool:
    """Whether the row at `position` sees position j."""
    if causal and j > position:
        return False
    return window is None or abs(position - j) < window


def scalar_attention(single: Single) -> tuple[Array, Array]:
    """Attention element by element in Python floats."""
    query, key, value, options = single.query, single.key, single.value, single.options
    rows, num_q_heads, dim = query.shape
    length, num_kv_heads, width = value.shape
    out, lse = np.zeros((rows, num_q_heads, width)), np.full((rows, num_q_heads), -np.inf)
    for r in range(rows):
        i = length - rows + r
        positions = [j for j in range(length) if sees(i, j, options["causal"], options["window"])]
        for h in range(num_q_heads if positions else 0):
            g = h // (num_q_heads // num_kv_heads)
            logits = []
            for j in positions:
                s = options["scale"] * math.fsum(float(query[r, h, c]) * float(key[j, g, c]) for c in range(dim))
                if options["softcap"]:
                    s = options["softcap"] * math.tanh(s / options["softcap"])
                if options["alibi_slopes"] is not None:
                    s += float(options["alibi_slopes"][h]) * (j - i)
                logits.append(s)
            sink = [] if options["sinks"] is None else [float(options["sinks"][h])]
            top = max(logits + sink)
            total = math.fsum(math.exp(s - top) for s in logits + sink)
            lse[r, h] = top + math.log(total)
            for c in range(width):
                terms = (math.exp(s - top) * float(value[j, g, c]) for j, s in zip(positions, logits, strict=True))
                out[r, h, c] = math.fsum(terms) / total
    return out, lse
