"""Hunting what breaks the loops of the CPU backend: compiled anew in a copy, under the tests of the backend."""

import tempfile
from pathlib import Path

from tests.conformance.mutants.records import Hunt, Kill
from tests.optimized.cpu_mutants import Mutant, is_noticed


def hunt(mutant: Mutant, _seed: int) -> Hunt:
    """The first test that fails."""
    with tempfile.TemporaryDirectory() as folder:
        noticed = is_noticed(mutant, Path(folder))
    return Hunt(() if noticed is None else (Kill("tests", noticed.by, noticed.tests),))
