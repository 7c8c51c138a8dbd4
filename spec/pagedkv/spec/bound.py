"""Chapter 20. The rounding bound: how far from the specification a right answer may lie.

`attention` is taken as exact: its own error is this bound with u = 2**-53. The bound holds for every element of the
output by itself, and follows from the stored values and the numbers that an implementation declares (`RoundingModel`).
Nothing is tuned. A difference beyond it is a fault, or a false declaration. For one row, one head and one column, with
s_j and E_j of the chapter before, and p_j = exp(s_j - LSE):

1. *Weights* that are off by exp(e_j), |e_j| <= E_j, in numerator and denominator. As sum_j p_j (v_j - out) = 0, they
   move the output by `sum_j p_j (exp(e_j) - 1) (v_j - out) / sum_j p_j exp(e_j)`, which is 0 where all values agree.
   The divisor is at least `D = sum_j p_j exp(-E_j)`. A sink takes part as a token with value 0.
2. *Numerator* only, relative to each p_j v_j: `H = u_weights + u_a (tile + T) + 2T u`: weights rounded before they meet
   V, the sums within a tile and over tiles, the rescales.
3. *Denominator* only: `Z = u_a (tile + T) + 2T u + 2u`. A product of k factors 1 + u stays below exp(k u), so H and Z
   stand for expm1 of these sums.
4. *Underflow*: each step may lose float32's smallest normal number; float16 weights up to 2**-25 of the largest each,
   which is at most `min(1, max_j p_j exp(max_j E_j) / D)` of the sum of all.

       B = (sum_j p_j expm1(E_j) |v_j - out| + H sum_j p_j exp(E_j) |v_j|) / (D (1 - Z)) + |out| Z / (1 - Z) + underflow

5. *Output*: `u_out (|out| + B)`, and near 0 half of the smallest number of the format, or what may be flushed.

The LSE may be off by `log(sum_j p_j exp(E_j)) - log(1 - Z)`, by its logarithm `u_exp + 4u ln n` and by the sum and its
scaling `4u (|LSE| + |max|)`, once more if partial results merge. A row that sees nothing has no error: 0 and -inf.

Sources: Higham, "Accuracy and Stability of Numerical Algorithms", 2002, §3 and §4; Blanchard, Higham and Higham,
"Accurately computing the log-sum-exp and softmax functions", 2021.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pagedkv.spec.arrays import Array
from pagedkv.spec.attention import attention, by_query_head, requests
from pagedkv.spec.masks import row_positions, seen
from pagedkv.spec.rounding import UNIT_ROUNDOFF, scalar_roundoff, weight_errors
from pagedkv.spec.attention_subject import Problem, RoundingModel

TINY = 2.0**-126
"""Float32 arithmetic may flush what is smaller."""

SMALLEST = {"float64": TINY, "float32": TINY, "float16": 2.0**-25, "bfloat16": TINY}
"""What rounding to an output format may lose near 0."""


@dataclass(frozen=True)
class Bound:
    """The specification's result, and how far from it an implementation may lie; arrays as `attention` returns."""

    out: Array
    lse: Array
    out_bound: Array
    lse_bound: Array
    seen: int
    """Triples (row, query head, token) of which the row sees the token."""
    visible: int
    """Those whose loss must show: without the token some element moves by more than twice its bound."""

    @property
    def visibility(self) -> float:
        """Share of tokens whose single loss must break the bound: how much a test by it can see."""
        return self.visible / self.seen if self.seen else 1.0


def bound(
    query: Array, key: Array, value: Array, *, model: RoundingModel, dtype: str = "float32", **options: Any
) -> Bound:
    """The bound for one request. Arguments and `options` as `attention`; `dtype` is that of the output."""
    options = {"causal": True, "window": None, "softcap": 0.0, "alibi_slopes": None, "sinks": None, **options}
    out, lse = attention(query, key, value, **options)
    out_bound, lse_bound = np.zeros_like(out), np.zeros_like(lse)
    count = shown = 0
    for row, position in enumerate(row_positions(len(query), len(key))):
        visible = seen(position, len(key), causal=options["causal"], window=options["window"])
        if not visible:
            continue
        s, error = weight_errors(query[row], key, position, visible, lse[row], model, options)
        log_p = s - lse[row][:, None]
        values = by_query_head(value, visible, query.shape[1])
        out_bound[row] = _output_bound(log_p, error, values, out[row], model, dtype)
        lse_bound[row] = _lse_bound(s, error, lse[row], model)
        loss = _losses(np.exp(log_p[:, : len(visible)]), values, out[row])
        count += loss[..., 0].size
        shown += int((loss > 2 * out_bound[row][:, None]).any(axis=2).sum())
    return Bound(out, lse, out_bound, lse_bound, count, shown)


