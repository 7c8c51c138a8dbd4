"""Chapter 19. Rounding of weights: how far off the weight of one token may be.

An implementation computes in floating point. Its weight of token j is exp(s_j + e_j) instead of exp(s_j), with the same
e_j in the numerator and in the denominator of softmax, and |e_j| <= E_j, where E_j is the sum of

* `d u_a scale sum_i |q_i k_ji|`: the dot product of d terms in any order (Jeannerod and Rump, "Improved error bounds
  for inner products in floating-point arithmetic", 2013; no higher-order term);
* with softcap c, of x = scale q·k: what came before and the scaling, `e = … + 2u |x|`, pass through c tanh(x / c),
  whose slope is at most sech²((|x| - e) / c); then its own error, `c (u_exp + 8u) + 4u min(|x|, c)`: tanh by one
  exponential, a sum and a quotient, and the rounding of x / c, where |y| sech²(y) < 1;
* with ALiBi: `2u |x| + 3u |bias|`: the scaling (without a cap), the product, the sum;
* `3u |s_j| + 3u a_j`: scaling to base 2, and the exponents. a_j = max(s) - s_j bounds the sum over the exponential and
  all later rescales, because their exponents telescope. The maximum itself needs no term: a shift cancels;
* `(T + 1) u_exp`: one exponential, and one rescale a tile;
* if partial results merge by their LSE: `2u max(|s_j|, |LSE|) + 3u (a_j + ln n) + 3u ln n + 3 u_exp`, for the rounding
  of a partial LSE (which lies between s_j and the whole), its logarithm, and the exponentials of the merge.

u_a = `u_accumulate`, T = `num_tiles`, u_exp as in `RoundingModel`; u is that of float32, in which everything else is
done, or of the accumulator if that is better. A sink is a token with no dot product.
"""

from typing import Any

import numpy as np

from pagedkv.spec.arrays import Array
from pagedkv.spec.attention import by_query_head, largest, logits
from pagedkv.spec.masks import alibi
from pagedkv.spec.attention_subject import RoundingModel

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""u of each format: half the distance from 1 to the next number."""

HOPELESS = 300.0
"""A weight that may be off by a factor exp(300) is lost; more would only overflow here."""


def scalar_roundoff(model: RoundingModel) -> float:
    """u of the arithmetic outside of the long sums."""
    return min(UNIT_ROUNDOFF["float32"], model.u_accumulate)


def dot_error(query: Array, key: Array, visible: range, scale: float, model: RoundingModel) -> Array:
    """Bound (num_q_heads, len(visible)) of the error of scale * q·k, before its scaling is rounded."""
    magnitudes = (np.abs(query.astype(np.float64))[:, None] * np.abs(by_query_head(key, visible, len(query)))).sum(
        axis=2
    )
    return np.asarray(query.shape[1] * model.u_accumulate * abs(scale) * magnitudes)


def softcap_error(before: Array, x: Array, cap: float, model: RoundingModel) -> Array:
    """Bound of the error of the capped logit, from that of x = scale * q·k `before` it.

    Far beyond the cap the logit is ±cap whatever came before:

    >>> model = RoundingModel(tile=1, num_tiles=1)
    >>> float(softcap_error(np.array([5.0]), np.array([1e4]), 30.0, model)[0]) < 1e-4
    True
    """
    u = scalar_roundoff(model)
    error = before + 2 * u * np.abs(x)
    steepest = 1 - np.tanh(np.maximum(0, np.abs(x) - error) / cap) ** 2
    return np.asarray(error * steepest + cap * (model.u_exp + 8 * u) + 4 * u * np.minimum(np.abs(x), cap))


def weight_errors(
    query: Array, key: Array, position: int, visible: range, lse: Array, model: RoundingModel, options: dict[str, Any]
) -> tuple[Array, Array]:
    """(s, E), both (num_q_heads, n) float64, of one row; the sink, if there is one, is the last of the n tokens.

    `query` (num_q_heads, head_dim), `lse` (num_q_heads,) of the row; `options` as `attention`.
    """
    scale, cap, slopes, sinks = (options[name] for name in ("scale", "softcap", "alibi_slopes", "sinks"))
    u = scalar_roundoff(model)
    s = logits(query, key, position, visible, scale, cap, slopes)
    error = dot_error(query, key, visible, scale, model)
    x = np.abs(logits(query, key, position, visible, scale, 0.0, None))
    if cap:
        error = softcap_error(error, x, cap, model)
    if slopes is not None:
        error = error + (0 if cap else 2 * u * x) + 3 * u * np.abs(alibi(slopes, position, visible))
    top = largest(s, sinks)[:, None]
    if sinks is not None:
        column = np.asarray(sinks, dtype=np.float64)[:, None]
        s, error = np.hstack([s, column]), np.hstack([error, np.zeros_like(column)])
    below = top - s
    error = error + 3 * u * (np.abs(s) + below) + (model.num_tiles + 1) * model.u_exp
    if model.lse_merge:
        log_n = np.log(s.shape[1])
        error = error + 2 * u * np.maximum(np.abs(s), np.abs(lse[:, None]))
        error = error + 3 * u * (below + 2 * log_n) + 3 * model.u_exp
    return s, np.minimum(error, HOPELESS)
