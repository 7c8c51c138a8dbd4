"""How many states of a slice random programs reach: never more than there are, and more with more programs."""

import pytest
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.search import exhaustive, measures
from pagedkv.conformance.search.slices import SLICES
from pagedkv.reference.manager import BlockManager

from tests.conformance.illegal import ILLEGAL


def test_what_is_reached_grows_with_the_programs_up_to_all_there_is() -> None:
    few, more = (
        measures.reached(BlockManager, SLICES["rolling"], seed=0, programs=count, steps=30) for count in (4, 24)
    )
    assert few.states == more.states == exhaustive.run(BlockManager, SLICES["rolling"]).states
    assert 0 < few.reached < more.reached <= more.states
    assert (few.operations, more.operations) == (4 * 30, 24 * 30)


def test_a_violation_is_raised() -> None:
    part = SLICES["core"]
    with pytest.raises(Violation):
        measures.reached(ILLEGAL["leak_on_free"].load(), part, seed=0, programs=1, steps=1)
