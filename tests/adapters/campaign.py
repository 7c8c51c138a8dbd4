"""Runs what a campaign is made of, with the functions of the kit that anybody has, and writes down what came of it.

A law that is broken does not end the run: it is noted, its first program is made minimal at the end, and the run goes
on with the next program. So all laws that the programs can break are seen, and not the first one only.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from pagedkv.conformance.adapters.scheduler import OWN_LAWS
from pagedkv.conformance.differential.violation import COPIED
from pagedkv.conformance.failures.shrinking import Failure, minimise, trace_of
from pagedkv.conformance.laws import applicable
from pagedkv.conformance.programs.plans import declared, probe
from pagedkv.conformance.search import exhaustive, fuzz
from pagedkv.conformance.subjects import subject
from pagedkv.spec import Misuse
from pagedkv.spec.subject import Capabilities, SubjectFactory
from pagedkv.spec.trace import save

from tests.adapters.campaigns import Campaign, Variant

ROOT: Final = Path(__file__).parent.parent.parent
TRACES: Final = ROOT / "docs" / "conformance" / "traces"
REFERENCES: Final = "references = table occurrences + pins"


@dataclass
class Outcome:
    """What came of one variant."""

    capabilities: tuple[str, ...] = ()
    laws: tuple[str, ...] = ()
    """Those that the engine could have broken."""
    programs: int = 0
    operations: int = 0
    failed: int = 0
    """Programs that broke a law."""
    slices: dict[str, list[int]] = field(default_factory=dict)
    """States, transitions, and transitions that broke a law."""
    failures: dict[str, Failure] = field(default_factory=dict)
    """The shortest failure met for each law."""

    def note(self, failure: Failure) -> str:
        """Remember a failure, and go on: its law is known."""
        known = self.failures.get(failure.violation.law)
        if known is None or len(failure.program) < len(known.program):
            self.failures[failure.violation.law] = failure
        return failure.violation.law


def hold(variant: Variant, programs: int, tell: Callable[[str], None]) -> Outcome:
    """Fuzz one subject and visit its slices. `programs` in all, of as many operations as the variant says."""
    factory, outcome = subject(variant.factory), Outcome()
    capabilities = declared(factory)
    outcome.capabilities = named(capabilities)
    outcome.laws = tuple(law for law in applicable(capabilities) if law not in OWN_LAWS and shown(factory, law))

    def fuzzed(failure: Failure) -> str:
        outcome.failed += 1
        return outcome.note(failure)

    report = fuzz.run(factory, seed=0, programs=programs * variant.draws, steps=variant.steps, excuse=fuzzed)
    outcome.programs, outcome.operations = report.programs, report.steps
    tell(f"{variant.factory}: {report.programs} programs, {report.steps} operations, {outcome.failed} broke a law")
    for part in exhaustive.slices_for(capabilities):
        try:
            visited = exhaustive.run(factory, part, excuse=outcome.note)
        except Misuse:  # a pool that it does not take
            continue
        outcome.slices[part.name] = [visited.states, visited.transitions, sum(visited.excused.values())]
        tell(f"{variant.factory}: {part.name}, {visited.states} states, {visited.transitions} transitions")
    outcome.failures = {law: minimise(factory, failure) for law, failure in outcome.failures.items()}
    return outcome


def named(capabilities: Capabilities) -> tuple[str, ...]:
    """What is declared, with its value where that is no yes or no."""
    declared_ones = {name: value for name, value in vars(capabilities).items() if value not in (False, "any", "commit")}
    return tuple(name if value is True else f"{name}: {value}" for name, value in declared_ones.items())


def shown(factory: SubjectFactory, law: str) -> bool:
    """Whether the subject has what the law is about and no capability tells."""
    has = {REFERENCES: probe(factory).observe().references is not None, COPIED: hasattr(probe(factory), "copy")}
    return has.get(law, True)


def run(campaign: Campaign, programs: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """All variants of a campaign, as the values that are written down. Minimal traces are written by the way."""
    start = time.perf_counter()
    outcomes = {variant: hold(variant, programs, tell) for variant in campaign.variants}
    for earlier in TRACES.glob(f"{campaign.name}-*.jsonl"):
        earlier.unlink()
    broken = [
        {
            "law": law,
            "detail": failure.violation.detail,
            "factory": variant.factory,
            "trace": written(f"{campaign.name}-{variant.label}-{number}", failure),
            **campaign.verdict(variant.factory, law),
        }
        for variant, outcome in outcomes.items()
        for number, (law, failure) in enumerate(sorted(outcome.failures.items()), start=1)
    ]
    laws = dict.fromkeys(law for outcome in outcomes.values() for law in outcome.laws)
    return {
        "subject": campaign.subject,
        "kind": "block manager",
        "package": campaign.package,
        "version": version(campaign.package),
        "command": f"make adapters-{campaign.name}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "seconds": round(time.perf_counter() - start),
        "capabilities": list(dict.fromkeys(name for outcome in outcomes.values() for name in outcome.capabilities)),
        "programs": sum(outcome.programs for outcome in outcomes.values()),
        "operations": sum(outcome.operations for outcome in outcomes.values()),
        "slices": {
            f"{variant.label}: {name}": counts[:2]
            for variant, outcome in outcomes.items()
            for name, counts in outcome.slices.items()
        },
        "variants": [
            {
                "factory": variant.factory,
                "capabilities": list(outcome.capabilities),
                "programs": outcome.programs,
                "operations": outcome.operations,
                "failed": outcome.failed,
                "slices": outcome.slices,
            }
            for variant, outcome in outcomes.items()
        ],
        "kept": [law for law in laws if law not in {entry["law"] for entry in broken}],
        "broken": broken,
        "not_run": campaign.not_run,
    }


def written(name: str, failure: Failure) -> str:
    """Write a failure as a trace. Where it lies, seen from the root of the project."""
    path = TRACES / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    save(trace_of(failure), path)
    return path.relative_to(ROOT).as_posix()
