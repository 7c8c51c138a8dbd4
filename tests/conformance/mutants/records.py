"""What is known of a mutant: which one it is, and what became of it."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import Trace

from tests.conformance.mutants.mutation import Mutant
from tests.optimized import cpu_mutants

AnyMutant: TypeAlias = Mutant | cpu_mutants.Mutant

Status: TypeAlias = Literal["killed", "survived", "dead anchor", "crashed"]
"""Only "killed" is good. "crashed": the hunt itself ended in an error, in a dead process or at its time limit. There
are no mutants that are called equivalent and left out: one that changes nothing is taken out of its family."""
STATUSES: Final[tuple[Status, ...]] = ("killed", "survived", "dead anchor", "crashed")

ORACLES: Final[Mapping[str, str]] = {
    "ledger": "random programs: each answer, each table, count and entry, and the meaning, after each operation",
    "exhaustive": "the same in the states of small pools, breadth first: 60 a slice, or all if nothing else notices",
    "poison": "what may not be read may hold anything: the same bits",
    "relations": "two ways to the same result have the same bits: placement, sharing, history, batch, order of splits",
    "probes": "one-hot and census inputs, whose result is known bit for bit",
    "bound": "the bound of the rounding errors, and rows that see nothing",
    "exact": "what is only moved arrives bit for bit, and nothing else is written",
    "order": "programs of a launch in any order, and what they read and write",
    "code": "the compiled kernel: no offset is multiplied in 32 bits",
    "tests": "the tests of the CPU backend, on the loops compiled anew",
}
"""By name, as the columns of the table have them."""


@dataclass(frozen=True)
class Kill:
    """An oracle that noticed a mutant."""

    oracle: str
    law: str
    operations: int
    """How many were run until then: operations of programs, transitions, calls, or checks, as the family counts."""
    program: int = 0
    """The number of the program, or of the slice, that met it, from 0."""


@dataclass(frozen=True)
class Hunt:
    """What a hunt brought home."""

    kills: tuple[Kill, ...]
    """At most one an oracle."""
    trace: Trace | None = None
    """The minimal one, where programs of the kit were run."""


@dataclass(frozen=True)
class Family:
    """Mutants of one implementation, that are hunted in one way."""

    name: str
    title: str
    counted: str
    """What `Kill.operations` counts."""
    mutants: tuple[AnyMutant, ...]
    hunt: Callable[[Any, int], Hunt]
    """From the mutant and a seed. Raises `MutationError` if an anchor is dead."""
    subject: Callable[[Any], SubjectFactory] | None = None
    """From the mutant to what the kit can run programs on; None: it cannot."""
    intact: Callable[[], SubjectFactory] | None = None
    """What is not broken, for the same programs."""


@dataclass(frozen=True)
class Result:
    """What became of one mutant."""

    family: str
    name: str
    breaks: str
    status: Status
    kills: tuple[Kill, ...] = ()
    trace_length: int | None = None
    """Operations of the minimal trace."""
    detail: str = ""
    """Of "dead anchor" and "crashed"."""
    cpu_seconds: float = 0.0
    digest: str = ""
    """Of the mutant that was hunted."""

    @property
    def key(self) -> str:
        return f"{self.family}/{self.name}"

    @property
    def operations(self) -> int | None:
        """Of the oracle that needed the fewest."""
        return min((kill.operations for kill in self.kills), default=None)

    def by(self, oracle: str) -> Kill | None:
        return next((kill for kill in self.kills if kill.oracle == oracle), None)

    def as_json(self) -> dict[str, Any]:
        """Plain values, without what has nothing to say."""
        return {name: value for name, value in asdict(self).items() if value not in ((), [], None, "")}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> "Result":
        return cls(**{**values, "kills": tuple(Kill(**kill) for kill in values.get("kills", ()))})
