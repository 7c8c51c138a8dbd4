"""Slots, writes, copies and gathers against the plainest model: a dictionary from slot to row."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.spec.arrays import Array, copy_blocks, gather, slots, stored, write
from pagedkv.spec.words import HOLE, Misuse, ceil_div

NUM_BLOCKS = 6


def pool(seed: int, block_size: int) -> Array:
    return np.random.default_rng(seed).standard_normal((NUM_BLOCKS, block_size, 2, 3)).astype(np.float32)


@given(st.integers(1, 4), st.integers(0, 12), st.permutations(range(NUM_BLOCKS)), st.integers(0, 99), st.integers())
def test_what_is_written_through_a_table_is_gathered_through_it(
    block_size: int, length: int, order: list[int], seed: int, garbage: int
) -> None:
    length = min(length, block_size * NUM_BLOCKS)
    table = order[: ceil_div(length, block_size)]
    tail = [garbage % 2**40, -(2**40)]  # past the end anything may stand
    rng = np.random.default_rng(seed)
    key, value = rng.standard_normal((2, length, 2, 3)).astype(np.float32)
    mapping = slots(table, range(length), block_size)
    before = pool(1, block_size), pool(2, block_size)
    after = write(*before, key, value, mapping)
    for cache, rows, old, seed_of in zip(after, (key, value), before, (1, 2), strict=True):
        assert gather(cache, table + tail, length).tobytes() == rows.tobytes()
        others = np.setdiff1d(np.arange(NUM_BLOCKS * block_size), mapping)
        assert (cache.reshape(-1, 6)[others] == old.reshape(-1, 6)[others]).all()
        assert (old == pool(seed_of, block_size)).all()  # the state before is a value of its own


@given(st.integers(1, 3), st.integers(0, 20))
def test_slots_follow_the_formula(block_size: int, position: int) -> None:
    table = [5, 0, 3, 1, 2, 4, 9, 8, 7, 6, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10]
    expected = table[position // block_size] * block_size + position % block_size
    assert slots(table, [position], block_size).tolist() == [expected]


def test_slots_are_64_bit() -> None:
    (slot,) = slots(np.array([2**30], dtype=np.int32), [3], 16)
    assert int(slot) == 2**34 + 3


def test_rows_with_negative_slots_are_skipped() -> None:
    key = np.ones((3, 2, 3), dtype=np.float32)
    keys, values = write(pool(1, 2), pool(2, 2), key, 2 * key, [-1, 7, -(2**40)])
    assert (keys != pool(1, 2)).any(axis=(2, 3)).ravel().nonzero()[0].tolist() == [7]
    assert (values != pool(2, 2)).any(axis=(2, 3)).ravel().nonzero()[0].tolist() == [7]


@given(st.permutations(range(NUM_BLOCKS)), st.lists(st.integers(0, 2), max_size=3))
def test_copies_happen_together(order: list[int], picks: list[int]) -> None:
    pairs = [(order[pick], order[3 + index]) for index, pick in enumerate(picks)]
    before = pool(1, 2)
    after = copy_blocks(before, pairs)
    moved = {destination: source for source, destination in pairs}
    assert all((after[block] == before[moved.get(block, block)]).all() for block in range(NUM_BLOCKS))
    assert (before == pool(1, 2)).all()
    assert copy_blocks(before, pairs[::-1]).tobytes() == after.tobytes()


def test_a_hole_reads_as_nan() -> None:
    rows = gather(pool(1, 2), [HOLE, 4], 4)
    assert np.isnan(rows[:2]).all()
    assert (rows[2:] == pool(1, 2)[4]).all()


@given(st.floats(allow_nan=False, width=32))
def test_bfloat16_is_the_nearest_value_ties_to_even(x: float) -> None:
    (result,) = stored(np.array([x], dtype=np.float32), "bfloat16")
    bits = int(np.array([x], dtype=np.float32).view(np.uint32)[0])
    down, up = bits & 0xFFFF0000, (bits & 0xFFFF0000) + 0x10000
    if not np.isfinite(x) or up & 0x7F800000 == 0x7F800000:
        assert result in (x, np.sign(x) * np.inf) or abs(result) <= abs(x)
        return
    values = np.array([down, up], dtype=np.uint32).view(np.float32)
    apart = [abs(Fraction(float(value)) - Fraction(x)) for value in values]
    even = int(down >> 16 & 1)
    assert result == values[even if apart[0] == apart[1] else int(apart[1] < apart[0])]


def test_nan_stays_nan_and_large_values_overflow() -> None:
    made = stored(np.array([np.nan, 3.4e38, -3.4e38], dtype=np.float32), "bfloat16")
    assert np.isnan(made[0])
    assert made[1:].tolist() == [np.inf, -np.inf]


POOL = np.zeros((2, 2, 1, 1), dtype=np.float32)
ROW = np.zeros((2, 1, 1), dtype=np.float32)


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("positions", lambda: slots([0], [2], 2)),
        ("positions", lambda: slots([0], [-1], 2)),
        ("table", lambda: slots([HOLE], [0], 2)),
        ("slot_mapping", lambda: write(POOL, POOL, ROW, ROW, [1, 1])),
        ("slot_mapping", lambda: write(POOL, POOL, ROW, ROW, [1, 4])),
        ("pairs", lambda: copy_blocks(POOL, [(0, 1), (1, 0)])),
        ("pairs", lambda: copy_blocks(np.zeros((3, 1, 1, 1)), [(0, 1), (2, 1)])),
        ("pairs", lambda: copy_blocks(POOL, [(0, 2)])),
        ("length", lambda: gather(POOL, [0], 3)),
        ("table", lambda: gather(POOL, [0, 2], 4)),
        ("table", lambda: gather(POOL, [-2], 1)),
        ("dtype", lambda: stored(ROW, "int8")),
    ],
)
def test_misuse_names_the_argument(argument: str, call: object) -> None:
    assert callable(call)
    with pytest.raises(Misuse) as caught:
        call()
    assert caught.value.argument == argument
