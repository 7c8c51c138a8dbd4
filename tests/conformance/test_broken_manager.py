"""Every named way to break the optimized manager is found unaided, and leaves a trace that shows it to anybody."""

from pathlib import Path

import pytest

from pagedkv.conformance.fuzz import run
from pagedkv.conformance.mutation import Mutant
from pagedkv.conformance.replay import replay
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec.trace import load
from tests.conformance.broken_manager import BROKEN_MANAGERS


def test_the_list_is_long_and_names_are_distinct() -> None:
    assert len({mutant.name for mutant in BROKEN_MANAGERS}) == len(BROKEN_MANAGERS) >= 25


@pytest.mark.parametrize("mutant", BROKEN_MANAGERS, ids=lambda mutant: mutant.name)
def test_a_broken_manager_is_found_and_its_trace_replays(mutant: Mutant, tmp_path: Path) -> None:
    broken = mutant.load()
    found = run(broken, seed=1, programs=1_500, out_dir=tmp_path).violation
    assert found is not None, f"{mutant.name} was not found: {mutant.breaks}"
    assert found.path is not None
    trace = load(Path(found.path))
    again = replay(trace, broken)
    assert (again.verdict, again.law) == ("violation", found.law)
    assert replay(trace, OptimizedSubject).verdict == "holds"
