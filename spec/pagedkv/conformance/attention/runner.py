"""The run: every check of the plan on one subject, failures shrunk, and what was never exercised."""

import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pagedkv.conformance.attention.bench import Bench, Broken
from pagedkv.conformance.attention.cases import FEATURES, Case, contents
from pagedkv.conformance.attention.placement import place
from pagedkv.conformance.attention.plan import LAWS, NEEDS, Check, Configuration, Size, checks, configurations
from pagedkv.conformance.attention.report import AttentionReport, ConfigurationReport, Count, Failure
from pagedkv.spec.attention_subject import AttentionSubject
from pagedkv.spec.words import Misuse

SHAPE = frozenset({"block_size", "num_kv_heads", "group", "head_dim", "value_dim"})
"""Fields of a case that a caller may fix."""

RAISED: Final = "raised "
"""What the detail begins with if the subject raised something."""
MAX_SHRINKS = 80
"""Cases tried to make a failure smaller."""


def run(
    subject: AttentionSubject,
    *,
    seed: int = 0,
    size: Size = "full",
    only: Sequence[Configuration] | None = None,
    shape: Mapping[str, int] | None = None,
    shrink: bool = True,
    stop_at_first: bool = False,
    progress: Callable[[str], None] | None = None,
) -> AttentionReport:
    """Hold `subject` to every law that its capabilities call for.

    Args:
        subject: the implementation under test.
        seed: draws all contents and placements.
        size: "tiny" for an interpreted kernel, "full" for a compiled one.
        only: the configurations to run; all that the capabilities call for if None. With it, capabilities that were not
            reached are not held against the subject.
        shape: fields of every case to fix, for kernels made for one shape: {"block_size": 16, "head_dim": 64}.
        shrink: make each failing case smaller, while the law still fails.
        stop_at_first: end at the first failure.
        progress: called with a line of text before each configuration.

    Returns:
        The report. `report.ok` is false if a law is broken, or if a declared capability was never exercised.

    Raises:
        Misuse: `size` is neither "tiny" nor "full", or `shape` fixes something that is no shape.
    """
    if size not in ("tiny", "full"):
        raise Misuse("size", size, "'tiny' or 'full'")
    start = time.perf_counter()
    state = _Run(subject, shrink, dict(shape or {}))
    planned = configurations(subject.capabilities, size) if only is None else list(only)
    for index, configuration in enumerate(planned):
        if progress is not None:
            progress(f"attention {index + 1}/{len(planned)}: {configuration.dtype} {'+'.join(configuration.features)}")
        state.hold(configuration, planned_checks(subject, configuration, size, seed, shape), stop_at_first)
        if stop_at_first and state.failures:
            break
    if only is None and not (stop_at_first and state.failures):
        state.require_exercised()
    return state.report(seed, size, time.perf_counter() - start)


def planned_checks(
    subject: AttentionSubject,
    configuration: Configuration,
    size: Size,
    seed: int = 0,
    shape: Mapping[str, int] | None = None,
) -> list[Check]:
    """The checks that `run` makes of one configuration, in order.

    Raises:
        Misuse: `shape` fixes something that is no shape.
    """
    fixed: dict[str, Any] = dict(shape or {})
    if not set(fixed) <= SHAPE:
        raise Misuse("shape", fixed, f"a mapping from some of {', '.join(sorted(SHAPE))}")
    least = replace(Case(dtype=configuration.dtype), **fixed)
    tile = subject.rounding(place(least, contents(least))).tile
    planned = checks(configuration, subject.capabilities, size, tile, seed)
    return [Check(law, replace(case, **fixed)) for law, case in planned]


def check_law(subject: AttentionSubject, law: str, case: Case) -> str | None:
    """Hold a subject to one law on one case: what is wrong, or None. Reproduces a `Failure`.

    Raises:
        Misuse: no such law.
    """
    if law not in LAWS:
        raise Misuse("law", law, f"one of {', '.join(LAWS)}")
    return _judge(Bench(subject), law, case)[1]


def fit(subject: AttentionSubject, case: Case) -> Case | None:
    """The part of a case that a subject is made for, if it has a `fit` that tells; else the case. None: no part."""
    part: Callable[[Case], Case | None] | None = getattr(subject, "fit", None)
    return case if part is None else part(case)


