"""The state machine passes what is right, finds what is wrong, and leaves a trace of it."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.replay import replay
from pagedkv.conformance.search.machine import Bytes, choices, hold, machine_for
from pagedkv.conformance.subjects import BUILT_IN, subject
from pagedkv.reference.manager import BlockManager
from pagedkv.spec.trace import load

from tests.conformance.illegal import ILLEGAL
from tests.conformance.legal import LEGAL


@pytest.mark.parametrize("name", BUILT_IN)
def test_our_implementations_hold(name: str, tmp_path: Path) -> None:
    counts = hold(subject(name), name, programs=40, steps=50, out_dir=tmp_path)
    assert counts.operations.total() > 1_000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", LEGAL)
def test_no_legal_allocator_is_rejected(name: str, tmp_path: Path) -> None:
    hold(LEGAL[name], name, programs=10, steps=40, out_dir=tmp_path)


@pytest.mark.parametrize("name", ["freed_while_shared", "spurious_refusal", "publication_of_a_partial_block"])
def test_a_failure_leaves_a_trace_that_replays_without_hypothesis(name: str, tmp_path: Path) -> None:
    broken = ILLEGAL[name].load()
    with pytest.raises(Violation) as caught:
        hold(broken, name, programs=400, out_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    assert any(str(path) in note for note in caught.value.__notes__)
    trace = load(path)
    assert len(trace.lines) <= 15, "it was made short"
    again = replay(trace, broken)
    assert (again.verdict, again.law) == ("violation", caught.value.law)
    assert replay(trace, BlockManager).verdict == "holds"


def test_hypothesis_may_shrink_as_well(tmp_path: Path) -> None:
    """The file then holds the shorter of the two."""
    broken = ILLEGAL["leak_on_free"].load()
    machine = machine_for(broken, "leaking", tmp_path)
    profile = settings(max_examples=10, stateful_step_count=6, deadline=None, derandomize=True, database=None)
    with pytest.raises(Violation):
        run_state_machine_as_test(machine, settings=profile)
    assert len(load(tmp_path / "leaking-counts-add-up.jsonl").lines) == 2, "admit and free"


def test_choices_run_out_into_the_simplest() -> None:
    chooser = Bytes(bytes([7, 255]))
    assert [chooser.integer(0, 4), chooser.integer(-1, 1), chooser.integer(3, 9)] == [2, -1, 3]
    assert "binary" in repr(choices(3))
