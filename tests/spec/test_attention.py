"""The laws of attention, and its formula against scalar loops."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pagedkv.spec.arrays import Array
from pagedkv.spec.attention import attention, merge, paged_attention
from pagedkv.spec.bound import bound, rho
from pagedkv.spec.masks import seen
from pagedkv.spec.attention_subject import Problem
from pagedkv.spec.words import HOLE, Misuse, ceil_div
from tests.spec.attention_cases import EXACT, Single, problems, scalar_attention, sees, singles


def assert_agree(single: Single, out: Array, lse: Array) -> None:
    """Two float64 results: each within the bound of float64, so within twice the bound of each other."""
    within = bound(single.query, single.key, single.value, model=EXACT, dtype="float64", **single.options)
    assert rho(out, within.out, within.out_bound).max(initial=0) <= 2
    assert rho(lse, within.lse, within.lse_bound).max(initial=0) <= 2


@given(singles())
def test_the_formula_is_what_scalar_loops_compute(single: Single) -> None:
    assert_agree(single, *scalar_attention(single))


@pytest.mark.parametrize(("causal", "window"), [*product([True, False], [None, 1, 2, 5])])
def test_what_a_row_sees_is_one_run_of_positions(causal: bool, window: int | None) -> None:
    for length, position in product(range(6), range(-3, 6)):
        expected = [j for j in range(length) if sees(position, j, causal, window)]
        assert list(seen(position, length, causal=causal, window=window)) == expected


def test_a_causal_row_sees_exactly_window_positions() -> None:
    assert [len(seen(position, 9, window=3)) for position in range(9)] == [1, 2, 3, 3, 3, 3, 3, 3, 3]


@given(singles(), st.data())
def test_parts_over_disjoint_keys_merge_to_the_whole(single: Single, data: st.DataObject) -> None:
    """Rows see all keys here: a mask is about positions, and any subset of keys has its own."""
    single = single.with_options(causal=False, window=None, alibi_slopes=None)
    sinks = single.options["sinks"]
    length = len(single.key)
    part_of = np.array(data.draw(st.lists(st.integers(0, 2), min_size=length, max_size=length)), dtype=int)
    chosen = {**single.options, "sinks": None}
    parts = [attention(single.query, single.key[part_of == p], single.value[part_of == p], **chosen) for p in range(3)]
    if sinks is not None and length:
        shape = parts[0][0].shape
        parts.append((np.zeros(shape), np.broadcast_to(sinks.astype(np.float64), shape[:2])))
    assert_agree(single, *merge(*(np.stack(arrays) for arrays in zip(*parts, strict=True))))


def test_a_part_that_saw_nothing_counts_for_nothing() -> None:
    outs = np.array([[[[np.nan]]], [[[3.0]]], [[[np.inf]]]])
    lses = np.array([[[-np.inf]], [[1e4]], [[-np.inf]]])
    out, lse = merge(outs, lses)
    assert (out.item(), lse.item()) == (3.0, 1e4)
    out, lse = merge(outs[:1], lses[:1])
    assert (out.item(), lse.item()) == (0.0, -np.inf)


@given(singles())
def test_rows_at_once_are_single_rows_bit_for_bit(single: Single) -> None:
    single = single.with_options(causal=True)
    out, lse = attention(single.query, single.key, single.value, **single.options)
    rows, length = len(single.query), len(single.key)
    for row in range(rows):
        end = max(0, length - rows + row + 1)
        alone = attention(single.query[row : row + 1], single.key[:end], single.value[:end], **single.options)
        assert alone[0].tobytes() == out[row].tobytes()
        assert alone[1].tobytes() == lse[row].tobytes()


@given(singles(), st.sampled_from([np.nan, np.inf, -np.inf, 3e38]))
def test_what_a_row_does_not_see_changes_no_bit(single: Single, poison: float) -> None:
    """Also where other rows see it: a row is judged by itself."""
    out, lse = attention(single.query, single.key, single.value, **single.options)
    rows, length = len(single.query), len(single.key)
    for row in range(rows):
        position = length - rows + row
        visible = seen(position, length, causal=single.options["causal"], window=single.options["window"])
        hidden = np.setdiff1d(np.arange(length), visible)
        key, value = single.key.copy(), single.value.copy()
        key[hidden] = value[hidden] = poison
        with np.errstate(all="ignore"):  # in the rows that do see it
            poisoned = attention(single.query, key, value, **single.options)
        assert poisoned[0][row].tobytes() == out[row].tobytes()
        assert poisoned[1][row].tobytes() == lse[row].tobytes()


@given(singles())
def test_a_row_that_sees_nothing_gives_zero_and_minus_infinity(single: Single) -> None:
    out, lse = attention(single.query, single.key, single.value, **single.options)
    rows, length = len(single.query), len(single.key)
    for row in range(rows):
        position = length - rows + row
        blind = not seen(position, length, causal=single.options["causal"], window=single.options["window"])
        assert (np.isneginf(lse[row]) == blind).all()
        assert not blind or (out[row] == 0).all()


@given(singles())
def test_a_sink_takes_weight_and_brings_no_value(single: Single) -> None:
    """out shrinks by the weight that the tokens keep, exp(LSE without - LSE with)."""
    single = single.with_options(causal=False, window=None)
    assume(len(single.key) > 0 and single.options["sinks"] is not None)
    _, lse = attention(single.query, single.key, single.value, **single.options)
    plain, without = attention(single.query, single.key, single.value, **{**single.options, "sinks": None})
    assert (lse >= without).all()
    assert_agree(single, plain * np.exp(without - lse)[..., None], lse)


def test_heads_read_the_kv_head_of_their_group() -> None:
    value = np.arange(2, dtype=np.float32).reshape(1, 2, 1)
    out, _ = attention(np.ones((1, 6, 1)), np.ones((1, 2, 1)), value, scale=1.0)
    assert out.ravel().tolist() == [0, 0, 0, 1, 1, 1]


@given(problems(), st.data())
def test_placement_and_unused_slots_change_no_bit(problem: Problem, data: st.DataObject) -> None:
    out, lse = paged_attention(problem)
    num_blocks = len(problem.key_cache)
    order = np.array(data.draw(st.permutations(range(num_blocks))))
    tables = problem.block_tables.copy()
    for table, length in zip(tables, problem.seq_lens, strict=True):
        count = ceil_div(int(length), problem.key_cache.shape[1])
        table[:count] = order[table[:count]]
    moved = {}
    for name in ("key_cache", "value_cache"):
        cache = np.empty_like(getattr(problem, name))
        cache[order] = np.where(np.isnan(getattr(problem, name)), 7, getattr(problem, name))
        moved[name] = cache.swapaxes(1, 2).copy().swapaxes(1, 2)  # heads before offsets in memory
    again = paged_attention(replace(problem, block_tables=tables, **moved))
    assert again[0].tobytes() == out.tobytes()
    assert again[1].tobytes() == lse.tobytes()


def test_released_blocks_are_not_read() -> None:
    rng = np.random.default_rng(0)
    cache = rng.standard_normal((3, 2, 1, 2)).astype(np.float32)
    query, lens = np.ones((1, 1, 2), dtype=np.float32), np.array([6], dtype=np.int32)
    tables = [np.array([table], dtype=np.int32) for table in ((0, 1, 2), (HOLE, 1, 2))]
    problem = Problem(query, cache, cache, tables[0], lens, np.array([1], dtype=np.int32), scale=1.0, window=4)
    whole, holed = paged_attention(problem), paged_attention(replace(problem, block_tables=tables[1]))
    assert whole[0].tobytes() == holed[0].tobytes()


@pytest.mark.parametrize(
    ("argument", "changed"),
    [
        ("query.shape", {"query": np.zeros((1, 3, 2))}),
        ("key.shape", {"key": np.zeros((2, 2, 1))}),
        ("key.shape", {"value": np.zeros((3, 2, 2))}),
        ("window", {"window": 0}),
        ("softcap", {"softcap": -1.0}),
        ("softcap", {"softcap": float("nan")}),
    ],
)
def test_misuse_names_the_argument(argument: str, changed: dict[str, object]) -> None:
    arguments = {"query": np.zeros((1, 2, 2)), "key": np.zeros((2, 2, 2)), "value": np.zeros((2, 2, 2)), "scale": 1.0}
    with pytest.raises(Misuse) as caught:
        attention(**{**arguments, **changed})  # type: ignore[arg-type]  # a dict of all arguments has no one type
    assert caught.value.argument == argument
