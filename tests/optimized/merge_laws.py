"""The laws of merging, for any function that fills an output: a broken one raises `AssertionError` or worse.

Merging is attention: of a query 1.0 to the log-sum-exps as keys of one dimension, with the outputs as values.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pagedkv.optimized.attention.subject import array_of
from pagedkv.spec.attention_subject import RoundingModel
from pagedkv.spec.bound import bound, rho
from tests.optimized.gather_laws import same_bits

Merge: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor], None]
"""(outs, lses, out, lse)."""
NAN = float("nan")


def parts(shape: tuple[int, int, int, int], dtype: torch.dtype = torch.float32, spread: float = 3) -> tuple[Any, Any]:
    """Random outputs (num_parts, total_q, num_q_heads, value_dim) and log-sum-exps."""
    generator = torch.Generator().manual_seed(sum(shape))
    outs = torch.randn(shape, generator=generator).to(dtype)
    return outs, torch.randn(shape[:3], generator=generator) * spread


def run(merge: Merge, outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """What an output full of NaN becomes."""
    out, lse = torch.full(outs.shape[1:], NAN, dtype=outs.dtype), torch.full(lses.shape[1:], NAN)
    merge(outs, lses, out, lse)
    return out, lse


def excess(outs: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> float:
    """The worst rho of a result, of output and log-sum-exp."""
    model, dtype = RoundingModel(tile=1, num_tiles=len(outs)), str(out.dtype).removeprefix("torch.")
    worst = 0.0
    for token, head in np.ndindex(*lse.shape):
        seen = lses[:, token, head] > -torch.inf
        keys, values = (array_of(part[seen, token, head].double()) for part in (lses, outs))
        exact = bound(np.ones((1, 1, 1)), keys[:, None, None], values[:, None], scale=1.0, model=model, dtype=dtype)
        got, got_lse = array_of(out[token, head].double()), array_of(lse[token, head].double())
        ratios = rho(got, exact.out[0, 0], exact.out_bound[0, 0]), rho(got_lse, exact.lse, exact.lse_bound)
        worst = max(worst, *(float(ratio.max()) for ratio in ratios))
    return worst


def attention(merge: Merge) -> None:
    """Parts merge to what they are parts of, within the rounding bound, whatever the shape and the dtype."""
    for shape in ((2, 3, 4, 8), (5, 1, 3, 80), (1, 7, 1, 33), (3, 40, 5, 16), (2, 2, 2, 256), (4, 9, 8, 1)):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for spread in (0, 3, 1e4):
                given = parts(shape, dtype, spread)
                assert excess(*given, *run(merge, *given)) <= 1


def nothing(merge: Merge) -> None:
    """A part that saw nothing counts for nothing, whatever it holds; if none saw anything the result is 0 and -inf."""
    outs, lses = parts((3, 4, 2, 8))
    for part in range(3):
        outs[part, part], lses[part, part] = (NAN, torch.inf, -torch.inf)[part], -torch.inf
    lses[:, 3], outs[:, 3] = -torch.inf, NAN
    out, lse = run(merge, outs, lses)
    assert excess(outs, lses, out, lse) <= 1
    assert out.isfinite().all()
    answered = lses.masked_fill(lses == -torch.inf, torch.inf)  # as FlashAttention-2 does
    assert all(same_bits(a, b) for a, b in zip(run(merge, outs, answered), (out, lse), strict=True))


def alone(merge: Merge) -> None:
    """One part is the result, bit by bit, and so is one beside parts that saw nothing."""
    outs, lses = parts((3, 5, 2, 24), spread=50)
    lses[0], lses[2], outs[0] = -torch.inf, -torch.inf, NAN
    for given in ((outs, lses), (outs[1:2], lses[1:2])):
        out, lse = run(merge, *given)
        assert same_bits(out, outs[1])
        assert same_bits(lse, lses[1])


def batch(merge: Merge) -> None:
    """No bit of a row depends on the others."""
    outs, lses = parts((3, 50, 3, 40))
    out, lse = run(merge, outs, lses)
    for rows in (slice(7, 8), slice(30, 50)):
        some, some_lse = run(merge, outs[:, rows], lses[:, rows])
        assert same_bits(some, out[rows])
        assert same_bits(some_lse, lse[rows])


def layouts(merge: Merge) -> None:
    """Any strides, of both."""
    outs, lses = parts((2, 6, 4, 16))
    expected = run(merge, outs, lses)
    by_token, by_dim = (
        torch.zeros(6, 4, 2, 19)[..., :16].permute(2, 0, 1, 3),
        torch.zeros(16, 2, 4, 6).permute(1, 3, 2, 0),
    )
    sums = torch.zeros(4, 2, 6).permute(1, 2, 0).copy_(lses)
    for given in (by_token, by_dim):
        assert all(same_bits(a, b) for a, b in zip(run(merge, given.copy_(outs), sums), expected, strict=True))
    twice = (outs[:1].expand(3, -1, -1, -1), lses[:1].expand(3, -1, -1))
    assert excess(*twice, *run(merge, *twice)) <= 1


LAWS: Mapping[str, Callable[[Merge], None]] = {law.__name__: law for law in (attention, nothing, alone, batch, layouts)}
