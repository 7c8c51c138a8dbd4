"""The run: every check of the plan on one subject, failures shrunk, and what was never exercised."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pagedkv.conformance.attention.bench import Bench
from pagedkv.conformance.attention.cases import FEATURES, Case, contents, with_positions
from pagedkv.conformance.attention.judging import ANSWER, Judged, fit, judge, smallest
from pagedkv.conformance.attention.placement import place
from pagedkv.conformance.attention.plan import LAWS, NEEDS, Check, Configuration, Size, checks, configurations
from pagedkv.conformance.attention.report import AttentionReport, ConfigurationReport, Count, Failure
from pagedkv.spec.attention_subject import AttentionSubject, RoundingModel
from pagedkv.spec.words import Misuse

SHAPE = frozenset({"block_size", "num_kv_heads", "group", "head_dim", "value_dim"})
"""Fields of a case that may be fixed."""

Shape: TypeAlias = Mapping[str, int]


def run(
    subject: AttentionSubject,
    *,
    seed: int = 0,
    size: Size = "full",
    only: Sequence[Configuration] | None = None,
    shape: Shape | None = None,
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
        shape: fields of every case to fix, for kernels made for one shape: {"block_size": 16, "head_dim": 64}. None:
            those of the subject's `shapes`, if it has them, in turns.
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
    state = _Run(subject, shrink, {name for each in shapes_of(subject, shape) for name in each})
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
    shape: Shape | None = None,
) -> list[Check]:
    """The checks that `run` makes of one configuration, in order.

    Raises:
        Misuse: `shape` fixes something that is no shape, or the subject has no rounding model.
    """
    plans = [_planned(subject, configuration, size, seed, each) for each in shapes_of(subject, shape)]
    return [alike[index % len(alike)] for index, alike in enumerate(zip(*plans, strict=True))]


def shapes_of(subject: AttentionSubject, shape: Shape | None = None) -> Sequence[Shape]:
    """What is fixed of every case, in turns: `shape`, or else the subject's `shapes`, or nothing.

    Raises:
        Misuse: it is no shape.
    """
    shapes: Sequence[Shape] = [shape] if shape else getattr(subject, "shapes", ({},))
    for each in shapes:
        if not set(each) <= SHAPE:
            raise Misuse("shape", each, f"a mapping from some of {', '.join(sorted(SHAPE))}")
    return shapes


def _planned(
    subject: AttentionSubject, configuration: Configuration, size: Size, seed: int, shape: Shape
) -> list[Check]:
    fixed: dict[str, Any] = dict(shape)
    least = replace(Case(dtype=configuration.dtype), **fixed)
    model = subject.rounding(place(least, contents(least)))
    if not isinstance(model, RoundingModel):
        raise Misuse("rounding", model, "a RoundingModel")
    planned = checks(configuration, subject.capabilities, size, model.tile, seed)
    return [Check(law, replace(case, **fixed)) for law, case in planned]


@dataclass
class _Run:
    """What a run has gathered so far."""

    subject: AttentionSubject
    shrink: bool
    fixed: Collection[str]
    """Fields that a smaller case keeps."""
    reports: list[ConfigurationReport] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    laws: dict[str, Count] = field(default_factory=dict)
    exercised: set[str] = field(default_factory=set)

    def hold(self, configuration: Configuration, planned: list[Check], stop_at_first: bool) -> None:
        """Go through the checks of one configuration; a law that failed is not tried on further cases of it.

        A subject that gives a launch with nothing odd no answer is held to no law: all of them would say the same.
        """
        bench, failed = Bench(self.subject), set[str]()
        counts = dict.fromkeys(("relation", "probe", "bound", "write"), Count())
        fitted = [(law, fit(self.subject, case)) for law, case in planned]
        taken = [Check(law, case) for law, case in fitted if case is not None]
        if self._answers(bench, taken, failed):
            for law, case in taken:
                if law in failed or (stop_at_first and failed):
                    continue
                judged = judge(bench, law, case)
                if judged.malformed and judge(Bench(self.subject), ANSWER, case).malformed:
                    self._note(ANSWER, case, judged, failed)
                    continue
                kind = LAWS[law][0]
                self.laws[law] = self.laws.get(law, Count()).plus(judged.checked, judged.detail is not None)
                counts[kind] = counts[kind].plus(judged.checked, judged.detail is not None)
                if judged.checked:
                    self._exercised(law, case)
                self._note(law, case, judged, failed)
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
            undeclared=tuple(name for name in _optional() if not getattr(capabilities, name)),
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

    def _answers(self, bench: Bench, planned: list[Check], failed: set[str]) -> bool:
        """Whether the first launch without an odd request is answered. If not, what it kept from is not missed."""
        case = next((case for _, case in planned if with_positions(case) == case), None)
        if case is None:
            return True
        self._note(ANSWER, case, judge(bench, ANSWER, case), failed)
        for law, each in planned if failed else ():
            self._exercised(law, each)
        return not failed

    def _exercised(self, law: str, case: Case) -> None:
        self.exercised |= {*case.features(), NEEDS.get(law, law), case.dtype}

    def _note(self, law: str, case: Case, judged: Judged, failed: set[str]) -> None:
        """A failure if it is one and new, on a smaller case if there is one. Each law is shrunk once a run."""
        if judged.detail is None or law in failed:
            return
        failed.add(law)
        if self.shrink and all(earlier.law != law for earlier in self.failures):
            case, judged = smallest(self.subject, law, case, judged, self.fixed)
        kind = "launch" if law == ANSWER else LAWS[law][0]
        self.failures.append(Failure(law, kind, case.describe(), str(judged.detail), judged.error))


def _optional() -> tuple[str, ...]:
    return (*FEATURES, *dict.fromkeys(NEEDS.values()))
