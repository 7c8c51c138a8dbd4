"""What a run found, as frozen data that turns into JSON, and one screen of text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any, Self

from pagedkv.conformance.counted import counted


@dataclass(frozen=True)
class Failure:
    """One law broken by one case. `check_law(subject, law, case)` reproduces it."""

    law: str
    kind: str
    """"relation", "probe", "bound", "write"; "launch" if nothing could be held to a law, "capability", or "pin"."""
    case: str
    """The smallest case found that breaks the law; an expression that makes it."""
    detail: str
    error: BaseException | None = field(default=None, compare=False, repr=False)
    """What the subject raised, with its traceback; not in the JSON."""

    def as_json(self) -> dict[str, str]:
        """Everything else."""
        return {"law": self.law, "kind": self.kind, "case": self.case, "detail": self.detail}


@dataclass(frozen=True)
class Count:
    """Comparisons made, and laws that failed among them."""

    checked: int = 0
    failed: int = 0

    def plus(self, checked: int, failed: int) -> Self:
        return type(self)(self.checked + checked, self.failed + failed)


def configuration_name(dtype: str, features: Sequence[str]) -> str:
    """As reports have it.

    >>> configuration_name("float16", ("window", "sinks"))
    'float16 window+sinks'
    """
    return f"{dtype} {'+'.join(features) or 'plain'}"


@dataclass(frozen=True)
class ConfigurationReport:
    """One dtype with one set of features."""

    dtype: str
    features: tuple[str, ...]
    rhos: Mapping[str, float]
    """Largest |result - reference| / bound seen, by class of requests (`cases.SHAPES`); the gate is 1."""
    visibility: float | None
    """Share of tokens whose loss the bound must show, least over the cases with random values; None: not measured."""
    relations: Count
    probes: Count
    bounds: Count
    launches: int

    @property
    def worst_rho(self) -> float:
        """Over all shapes."""
        return max(self.rhos.values(), default=0.0)

    @property
    def name(self) -> str:
        return configuration_name(self.dtype, self.features)


@dataclass(frozen=True)
class AttentionReport:
    """What one subject did. `laws` counts by law; `failures` has one entry a law and configuration."""

    subject: str
    seed: int
    size: str
    configurations: tuple[ConfigurationReport, ...]
    laws: Mapping[str, Count]
    failures: tuple[Failure, ...]
    undeclared: tuple[str, ...]
    """Capabilities that the subject does not declare."""
    launches: int
    elapsed_s: float
    excused: Mapping[str, int] = field(default_factory=dict)
    """Checks that failed and were put down to a known failure, by its name."""

    @property
    def ok(self) -> bool:
        return not self.failures

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings; an infinite rho, which JSON cannot say, is the string "inf"."""
        configurations = [asdict(each) for each in self.configurations]
        for each in configurations:
            each["rhos"] = {shape: rho if isfinite(rho) else "inf" for shape, rho in each["rhos"].items()}
        laws = {name: asdict(count) for name, count in self.laws.items()}
        parts = {"configurations": configurations, "laws": laws, "failures": [each.as_json() for each in self.failures]}
        return {**asdict(replace(self, laws={}, failures=())), **parts, "ok": self.ok}

    def lines(self) -> list[str]:
        """The report as text: one line a configuration, and each broken law with its first case."""
        head = f"{'configuration':<44} {'relations':>9} {'probes':>7} {'bounds':>7} {'rho':>6} {'visible':>8}"
        launches = counted(self.launches, "launches")
        lines = [f"attention: {self.subject} ({self.size}, seed {self.seed}, {launches})", head]
        for each in self.configurations:
            visible = "" if each.visibility is None else f"{each.visibility:.0%}"
            counts = f"{each.relations.checked:>9} {each.probes.checked:>7} {each.bounds.checked:>7}"
            worst = f"{each.worst_rho:.2f}" if each.rhos else ""
            lines.append(f"{each.name:<44} {counts} {worst:>6} {visible:>8}".rstrip())
        for told, laws in together(self.failures).items():
            lines.append(f"VIOLATED {', '.join(f'{law} ({kind})' for law, kind in laws)}: {told.detail}")
            lines += [f"  {told.case}"] if told.case else []
            more = max(sum(each.law == law and each.case != "" for each in self.failures) for law, _ in laws) - 1
            lines += [f"  and in {counted(more, 'more configurations')}"] if more > 0 else []
        lines += [f"put down to the known failure {name}: {count}" for name, count in sorted(self.excused.items())]
        if self.undeclared:
            lines.append(f"not tested, because the subject does not declare it: {', '.join(self.undeclared)}")
        return lines


def together(failures: Iterable[Failure]) -> dict[Failure, list[tuple[str, str]]]:
    """The first failure of each law, laws (with their kinds) together that say the same of the same case."""
    laws: dict[str, Failure] = {}
    for failure in failures:
        laws.setdefault(failure.law if failure.case else failure.detail, failure)
    alike: dict[tuple[str, str], list[Failure]] = {}
    for failure in laws.values():
        alike.setdefault((failure.case, failure.detail), []).append(failure)
    return {same[0]: [(each.law, each.kind) for each in same] for same in alike.values()}
