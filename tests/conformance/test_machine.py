"""The state machine passes what is right, finds what is wrong, and leaves a trace of it."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.importing import BUILT_IN
from pagedkv.conformance.search.machine import Bytes, choices, machine_for
from pagedkv.conformance.subjects import subject
from pagedkv.conformance.suite.machine import hold
from pagedkv.conformance.suite.profiles import Profile
from pagedkv.spec import Config, Misuse
from pagedkv.spec.trace import load

from tests.conformance.illegal import ILLEGAL
from tests.conformance.legal import LEGAL


def little(programs: int, steps: int = 40) -> Profile:
    return Profile(programs=programs, steps=steps, machine_programs=programs)


@pytest.mark.parametrize("name", BUILT_IN)
def test_our_implementations_hold(name: str) -> None:
    held = hold(subject(name), f"holds {name}", little(40), 1)
    assert held.failure is None
    assert held.counts.operations.total() > 1_000


@pytest.mark.parametrize("name", LEGAL)
def test_no_legal_allocator_is_rejected(name: str) -> None:
    assert hold(LEGAL[name], f"legal {name}", little(10), 1).failure is None


@pytest.mark.parametrize("name", ["freed_while_shared", "spurious_refusal", "publication_of_a_partial_block"])
def test_what_is_broken_is_found_and_made_short(name: str) -> None:
    failure = hold(ILLEGAL[name].load(), f"broken {name}", little(400), 1).failure
    assert failure is not None
    assert len(failure.program) <= 8


def test_a_failure_leaves_a_trace_which_is_the_shortest_for_its_law(tmp_path: Path) -> None:
    """Under Hypothesis's shrinking, too."""
    machine = machine_for(ILLEGAL["leak_on_free"].load(), "leaking", tmp_path)
    profile = settings(max_examples=10, stateful_step_count=6, deadline=None, derandomize=True, database=None)
    with pytest.raises(Violation) as caught:
        run_state_machine_as_test(machine, settings=profile)
    path = tmp_path / "leaking-counts-add-up.jsonl"
    assert any(str(path) in note for note in caught.value.__notes__)
    assert len(load(path).lines) == 2, "admit and free"


def test_a_pool_that_the_subject_does_not_have_is_passed_over() -> None:
    def even(config: Config) -> object:
        if config.block_size % 2:
            raise Misuse("block_size", config.block_size, "an even number")
        return subject("reference")(config)

    held = hold(even, "even", little(30), 1)  # type: ignore[arg-type]  # what it returns is a subject
    assert held.failure is None
    assert 0 < len(held.counts.programs) < 30


def test_choices_run_out_into_the_simplest() -> None:
    chooser = Bytes(bytes([7, 255]))
    assert [chooser.integer(0, 4), chooser.integer(-1, 1), chooser.integer(3, 9)] == [2, -1, 3]
    assert "binary" in repr(choices(3))
