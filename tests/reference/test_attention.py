"""The reference against the specification: within the bound, the bitwise relations, writes, and misuse."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.reference.attention import (
    ReferenceAttention,
    copy_blocks,
    gather_kv,
    paged_attention,
    round_to,
    write_kv,
)
from pagedkv.spec import arrays
from pagedkv.spec.bound import paged_bound, rho
from pagedkv.spec.attention_subject import AttentionSubject, Problem
from pagedkv.spec.words import HOLE, Misuse, ceil_div
from tests.spec.attention_cases import Array, problems

SUBJECT: AttentionSubject = ReferenceAttention()


def worst(problem: Problem) -> tuple[float, float]:
    """The largest rho of output and LSE."""
    limits = paged_bound(problem, SUBJECT.rounding(problem))
    out, lse = SUBJECT.attend(problem)
    of_out, of_lse = rho(out, limits.out, limits.out_bound), rho(lse, limits.lse, limits.lse_bound)
    return float(of_out.max(initial=0)), float(of_lse.max(initial=0))


def laid_out(key: Array, value: Array, query: Array, dtype: str = "float32", **options: Any) -> Problem:
    """One request (n, 1, dim) in blocks of 4, backwards in the pool."""
    length = len(key)
    table = np.arange(ceil_div(length, 4))[::-1].astype(np.int32)
    caches = [np.full((len(table) + 1, 4, *key.shape[1:]), np.nan, dtype=np.float32) for _ in range(2)]
    caches = list(arrays.write(caches[0], caches[1], key, value, arrays.slots(table, range(length), 4)))
    return Problem(
        query=arrays.stored(query, dtype),
        key_cache=arrays.stored(caches[0], dtype),
        value_cache=arrays.stored(caches[1], dtype),
        block_tables=table[None],
        seq_lens=np.array([length], dtype=np.int32),
        query_lens=np.array([len(query)], dtype=np.int32),
        dtype=dtype,
        **{"scale": 1.0, **options},
    )


@given(problems())
def test_every_element_lies_within_the_bound(problem: Problem) -> None:
    out, lse = worst(problem)
    assert out <= 1
    assert lse <= 1


HARD: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "logits up to 1e4": lambda query, key: (query * 1e4 / 16, key),
    "all logits far below 0": lambda query, key: (np.abs(query) * 600, -np.abs(key)),
    "all equal": lambda query, key: (query, 0 * key + 1),
    "all zero": lambda query, key: (0 * query, key),
    "rising": lambda query, key: (0 * query + 1, 0 * key + np.arange(len(key)).reshape(-1, 1, 1)),
    "falling": lambda query, key: (0 * query + 1, 0 * key - np.arange(len(key)).reshape(-1, 1, 1)),
    "tiny": lambda query, key: (query * 2.0**-20, key * 2.0**-20),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("hard", HARD)
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"window": 5}], ids=str)
def test_it_holds_on_hard_inputs(dtype: str, hard: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal((n, heads, 16)) for n, heads in ((6, 2), (37, 1), (37, 1)))
    query, key = HARD[hard](query, key)
    out, lse = worst(laid_out(key, value, query, dtype, **options))
    assert out <= 1
    assert lse <= 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_one_lost_token_leaves_the_bound(dtype: str) -> None:
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal((n, 1, 16)) for n in (1, 37, 37))
    problem = laid_out(key, value, query, dtype, scale=0.25)
    limits = paged_bound(problem, SUBJECT.rounding(problem))
    for lost in range(37):
        kept = np.delete(np.arange(37), lost)
        out, lse = SUBJECT.attend(laid_out(key[kept], value[kept], query, dtype, scale=0.25))
        assert rho(out, limits.out, limits.out_bound).max() > 1
        assert rho(lse, limits.lse, limits.lse_bound).max() > 1


@given(problems(), st.data())
def test_placement_poison_and_strides_change_no_bit(problem: Problem, data: st.DataObject) -> None:
    plain = SUBJECT.attend(problem)
    order = np.array(data.draw(st.permutations(range(len(problem.key_cache)))))
    fill = data.draw(st.sampled_from([0.0, np.inf, 60000.0]))
    tables = problem.block_tables.copy()
    for table, length in zip(tables, problem.seq_lens, strict=True):
        count = ceil_div(int(length), problem.key_cache.shape[1])
        table[:count] = order[table[:count]]
        table[count:] = HOLE
    moved = {}
    for name in ("key_cache", "value_cache"):
        cache = np.empty_like(getattr(problem, name).swapaxes(1, 2)).swapaxes(1, 2)  # heads before offsets in memory
        cache[order] = np.where(np.isnan(getattr(problem, name)), fill, getattr(problem, name))
        moved[name] = cache
    again = SUBJECT.attend(replace(problem, block_tables=tables, **moved))
    assert [array.tobytes() for array in again] == [array.tobytes() for array in plain]


@given(problems())
def test_causal_rows_are_decode_steps_bit_for_bit(problem: Problem) -> None:
    problem = replace(problem, causal=True)
    out, lse = SUBJECT.attend(problem)
    row = 0
    for request, (length, rows) in enumerate(zip(problem.seq_lens, problem.query_lens, strict=True)):
        for index in range(int(rows)):
            alone = replace(
                problem,
                query=problem.query[row : row + 1],
                block_tables=problem.block_tables[request : request + 1],
                seq_lens=np.array([max(0, length - rows + index + 1)], dtype=np.int32),
                query_lens=np.array([1], dtype=np.int32),
            )
            decoded = SUBJECT.attend(alone)
            assert decoded[0].tobytes() == out[row].tobytes()
            assert decoded[1].tobytes() == lse[row].tobytes()
            row += 1


def test_a_released_block_is_not_read() -> None:
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal((n, 1, 4)).astype(np.float32) for n in (1, 11, 11))
    whole = laid_out(key, value, query, window=5)
    holed = replace(whole, block_tables=np.array([[HOLE, 1, 0]], dtype=np.int32))
    assert SUBJECT.attend(holed)[0].tobytes() == SUBJECT.attend(whole)[0].tobytes()


@given(st.integers(1, 3), st.permutations(range(12)), st.integers(0, 9), st.sampled_from(arrays.DTYPES))
def test_writes_are_those_of_the_specification(block_size: int, order: list[int], skipped: int, dtype: str) -> None:
    rng = np.random.default_rng(skipped)
    caches = [arrays.stored(rng.standard_normal((12 // block_size, block_size, 2, 3)), dtype) for _ in range(2)]
    mapping = np.array(order[:7], dtype=np.int64)
    mapping[skipped % 7] = -1 - skipped
    key, value = rng.standard_normal((2, 7, 2, 3)).astype(np.float32)
    stored = [arrays.stored(rows, dtype) for rows in (key, value)]
    expected = arrays.write(caches[0], caches[1], stored[0], stored[1], mapping)
    write_kv(key, value, caches[0], caches[1], mapping, dtype)
    assert [cache.tobytes() for cache in caches] == [cache.tobytes() for cache in expected]
    pairs = np.array([[0, 2], [0, 3]])
    expected_copies = [arrays.copy_blocks(cache, [(0, 2), (0, 3)]) for cache in expected]
    copy_blocks(caches, pairs)
    assert [cache.tobytes() for cache in caches] == [cache.tobytes() for cache in expected_copies]
    length = 2 * block_size + 1
    assert (
        gather_kv(caches[0], [2, 1, 0, 99], length).tobytes() == arrays.gather(caches[0], [2, 1, 0], length).tobytes()
    )


@given(st.lists(st.floats(width=32), min_size=1), st.sampled_from(arrays.DTYPES))
def test_rounding_is_that_of_the_specification(numbers: list[float], dtype: str) -> None:
    single = np.array(numbers, dtype=np.float32)
    assert np.array_equal(round_to(single, dtype), arrays.stored(single, dtype), equal_nan=True)


GOOD: dict[str, Any] = {
    "query": np.zeros((2, 4, 8), dtype=np.float32),
    "key_cache": np.zeros((3, 2, 2, 8), dtype=np.float32),
    "value_cache": np.zeros((3, 2, 2, 8), dtype=np.float32),
    "block_tables": np.array([[0, 1], [2, 0]], dtype=np.int32),
    "seq_lens": np.array([3, 1], dtype=np.int32),
    "query_lens": np.array([1, 1], dtype=np.int32),
    "scale": 1.0,
}


@pytest.mark.parametrize(
    ("argument", "changed"),
    [
        ("query.shape", {"query": np.zeros((2, 8), dtype=np.float32)}),
        ("query.shape", {"query": np.zeros((2, 3, 8), dtype=np.float32)}),
        ("query.shape", {"query": np.zeros((2, 4, 7), dtype=np.float32)}),
        ("query.dtype", {"query": np.zeros((2, 4, 8))}),
        ("key_cache.dtype", {"key_cache": np.zeros((3, 2, 2, 8), dtype=np.int8)}),
        ("value_cache.shape", {"value_cache": np.zeros((3, 2, 1, 8), dtype=np.float32)}),
        ("block_tables.shape", {"block_tables": np.array([0, 1], dtype=np.int32)}),
        ("block_tables.dtype", {"block_tables": np.zeros((2, 2))}),
        ("block_tables.shape", {"block_tables": np.zeros((3, 2), dtype=np.int32)}),
        ("block_tables[0, 1]", {"block_tables": np.array([[0, 3], [2, 0]], dtype=np.int32)}),
        ("block_tables[1, 0]", {"block_tables": np.array([[0, 1], [HOLE, 0]], dtype=np.int32)}),
        ("seq_lens", {"seq_lens": np.array([5, 1], dtype=np.int32)}),
        ("seq_lens", {"seq_lens": np.array([-1, 1], dtype=np.int32)}),
        ("query_lens", {"query_lens": np.array([1, 2], dtype=np.int32)}),
        ("query_lens", {"query_lens": np.array([3, -1], dtype=np.int32)}),
        ("scale", {"scale": float("nan")}),
        ("window", {"window": 0}),
        ("softcap", {"softcap": -1.0}),
        ("alibi_slopes.shape", {"alibi_slopes": np.zeros(2, dtype=np.float32)}),
        ("sinks.shape", {"sinks": np.zeros((4, 1), dtype=np.float32)}),
    ],
)
def test_misuse_names_the_argument(argument: str, changed: dict[str, Any]) -> None:
    paged_attention(**GOOD)
    with pytest.raises(Misuse) as caught:
        paged_attention(**{**GOOD, **changed})
    assert caught.value.argument == argument


ROWS, POOL = np.ones((2, 1, 1), dtype=np.float32), np.zeros((2, 2, 1, 1), dtype=np.float32)


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("slot_mapping", lambda cache: write_kv(ROWS, ROWS, cache, cache, np.array([1, 1]))),
        ("slot_mapping", lambda cache: write_kv(ROWS, ROWS, cache, cache, np.array([1, 4]))),
        ("slot_mapping", lambda cache: write_kv(ROWS, ROWS, cache, cache, np.array([1]))),
        ("slot_mapping", lambda cache: write_kv(ROWS, ROWS, cache, cache, np.array([0.0, 1.0]))),
        ("key.shape", lambda cache: write_kv(ROWS[:, :, [0, 0]], ROWS, cache, cache, np.array([0, 1]))),
        ("dtype", lambda cache: write_kv(ROWS, ROWS, cache, cache, np.array([0, 1]), "int8")),
        ("pairs", lambda cache: copy_blocks([cache], np.array([[0, 1], [1, 0]]))),
        ("pairs", lambda cache: copy_blocks([cache], np.array([[0, 2]]))),
        ("length", lambda cache: gather_kv(cache, [0], 3)),
        ("block_table", lambda cache: gather_kv(cache, [0, HOLE], 4)),
    ],
)
def test_misuse_of_the_pool_changes_nothing(argument: str, call: Callable[[Array], object]) -> None:
    cache = POOL.copy()
    with pytest.raises(Misuse) as caught:
        call(cache)
    assert caught.value.argument == argument
    assert cache.tobytes() == POOL.tobytes()
