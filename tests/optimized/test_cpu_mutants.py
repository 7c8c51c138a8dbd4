"""The faults of `cpu_mutants` are faults of the sources as they are."""

import pytest

from tests.optimized.cpu_mutants import LOOPS, MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_each_changes_one_place(mutant: Mutant) -> None:
    text = (ROOT / "optimized" / LOOPS / mutant.file).read_text()
    assert text.count(mutant.before) == 1
    assert mutant.before != mutant.after
