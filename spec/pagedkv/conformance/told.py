"""What a check tells through its report, which may come from another process. As `counted`, without the kit."""

from collections.abc import Mapping
from typing import Final, Protocol

PREFIX: Final = "pagedkv "
"""Of the names of properties in reports, which also stand in JUnit files."""
COUNTED: Final = ("traces", "states", "transitions", "programs", "operations", "launches", "comparisons")
"""What is counted, in the order in which it is told."""
SEED: Final = "seed"
UNDECLARED: Final = "not declared"
KNOWN: Final = "known "
"""Before the name of a known failure: so much was put down to it."""


class Told(Protocol):
    """What is told of a subject, a block manager or a kernel, beside its checks."""

    @property
    def seed(self) -> int: ...
    @property
    def undeclared(self) -> tuple[str, ...]: ...


def properties(run: Told | None, done: Mapping[str, int]) -> list[tuple[str, object]]:
    """What is to be told about a check, as properties of its report: of which run, and what was done."""
    told: dict[str, object] = {**done}
    if run:
        told |= {SEED: run.seed, UNDECLARED: ", ".join(run.undeclared)}
    return [(PREFIX + name, value) for name, value in told.items()]
