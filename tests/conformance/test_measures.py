"""How many states of a slice random programs reach: never more than there are, and more with more programs."""

from pagedkv.conformance import exhaustive, measures
from pagedkv.conformance.plans import declared
from pagedkv.conformance.slices import SLICES
from pagedkv.reference.manager import BlockManager

from tests.conformance.test_fuzz import Least


def test_what_is_reached_grows_with_the_programs_up_to_all_there_is() -> None:
    few, more = (measures.reached(BlockManager, "rolling", seed=0, programs=count, steps=30) for count in (4, 24))
    assert few.states == more.states == exhaustive.run(BlockManager, "rolling").states
    assert 0 < few.reached < more.reached <= more.states
    assert (few.operations, more.operations) == (4 * 30, 24 * 30)


def test_only_slices_that_a_subject_can_run_are_measured() -> None:
    assert list(measures.scopes_for(BlockManager)) == list(SLICES)
    assert not declared(Least).fork  # type: ignore[arg-type]  # the operations that it has are those of a subject
    assert list(measures.scopes_for(Least)) == []  # type: ignore[arg-type]  # likewise