def smallest(
    subject: AttentionSubject, law: str, case: Case, detail: str, shape: Mapping[str, int] | None = None
) -> tuple[Case, str]:  # fmt: skip
    """A smaller case that breaks the law, too, and how, as a bounded greedy search finds it. It has the shape that is
    fixed, and what computed something wrong does so again: that it raises on a smaller case is another fault."""
    fixed, smaller = dict(shape or {}), case.smaller()
    for _ in range(MAX_SHRINKS):
        candidate = next(smaller, None)
        if candidate is None:
            break
        if fit(subject, candidate) != candidate or any(getattr(candidate, name) != fixed[name] for name in fixed):
            continue
        found = check_law(subject, law, candidate)
        if found is not None and found.startswith(RAISED) == detail.startswith(RAISED):
            case, detail, smaller = candidate, found, candidate.smaller()
    return case, detail


@dataclass
class _Run:
    """What a run has gathered so far."""

    subject: AttentionSubject
    shrink: bool
    shape: Mapping[str, int]
    reports: list[ConfigurationReport] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    laws: dict[str, Count] = field(default_factory=dict)
    exercised: set[str] = field(default_factory=set)

    def hold(self, configuration: Configuration, planned: list[Check], stop_at_first: bool) -> None:
        """Go through the checks of one configuration; a law that failed is not tried on further cases of it."""
        bench, failed = Bench(self.subject), set[str]()
        counts = dict.fromkeys(("relation", "probe", "bound", "write"), Count())
        for law, drawn in planned:
            case = fit(self.subject, drawn)
            if law in failed or case is None:
                continue
            kind = LAWS[law][0]
            checked, detail = _judge(bench, law, case)
            self.laws[law] = self.laws.get(law, Count()).plus(checked, detail is not None)
            counts[kind] = counts[kind].plus(checked, detail is not None)
            if checked:
                self.exercised |= {*case.features(), NEEDS.get(law, law), configuration.dtype}
            if detail is not None:
                failed.add(law)
                self.failures.append(self._failure(law, kind, case, detail))
                if stop_at_first:
                    break
        relations = counts["relation"].plus(counts["write"].checked, counts["write"].failed)
        self.reports.append(
            ConfigurationReport(
                dtype=configuration.dtype,
                features=configuration.features,
                rhos=bench.rhos,
                visibility=bench.visibility,
                relations=relations,
                probes=counts["probe"],
                bounds=counts["bound"],
                launches=bench.launches,
            )
        )

    def report(self, seed: int, size: Size, elapsed_s: float) -> AttentionReport:
        """What was gathered, as a report."""
        capabilities = self.subject.capabilities
        return AttentionReport(
            subject=self.subject.name,
            seed=seed,
            size=size,
            configurations=tuple(self.reports),
            laws=self.laws,
            failures=tuple(self.failures),
            not_exercised=tuple(name for name in _optional() if not getattr(capabilities, name)),
            launches=sum(each.launches for each in self.reports),
            elapsed_s=elapsed_s,
        )

    def require_exercised(self) -> None:
        """A declared capability that no check relied on is a failure."""
        capabilities = self.subject.capabilities
        declared = [name for name in _optional() if getattr(capabilities, name)] + list(capabilities.dtypes)
        for name in declared:
            if name not in self.exercised:
                detail = f"{name} is declared and was never exercised"
                self.failures.append(Failure("exercised", "capability", "", detail))

    def _failure(self, law: str, kind: str, case: Case, detail: str) -> Failure:
        """The failure, on a smaller case if there is one. Each law is shrunk once a run."""
        if self.shrink and all(earlier.law != law for earlier in self.failures):
            case, detail = smallest(self.subject, law, case, detail, self.shape)
        return Failure(law, kind, case.describe(), detail)


def _judge(bench: Bench, law: str, case: Case) -> tuple[int, str | None]:
    """(comparisons made, what is wrong or None). Whatever a subject raises on legal input breaks the law at hand."""
    try:
        return LAWS[law][1](bench, case), None
    except Broken as broken:
        return 1, str(broken)
    except Exception as error:
        if os.environ.get("PAGEDKV_DEBUG") == "1":
            traceback.print_exc()
        return 1, f"{RAISED}{type(error).__name__}: {error}"


def _optional() -> tuple[str, ...]:
    return (*FEATURES, *dict.fromkeys(NEEDS.values()))
