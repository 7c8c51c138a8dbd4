"""The bound holds for right answers, and can fail: for a lost token, a wrong mask, a false declaration."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.spec.arrays import stored
from pagedkv.spec.attention import attention, merge, paged_attention
from pagedkv.spec.bound import Bound, bound, paged_bound, rho
from pagedkv.spec.rounding import UNIT_ROUNDOFF
from pagedkv.spec.attention_subject import Problem, RoundingModel
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


def test_where_all_values_agree_weights_do_not_matter() -> None:
    """A mean of equal values is that value, whatever the weights: the centred term vanishes, even for a poor exp."""
    single, poor = randomly(64), replace(MODEL, u_exp=2.0**-11)
    equal = Single(single.query, single.key, np.ones_like(single.value), single.options)
    assert within(equal, poor).out_bound.max() < 2.0**-17
    assert within(single, poor).out_bound.min() > 2.0**-10


def test_nan_and_missing_infinity_are_far_away() -> None:
    assert (
        rho(np.array([np.nan, 0.0, np.inf]), np.array([0.0, -np.inf, 0.0]), np.array([1.0, 0, 1])).tolist()
        == [np.inf] * 3
    )


def perturbed(single: Single, weight: Any, numerator: Any = 1.0) -> tuple[Array, Array]:
    """Attention of one row by 4 heads, each weight times `weight`, and in the numerator times `numerator`."""
    key, value = (np.repeat(rows.astype(np.float64), 2, axis=1) for rows in (single.key, single.value))
    s = np.einsum("hd,nhd->hn", single.query[0].astype(np.float64), key) * single.options["scale"]
    p = np.exp(s)[..., None] * weight  # (heads, tokens, columns): the worst weights differ by column
    total = p.sum(axis=1)
    return (p * numerator * value.swapaxes(0, 1)).sum(axis=1)[None] / total[None], np.log(total)[None]


def test_the_bound_is_attained_by_the_worst_exponentials() -> None:
    """Each weight off by (T + 1) u_exp, up where the value lies above the output and down below it."""
    single, model = randomly(64), RoundingModel(tile=64, num_tiles=1, u_exp=2.0**-11)
    limits = within(single, model)
    value = np.repeat(single.value.astype(np.float64), 2, axis=1).swapaxes(0, 1)
    for sign in (1, -1):
        out, _ = perturbed(single, np.exp(sign * 2 * model.u_exp * np.sign(value - limits.out[0][:, None])))
        ratio = rho(out, limits.out, limits.out_bound)
        assert 0.95 < ratio.min() <= ratio.max() <= 1
        _, lse = perturbed(single, np.full_like(value, np.exp(sign * 2 * model.u_exp)))
        ratio = rho(lse[..., 0], limits.lse, limits.lse_bound)
        assert 0.6 < ratio.min() <= ratio.max() <= 1  # the logarithm may lose u_exp too


def test_the_bound_is_attained_by_the_worst_rounding_of_weights() -> None:
    """Each weight rounded towards the sign of its value, and the sum of weights not."""
    single, model = randomly(64), RoundingModel(tile=64, num_tiles=1, u_weights=UNIT_ROUNDOFF["bfloat16"])
    limits = within(single, model)
    sign = np.sign(np.repeat(single.value.astype(np.float64), 2, axis=1).swapaxes(0, 1))
    out, _ = perturbed(single, 1.0, 1 + model.u_weights * sign)
    ratio = rho(out, limits.out, limits.out_bound)
    assert 0.95 < ratio.min() <= ratio.max() <= 1


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_it_holds_for_dot_products_that_accumulate_in_float16(softcap: float) -> None:
    """The bound of the logits by themselves, where nothing else loses as much."""
    model = RoundingModel(tile=1, num_tiles=1, u_accumulate=2.0**-11)
    single = randomly(50, "float16", head_dim=64, softcap=softcap)
    limits = within(single, model)
    key = np.repeat(single.key, 2, axis=1)
    s = np.zeros((4, 50), dtype=np.float16)
    for c in range(64):
        products = single.query[0, :, c].astype(np.float32)[:, None] * key[:, :, c].T.astype(np.float32)
        s = (s + products).astype(np.float16)
    logits = s.astype(np.float64) * single.options["scale"]
    logits = logits if softcap == 0 else softcap * np.tanh(logits / softcap)
    p = np.exp(logits)
    out = np.einsum("hn,nhd->hd", p, np.repeat(single.value.astype(np.float64), 2, axis=1)) / p.sum(axis=1)[:, None]
    assert rho(out[None], limits.out, limits.out_bound).max() <= 1
    exact_dots = within(single)
    assert rho(out[None], exact_dots.out, exact_dots.out_bound).max() > 1


def test_the_bound_is_attained_by_the_worst_dot_products() -> None:
    """Each logit off by d u_a scale sum |q k|, up where the value lies above the output and down below it."""
    single, model = randomly(64), RoundingModel(tile=1, num_tiles=1, u_accumulate=2.0**-14)
    limits = within(single, model)
    key, value = (np.repeat(np.float64(rows), 2, axis=1).swapaxes(0, 1) for rows in (single.key, single.value))
    magnitudes = (np.abs(np.float64(single.query[0]))[:, None] * np.abs(key)).sum(axis=2)
    error = 32 * model.u_accumulate * single.options["scale"] * magnitudes
    out, _ = perturbed(single, np.exp(error[..., None] * np.sign(value - limits.out[0][:, None])))
    ratio = rho(out, limits.out, limits.out_bound)
    assert 0.9 < ratio.min() <= ratio.max() <= 1


def worst_of_scalar_heads(single: Single, off: Array, **options: Any) -> Array:
    """The output of 4 heads of dimension 1, each logit off by `off` (64,), up or down, whichever moves it away."""
    given = {**single.options, **options}
    exact, lse = attention(single.query, single.key, single.value, **given)
    tokens = [attention(single.query, single.key[[j]], single.value[[j]], **given)[1][0] for j in range(64)]
    if given.get("alibi_slopes") is not None:  # a token alone stands at the position of the row
        tokens = [s + given["alibi_slopes"] * (j - 63) for j, s in enumerate(tokens)]
    value = np.repeat(np.float64(single.value[..., 0]), 2, axis=1)
    p = np.exp(np.stack(tokens) - lse[0] + off[:, None] * np.sign(value - exact[0, :, 0]))
    return np.asarray(((p * value).sum(axis=0) / p.sum(axis=0))[None, :, None])


def scalar_heads(key: Array) -> Single:
    """Queries 1, the keys (64,) in both KV heads, normal values."""
    value = np.random.default_rng(0).standard_normal((64, 2, 1)).astype(np.float32)
    keys = np.repeat(key.astype(np.float32), 2).reshape(64, 2, 1)
    return Single(np.ones((1, 4, 1), dtype=np.float32), keys, value, {"scale": 1.0})


SMALL = np.random.default_rng(1).standard_normal(64)
U = 2.0**-24


def test_rounding_the_lse_of_partial_results_is_allowed_where_it_is_declared() -> None:
    """Logits near 1000: 4u * 1000 for their own rounding, and 2u * 1000 more where the LSE of a part is rounded."""
    single = scalar_heads(1000 + SMALL)
    out = worst_of_scalar_heads(single, np.full(64, 5.5 * U * 1000))
    plain, merged = (
        within(single, RoundingModel(tile=1, num_tiles=1, lse_merge=declared)) for declared in (False, True)
    )
    assert rho(out, plain.out, plain.out_bound).min() > 1
    assert rho(out, merged.out, merged.out_bound).max() <= 1


def test_the_rounding_of_a_large_cap_is_allowed() -> None:
    """cap * tanh(x / cap) by one exponential is off by u_exp * cap, however small x is."""
    single, model = scalar_heads(SMALL), RoundingModel(tile=1, num_tiles=1)
    out = worst_of_scalar_heads(single, np.full(64, 1000 * (model.u_exp + 7 * U)), softcap=1000.0)
    limits, uncapped = within(single.with_options(softcap=1000.0), model), within(single, model)
    assert 0.8 < rho(out, limits.out, limits.out_bound).min() <= rho(out, limits.out, limits.out_bound).max() <= 1
    assert rho(out, limits.out, uncapped.out_bound).min() > 1


def test_the_rounding_of_a_large_bias_is_allowed() -> None:
    """Keys that just make up for ALiBi: the small sum of two large terms is as inexact as they are."""
    bias = 50.0 * (np.arange(64) - 63)
    single, model = scalar_heads(np.round(SMALL * 8) / 8 - bias), RoundingModel(tile=1, num_tiles=1)
    slopes = np.full(4, 50.0)
    out = worst_of_scalar_heads(single, 5.5 * U * np.abs(bias), alibi_slopes=slopes)
    limits = within(single.with_options(alibi_slopes=slopes), model)
    assert 0.8 < rho(out, limits.out, limits.out_bound).min() <= rho(out, limits.out, limits.out_bound).max() <= 1


def test_a_launch_without_requests_has_an_empty_result_and_bound() -> None:
    none = np.zeros(0, dtype=np.int32)
    caches = np.zeros((2, 3, 4, 1, 8), dtype=np.float32)
    empty = Problem(
        query=np.zeros((0, 2, 8), dtype=np.float32), key_cache=caches[0], value_cache=caches[1],
        block_tables=np.zeros((0, 2), dtype=np.int32), seq_lens=none, query_lens=none, scale=1.0,
    )  # fmt: skip
    limits = paged_bound(empty, RoundingModel(tile=16, num_tiles=1))
    out, lse = paged_attention(empty)
    assert limits.out.shape == limits.out_bound.shape == out.shape == (0, 2, 8)
    assert limits.lse.shape == limits.lse_bound.shape == lse.shape == (0, 2)
    assert (limits.seen, limits.visibility) == (0, 1.0)


@pytest.mark.parametrize("error", [0.1, 1.0, 2.0])
@pytest.mark.parametrize("tokens", [16, 1024])
def test_float16_weights_may_vanish_beside_a_largest_one_that_is_too_large(error: float, tokens: int) -> None:
    """One weight just above half of the smallest float16, its value large, every exponential as wrong as allowed."""
    model = RoundingModel(tile=tokens + 1, num_tiles=1, u_exp=error / 2, u_weights=2.0**-11)
    keys, values = np.zeros((tokens + 1, 1, 1)), np.zeros((tokens + 1, 1, 1))
    keys[-1], values[-1] = -25 * np.log(2) + 1e-3, 1000.0
    within = bound(np.ones((1, 1, 1)), keys, values, model=model, dtype="float64", scale=1.0)
    errors = np.full(tokens + 1, -error)
    errors[[0, -1]] = error
    weights = np.exp(keys[:, 0, 0] + errors)
    rounded = (weights / weights.max()).astype(np.float16).astype(np.float64)
    out = rounded @ values[:, 0, 0] / (weights / weights.max()).sum()
    assert float(rho(np.full((1, 1, 1), out), within.out, within.out_bound).max()) <= 1
