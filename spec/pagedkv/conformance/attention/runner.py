"""The run: every check of the plan on one subject, failures shrunk, and what was never exercised."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pagedkv.conformance.attention.cases import FEATURES, Case, with_positions
from pagedkv.conformance.attention.held import Held, held, smallest
from pagedkv.conformance.attention.judging import ANSWER, Judged
from pagedkv.conformance.attention.pins import Pin, changed
from pagedkv.conformance.attention.plan import LAWS, NEEDS, Check, Configuration, Shape, Size, checks, configurations
from pagedkv.conformance.attention.report import (
    AttentionReport,
    ConfigurationReport,
    Count,
    Failure,
    configuration_name,
)
from pagedkv.spec.attention_subject import AttentionCapabilities, AttentionSubject
from pagedkv.spec.words import Misuse

SHAPE = frozenset({"block_size", "num_kv_heads", "group", "head_dim", "value_dim"})
"""Fields of a case that may be fixed."""


def run(
    subject: AttentionSubject | Held,
    *,
    seed: int = 0,
    size: Size = "full",
    only: Sequence[Configuration] | None = None,
    shape: Shape | None = None,
    shrink: bool = True,
    stop_at_first: bool = False,
    known: Sequence[Pin] = (),
    progress: Callable[[str], None] | None = None,
) -> AttentionReport:
    """Hold `subject` to every law that its capabilities call for.

    Args:
        subject: the implementation under test; `apart.Apart` is one in a process of its own.
        seed: draws all contents and placements.
        size: "tiny" for an interpreted kernel, "full" for a compiled one.
        only: the configurations to run; all that the capabilities call for if None. With it, neither capabilities that
            were not reached nor pins that hold are held against the subject.
        shape: fields of every case to fix, for kernels made for one shape: {"block_size": 16, "head_dim": 64}. None:
            those of the subject's `shapes`, if it has them, in turns.
        shrink: make each failing case smaller, while the law still fails.
        stop_at_first: end at the first failure.
        known: known failures of this subject (`pins.load`): what is put down to them is counted and is no failure, and
            one that holds now is one.
        progress: called with a line of text before each configuration.

    Returns:
        The report. `report.ok` is false if a law is broken, or if a declared capability was never exercised.

    Raises:
        Misuse: `size` is neither "tiny" nor "full", or `shape` fixes something that is no shape.
    """
    if size not in ("tiny", "full"):
        raise Misuse("size", size, "'tiny' or 'full'")
    start, subject = time.perf_counter(), held(subject)
    state = _Run(subject, shrink, known, {name for each in shapes_of(subject, shape) for name in each})
    planned = configurations(subject.capabilities, size) if only is None else list(only)
    for index, configuration in enumerate(planned):
        if progress is not None:
            name = configuration_name(configuration.dtype, configuration.features)
            progress(f"attention {index + 1}/{len(planned)}: {name}")
        state.hold(configuration, planned_checks(subject, configuration, size, seed, shape), stop_at_first)
        if stop_at_first and state.failures:
            break
    if only is None and not (stop_at_first and state.failures):
        state.require_exercised()
        state.require_known(shapes_of(subject, shape))
    return state.report(seed, size, time.perf_counter() - start)


def planned_checks(
    subject: AttentionSubject | Held,
    configuration: Configuration,
    size: Size,
    seed: int = 0,
    shape: Shape | None = None,
) -> list[Check]:
    """The checks that `run` makes of one configuration, in order.

    Raises:
        Misuse: `shape` fixes something that is no shape, or the subject has no rounding model.
    """
    subject = held(subject)
    plans = [_planned(subject, configuration, size, seed, each) for each in shapes_of(subject, shape)]
    return [alike[index % len(alike)] for index, alike in enumerate(zip(*plans, strict=True))]


def shapes_of(subject: AttentionSubject | Held, shape: Shape | None = None) -> Sequence[Shape]:
    """What is fixed of every case, in turns: `shape`, or else the subject's `shapes`, or nothing.

    Raises:
        Misuse: it is no shape.
    """
    shapes: Sequence[Shape] = [shape] if shape else held(subject).shapes
    if not shapes:
        raise Misuse("shapes", shapes, "a shape, or several")
    for each in shapes:
        if not set(each) <= SHAPE:
            raise Misuse("shape", each, f"a mapping from some of {', '.join(sorted(SHAPE))}")
    return shapes


def _planned(subject: Held, configuration: Configuration, size: Size, seed: int, shape: Shape) -> list[Check]:
    fixed: dict[str, Any] = dict(shape)
    least = replace(Case(dtype=configuration.dtype), **fixed)
    return [*checks(configuration, subject.capabilities, size, subject.tile(least), seed, shape)]


@dataclass
class _Run:
    """What a run has gathered so far."""

    subject: Held
    shrink: bool
    known: Sequence[Pin]
    fixed: Collection[str]
    """Fields that a smaller case keeps."""
    reports: list[ConfigurationReport] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    laws: dict[str, Count] = field(default_factory=dict)
    exercised: set[str] = field(default_factory=set)
    excused: Counter[str] = field(default_factory=Counter)

    def hold(self, configuration: Configuration, planned: list[Check], stop_at_first: bool) -> None:
        """Go through the checks of one configuration; a law that failed is not tried on further cases of it, unless
        that was a known failure.

        A subject that gives a launch with nothing odd no answer is held to no law: all of them would say the same.
        """
        self.subject.begin()
        failed = set[str]()
        counts = dict.fromkeys(("relation", "probe", "bound", "write"), Count())
        fitted = [(law, self.subject.fit(case)) for law, case in planned]
        taken = [Check(law, case) for law, case in fitted if case is not None]
        if self._answers(taken, failed):
            for law, case in taken:
                if law in failed or (stop_at_first and failed):
                    continue
                judged = self.subject.judge(law, case)
                if judged.malformed and self.subject.judge(ANSWER, case, fresh=True).malformed:
                    self._note(ANSWER, case, judged, failed)
                    continue
                kind = LAWS[law][0]
                self.laws[law] = self.laws.get(law, Count()).plus(judged.checked, judged.detail is not None)
                counts[kind] = counts[kind].plus(judged.checked, judged.detail is not None)
                if judged.checked:
                    self._exercised(law, case)
                self._note(law, case, judged, failed)
        measured = self.subject.measured
        relations = counts["relation"].plus(counts["write"].checked, counts["write"].failed)
        self.reports.append(
            ConfigurationReport(
                dtype=configuration.dtype,
                features=configuration.features,
                rhos=measured.rhos,
                visibility=measured.visibility,
                relations=relations,
                probes=counts["probe"],
                bounds=counts["bound"],
                launches=measured.launches,
            )
        )

    def report(self, seed: int, size: Size, elapsed_s: float) -> AttentionReport:
        """What was gathered, as a report."""
        return AttentionReport(
            subject=self.subject.name,
            seed=seed,
            size=size,
            configurations=tuple(self.reports),
            laws=self.laws,
            failures=tuple(self.failures),
            undeclared=undeclared(self.subject.capabilities),
            launches=sum(each.launches for each in self.reports),
            elapsed_s=elapsed_s,
            excused=dict(self.excused),
        )

    def require_exercised(self) -> None:
        """A declared capability that no check relied on is a failure."""
        for name in declared(self.subject.capabilities):
            if name not in self.exercised:
                detail = f"{name} is declared and was never exercised"
                self.failures.append(Failure("exercised", "capability", "", detail))

    def require_known(self, shapes: Sequence[Shape]) -> None:
        """A known failure that is none is a failure."""
        for pin in self.known:
            if why := changed(pin, self.subject, shapes):
                self.failures.append(Failure("known", "pin", "", why))

    def _answers(self, planned: list[Check], failed: set[str]) -> bool:
        """Whether the first launch without an odd request is answered. If not, what it kept from is not missed."""
        case = next((case for _, case in planned if with_positions(case) == case), None)
        if case is None:
            return True
        judged = self.subject.judge(ANSWER, case)
        self._note(ANSWER, case, judged, failed)
        for law, each in planned if judged.detail is not None else ():
            self._exercised(law, each)
        return judged.detail is None

    def _exercised(self, law: str, case: Case) -> None:
        self.exercised |= relied_on(law, case)

    def _note(self, law: str, case: Case, judged: Judged, failed: set[str]) -> None:
        """A failure if it is one, new, and not known; on a smaller case if there is one. Each law is shrunk once a run,
        and every time if it is pinned: the smallest case tells whether this is the known failure."""
        if judged.detail is None or law in failed:
            return
        pins = [pin for pin in self.known if pin.law == law]
        if pins or (self.shrink and all(earlier.law != law for earlier in self.failures)):
            case, judged = smallest(self.subject, law, case, judged, self.fixed)
        if pin := next((pin for pin in pins if pin.explains(law, case)), None):
            self.excused[pin.name] += 1
            return
        failed.add(law)
        kind = "launch" if law == ANSWER else LAWS[law][0]
        self.failures.append(Failure(law, kind, case.describe(), str(judged.detail), judged.error))


def declared(capabilities: AttentionCapabilities) -> list[str]:
    """What is declared, which checks have to exercise: capabilities and dtypes."""
    return [*(name for name in _optional() if getattr(capabilities, name)), *capabilities.dtypes]


def undeclared(capabilities: AttentionCapabilities) -> tuple[str, ...]:
    """Capabilities that are not declared, for which nothing is checked."""
    return tuple(name for name in _optional() if not getattr(capabilities, name))


def relied_on(law: str, case: Case) -> set[str]:
    """What a check exercises, some of it capabilities and dtypes."""
    return {*case.features(), NEEDS.get(law, law), case.dtype}


def _optional() -> tuple[str, ...]:
    return (*FEATURES, *dict.fromkeys(NEEDS.values()))
