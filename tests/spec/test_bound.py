"""The bound holds for right answers, and can fail: for a lost token, a wrong mask, a false declaration."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.spec.arrays import stored
from pagedkv.spec.attention import attention, merge
from pagedkv.spec.bound import Bound, bound, rho
from pagedkv.spec.rounding import UNIT_ROUNDOFF
from pagedkv.spec.subject import RoundingModel
from tests.spec.attention_cases import Array, Single, singles

MODEL = RoundingModel(tile=16, num_tiles=5)


def within(single: Single, model: RoundingModel = MODEL, dtype: str = "float32") -> Bound:
    return bound(single.query, single.key, single.value, model=model, dtype=dtype, **single.options)


def randomly(length: int, dtype: str = "float32", head_dim: int = 32, seed: int = 0, **options: Any) -> Single:
    """One request with 4 query heads, 2 KV heads and one row, normal values as `dtype` stores them."""
    rng = np.random.default_rng(seed)
    query, key, value = (
        stored(rng.standard_normal((n, heads, head_dim)), dtype) for n, heads in ((1, 4), (length, 2), (length, 2))
    )
    return Single(query, key, value, {"scale": head_dim**-0.5, **options})


def with_rounded_weights(single: Single, dtype: str, every: int) -> tuple[Array, Array]:
    """Attention whose weights are rounded to `dtype` before they meet V, in `every`-token parts merged by LSE."""
    parts = []
    for first in range(0, len(single.key), every):
        key, value = (
            np.repeat(rows[first : first + every].astype(np.float32), 2, axis=1) for rows in (single.key, single.value)
        )
        s = np.einsum("hd,nhd->hn", single.query[0].astype(np.float32), key) * np.float32(single.options["scale"])
        top = s.max(axis=1)
        p = np.exp(s - top[:, None])
        total = p.sum(axis=1)
        out = np.einsum("hn,nhd->hd", stored(p, dtype).astype(np.float32), value) / total[:, None]
        parts.append((out[None], (top + np.log(total))[None]))
    outs, lses = (np.stack(arrays) for arrays in zip(*parts, strict=True))
    return tuple(array.astype(np.float32) for array in merge(outs, lses))  # type: ignore[return-value]  # a pair


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("length", [1, 7, 64, 500])
def test_it_holds_for_rounded_weights_and_merged_parts(dtype: str, length: int) -> None:
    model = RoundingModel(tile=64, num_tiles=10, u_exp=2.0**-21, u_weights=UNIT_ROUNDOFF[dtype], lse_merge=True)
    for seed in range(4):
        single = randomly(length, dtype, seed=seed)
        limits = within(single, model, dtype)
        out, lse = with_rounded_weights(single, dtype, 64)
        assert rho(stored(out, dtype), limits.out, limits.out_bound).max() <= 1
        assert rho(lse, limits.lse, limits.lse_bound).max() <= 1


def test_it_fails_where_weights_are_rounded_and_no_rounding_is_declared() -> None:
    single = randomly(64)
    out, _ = with_rounded_weights(single, "bfloat16", 64)
    limits = within(single, RoundingModel(tile=64, num_tiles=3, lse_merge=True))
    assert rho(out, limits.out, limits.out_bound).max() > 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_lost_token_shows_as_often_as_visibility_says(dtype: str) -> None:
    single = randomly(100, dtype)
    limits = within(single, dtype=dtype)
    shows = 0
    for lost in range(100):
        key, value = (np.delete(rows, lost, axis=0) for rows in (single.key, single.value))
        out, _ = attention(single.query, key, value, **single.options)
        shows += int((rho(stored(out, dtype), limits.out, limits.out_bound) > 1).any(axis=2).sum())
    assert limits.seen == 400
    assert limits.visibility > 0.8
    assert shows >= limits.visible


def test_the_loss_of_the_only_token_shows() -> None:
    single = randomly(1)
    assert within(single).visibility == 1
    assert rho(0 * single.value, single.value, within(single).out_bound.reshape(1, 2, 2, -1)[:, :, 0]).min() > 1


def test_visibility_falls_with_the_length_where_weights_are_rounded() -> None:
    model = replace(MODEL, num_tiles=100, u_weights=UNIT_ROUNDOFF["bfloat16"])
    shares = [within(randomly(length, "bfloat16"), model, "bfloat16").visibility for length in (16, 128, 1024)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5
    assert shares[2] < 0.1


@pytest.mark.parametrize(
    "wrong",
    [{"scale": 0.1}, {"window": 63}, {"softcap": 30.0}, {"sinks": np.zeros(4)}, {"alibi_slopes": np.full(4, 0.01)}],
    ids=lambda wrong: str(next(iter(wrong))),
)
def test_a_wrong_mask_or_bias_shows(wrong: dict[str, Any]) -> None:
    single, limits = randomly(64), within(randomly(64))
    out, lse = attention(single.query, single.key, single.value, **{**single.options, **wrong})
    assert rho(out, limits.out, limits.out_bound).max() > 1
    assert rho(lse, limits.lse, limits.lse_bound).max() > 1


@given(singles())
def test_a_worse_declaration_never_gives_a_smaller_bound(single: Single) -> None:
    limits = within(single)
    worse = [{"tile": 64}, {"num_tiles": 9}, {"u_accumulate": 2.0**-13}, {"u_exp": 2.0**-11}, {"lse_merge": True}]
    for changes in worse:
        more = within(single, replace(MODEL, **changes))  # type: ignore[arg-type]  # each is of its field's type
        assert (more.out_bound >= limits.out_bound).all()
        assert (more.lse_bound >= limits.lse_bound).all()
    for dtype in ("float16", "bfloat16"):
        assert (within(single, dtype=dtype).out_bound >= limits.out_bound).all()
        rounded = within(single, replace(MODEL, u_weights=UNIT_ROUNDOFF[dtype]))
        assert (rounded.out_bound >= limits.out_bound).all()


@given(singles(), st.sampled_from([1.0, 100.0, 1e6]))
def test_it_is_finite_and_never_negative(single: Single, size: float) -> None:
    """Also for logits so large that no weight is certain."""
    big = Single((size * single.query).astype(np.float32), single.key, single.value, single.options)
    limits = within(big)
    for array in (limits.out_bound, limits.lse_bound):
        assert np.isfinite(array).all()
        assert (array >= 0).all()
    blind = np.isneginf(limits.lse)
    assert (limits.lse_bound[blind] == 0).all()
    assert (limits.out_bound[blind] == 0).all()
    assert (limits.out_bound[~blind] > 0).all()


def test_equal_values_leave_only_rounding() -> None:
    """The centred term vanishes: whatever the weights are, a mean of equal values is that value."""
    single = randomly(64, scale=100.0)
    equal = Single(single.query, single.key, np.ones_like(single.value), single.options)
    assert within(equal).out_bound.max() < 2.0**-16
    assert within(single).out_bound.max() > 2.0**-12


def test_nan_and_missing_infinity_are_far_away() -> None:
    assert (
        rho(np.array([np.nan, 0.0, np.inf]), np.array([0.0, -np.inf, 0.0]), np.array([1.0, 0, 1])).tolist()
        == [np.inf] * 3
    )
