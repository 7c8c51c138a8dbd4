"""Chapter 19. The rounding bound: how far from the specification a right answer may lie.

An implementation computes in floating point, so its output differs from `attention`, which is taken as exact (its own
error is this bound with u = 2**-53). This chapter bounds the difference for every element of the output, from the
stored values and five numbers that the implementation declares (`RoundingModel`). There is nothing to tune: a larger
difference is a fault or a wrong declaration. One row, one head, one column; w_j = exp(s_j), p_j = w_j / sum(w).

**1. Weights.** The computed weight of token j is w_j exp(e_j), in the numerator and in the denominator, |e_j| <= E_j:

    d u_a scale sum_i |q_i k_ji|        the dot product in any order (Jeannerod and Rump, 2013), u_a = u_accumulate
    (2u |x|) sech²(x') + cap (u_exp + 8u) + 2u min(|x|, cap)    softcap of x = scale q·k, for the first term too: what
                                        came before passes through tanh, flattest at the largest x' reached; then its own
    2u |x| + 3u |bias|                  ALiBi: scaling before, the product, the sum
    3u |s_j| + 3u a_j                   scaling to base 2, and the exponents; a_j = max(s) - s_j bounds also the sum of
                                        all later rescales, which telescope
    (T + 1) u_exp                       one exponential, and one rescale a tile; T = num_tiles
    2u max(|s_j|, |LSE|) + 3u (a_j + ln n) + 3 u_exp + 3u ln n   if partial results merge by LSE: rounding the LSE, its
                                        logarithm, and two exponentials

The subtracted maximum itself cancels. Since sum_j p_j (v_j - out) = 0, these errors move the output by

    sum_j p_j (exp(e_j) - 1) (v_j - out) / sum_j p_j exp(e_j)    and    D = sum_j p_j exp(-E_j) <= the denominator,

which vanishes where all values agree. A sink is a token with value 0 and no dot product.

**2. Numerator only**, relative to each p_j v_j: H = u_weights + u_a (tile + T) + 2T u, for weights rounded to a storage
format, sums within a tile and over tiles, rescales. **3. Denominator only**: Z = u_a (tile + T) + 2T u + 2u. (k factors
1 + u stay below exp(k u), so `expm1` below keeps the second order.) **4. Underflow**: float32 may flush below 2**-126,
which costs at most that much a step; float16 weights lose up to 2**-25 each. Then

    B = (sum_j p_j expm1(E_j) |v_j - out| + H sum_j p_j exp(E_j) |v_j|) / (D (1 - Z)) + |out| Z / (1 - Z) + underflow

and **5.** rounding the result: u_out (|out| + B) + half of the smallest number of the output format.

**LSE**: log(sum_j p_j exp(E_j)) - log(1 - Z), and the logarithm, its sum with the maximum and its rounding.
Sources: Higham, "Accuracy and Stability of Numerical Algorithms", 2002, §3; Blanchard, Higham and Higham, 2021.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pagedkv.spec.arrays import Array
from pagedkv.spec.attention import attention, by_query_head, largest, logits, requests
from pagedkv.spec.masks import alibi, row_positions, seen
from pagedkv.spec.subject import Problem, RoundingModel

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""u: half the distance from 1 to the next number."""

SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}
"""Of the output format: the smallest number that is not flushed to 0."""

TINY = 2.0**-126
"""Float32 arithmetic may flush what is smaller."""


@dataclass(frozen=True)
class Bound:
    """The specification's result and how far from it an implementation may lie."""

    out: Array
    """(m, num_q_heads, value_dim) float64."""
    lse: Array
    """(m, num_q_heads) float64."""
    out_bound: Array
    lse_bound: Array
    seen: int
    """Triples (row, head, token) where the row sees the token."""
    visible: int
    """Those whose loss must show: without the token some element would move by more than twice its bound."""

    @property
    def visibility(self) -> float:
        """Share of tokens whose single loss the bound must show; 1 where there is nothing to lose."""
        return self.visible / self.seen if self.seen else 1.0


def bound(query: Array, key: Array, value: Array, *, model: RoundingModel, dtype: str, **options: Any) -> Bound:
    """The bound for one request; arguments and `options` as `attention`, `dtype` of the output."""
    out, lse = attention(query, key, value, **options)
    out_bound, lse_bound, tokens = np.zeros_like(out), np.zeros_like(lse), [0, 0]
    for row, position in enumerate(row_positions(len(query), len(key))):
        visible = seen(position, len(key), causal=options["causal"], window=options["window"])
        if visible:
            token = _tokens(query[row], key, value, position, visible, lse[row], model, options)
            out_bound[row], lse_bound[row], shown = _row(token, out[row], lse[row], model, dtype)
            tokens = [tokens[0] + shown.size, tokens[1] + int(shown.sum())]
    return Bound(out, lse, out_bound, lse_bound, *tokens)