def _relative(model: RoundingModel) -> tuple[float, float]:
    """(H, Z)."""
    sums = model.u_accumulate * (model.tile + model.num_tiles) + 2 * model.num_tiles * scalar_roundoff(model)
    return float(np.expm1(model.u_weights + sums)), float(np.expm1(sums + 2 * scalar_roundoff(model)))


def _output_bound(log_p: Array, error: Array, values: Array, out: Array, model: RoundingModel, dtype: str) -> Array:
    """(num_q_heads, value_dim) for one row; `values` (num_q_heads, n, value_dim), without the sink."""
    h, z = _relative(model)
    p, at_least = np.exp(log_p), np.exp(log_p - error).sum(axis=1)[:, None]
    values = np.pad(values, ((0, 0), (0, p.shape[1] - values.shape[1]), (0, 0)))  # a sink has the value 0
    size = np.abs(values)
    moved = ((p * np.expm1(error))[..., None] * np.abs(values - out[:, None])).sum(axis=1)
    rounded = h * ((p * np.exp(error))[..., None] * size).sum(axis=1)
    tokens, steps = values.shape[1], 2 * model.num_tiles + 1
    lost = 2 * TINY * (size.sum(axis=1) + tokens * np.abs(out) + 2 * tokens + steps)
    if model.u_weights == UNIT_ROUNDOFF["float16"]:
        scaled = np.minimum(1, (p.max(axis=1) * np.exp(error.max(axis=1)))[:, None] / at_least)  # the largest / the sum
        lost = lost + 2.0**-25 * (1 + h) * scaled / (1 - z) * size.sum(axis=1)
    b = (moved + rounded) / (at_least * (1 - z)) + np.abs(out) * z / (1 - z) + lost
    return np.asarray(b + UNIT_ROUNDOFF[dtype] * (np.abs(out) + b) + SMALLEST[dtype])


def _lse_bound(s: Array, error: Array, lse: Array, model: RoundingModel) -> Array:
    u, (_, z) = scalar_roundoff(model), _relative(model)
    spread = np.log((np.exp(s - lse[:, None]) * np.exp(error)).sum(axis=1)) - np.log1p(-z)
    far = np.abs(s).max(axis=1, where=np.isfinite(s), initial=0)  # a sink of -inf is none
    logarithm = model.u_exp + 4 * u * (np.log(s.shape[1]) + np.abs(lse) + far)
    return np.asarray(spread + (2 if model.lse_merge else 1) * logarithm)


def _losses(p: Array, values: Array, out: Array) -> Array:
    """How far the output moves if one token is lost: (num_q_heads, n, value_dim), by token. The only token leaves 0."""
    if values.shape[1] == 1 and (p == 1).all():
        return np.abs(values)
    moved = (p / np.where(1 - p > 1e-9, 1 - p, np.inf))[..., None]  # nearly all the weight: not counted as certain
    return np.asarray(moved * np.abs(values - out[:, None]))


def paged_bound(problem: Problem, model: RoundingModel) -> Bound:
    """The bound for a launch, its output in the problem's dtype; shapes as `paged_attention`."""
    none = np.zeros((0, problem.query.shape[1], problem.value_cache.shape[3]))
    parts = [Bound(none, none[..., 0], none, none[..., 0], 0, 0)]  # without requests it is all there is
    for rows, key, value, options in requests(problem):
        parts.append(bound(problem.query[rows], key, value, model=model, dtype=problem.dtype, **options))
    out, lse, out_bound, lse_bound = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("out", "lse", "out_bound", "lse_bound")
    )
    counts = sum(part.seen for part in parts), sum(part.visible for part in parts)
    return Bound(out, lse, out_bound, lse_bound, *counts)


def rho(result: Array, reference: Array, within: Array) -> Array:
    """|result - reference| / bound, element by element; the gate is 1. Equal: 0, also where both are -inf. NaN: inf.

    >>> rho(np.array([1.5, -np.inf, np.nan, 2]), np.array([1, -np.inf, 0, 1]), np.array([1, 0, 1, 0])).tolist()
    [0.5, 0.0, inf, inf]
    """
    result = np.asarray(result, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.abs(result - reference) / within
    return np.where(result == reference, 0.0, np.where(np.isnan(ratio), np.inf, ratio))
