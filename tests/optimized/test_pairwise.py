"""The covering set: every pair that occurs is covered, by few rows, the same ones each time."""

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedkv.optimized.audit.pairwise import Row, covering, pairs_of
from pagedkv.optimized.audit.targets import TARGETS

VALUE = st.none() | st.integers(0, 3)


@st.composite
def row_lists(draw: st.DrawFn) -> list[Row]:
    width = draw(st.integers(0, 4))
    return draw(st.lists(st.tuples(*[VALUE] * width), max_size=30))


def every_pair(rows: Sequence[Row]) -> set[object]:
    return set[object]().union(*map(pairs_of, rows))


@given(row_lists())
def test_every_pair_that_occurs_is_covered_and_no_row_is_in_vain(rows: list[Row]) -> None:
    chosen = covering(rows)
    assert len(set(chosen)) == len(chosen)
    assert every_pair([rows[i] for i in chosen]) == every_pair(rows)
    for n in range(len(chosen)):
        earlier, later = every_pair([rows[i] for i in chosen[:n]]), pairs_of(rows[chosen[n]])
        assert later - earlier
    assert covering(rows) == chosen


@given(row_lists())
def test_each_row_adds_as_much_as_any_could(rows: list[Row]) -> None:
    covered = set[object]()
    for index in covering(rows):
        gains = [len(pairs_of(row) - covered) for row in rows]
        assert gains.index(max(gains)) == index
        covered |= pairs_of(rows[index])


def test_a_full_product_shrinks_to_near_the_least_possible() -> None:
    rows = list(product(range(6), range(5), range(4), range(3)))
    assert 6 * 5 <= len(covering(rows)) <= 6 * 5 + 10 < len(rows) == 360


def test_the_shipped_set_covers_the_full_one_with_at_most_150_compilations() -> None:
    shipped = pytest.importorskip(
        "pagedkv.optimized.attention.shipped", reason="configurations are launches of Triton", exc_type=ImportError
    )
    every = [(target, *each) for target in TARGETS for each in shipped.configurations()]
    few = [(target, *each) for target, each in shipped.pairwise()]
    assert len(set(few)) == len(few) <= 150
    assert set(few) <= set(every)
    assert every_pair(few) == every_pair(every)


def test_each_mask_meets_every_pair_of_other_values() -> None:
    shipped = pytest.importorskip(
        "pagedkv.optimized.attention.shipped", reason="configurations are launches of Triton", exc_type=ImportError
    )
    attending = [each for each in shipped.configurations() if each.kernel in shipped.ATTENDING]
    shapes = {each[:5] for each in attending}
    assert len(shapes) == 4 * 3 * 9 * 6 * 4 < len(attending)  # the usual ones have another mask, too
    for a in range(5):
        for b in range(a):
            met = {(each[a], each[b], each.mask) for each in attending}
            pairs = {(each[a], each[b]) for each in attending}
            assert len(met) == len(pairs) * len(shipped.MASKS)
