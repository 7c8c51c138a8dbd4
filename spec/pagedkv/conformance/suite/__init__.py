"""What a subject is held against in a test run, check by check: one implementation for every way to run them.

`checks` lists them for a subject, in the order of how quickly they tell something: known failures, recorded traces,
the sample trace of the specification, the corpus, random programs, the Hypothesis machine, the exhaustive slices. What
needs a capability that is not declared is not in the list. A check that fails raises `Broken`, whose text is the whole
report: the law, how it is broken, the shortest program, and what to do with it.

The pytest plugin makes an item of each. For those who prefer code there is a class,

    class TestMine(BlockManagerSuite):
        subject = MyAllocator  # a class, a method `subject(self, config)`, or a name such as "mine:MyAllocator"
        options = Options(known_failures="known.toml")

and for unittest a loop: `for check in checks(run_of(MyAllocator)): check.run()`.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

from pagedkv.conformance import corpus
from pagedkv.conformance.counted import counted
from pagedkv.conformance.differential.in_time import attempting
from pagedkv.conformance.failures.known import KnownFailure, changed
from pagedkv.conformance.failures.replay import ReplayReport, replay
from pagedkv.conformance.failures.shrinking import Failure, failure_of, limit_of, minimise, trace_of
from pagedkv.conformance.importing import install_hint
from pagedkv.conformance.search import exhaustive, fuzz
from pagedkv.conformance.search.slices import Slice
from pagedkv.conformance.suite.run import Options, Run, run_of
from pagedkv.conformance.suite.text import broken_text, file_name, slug
from pagedkv.conformance.told import Told, properties
from pagedkv.spec import Misuse
from pagedkv.spec.trace import Trace, TraceError, load, sample, save

if TYPE_CHECKING:
    import pytest

__all__ = ["BlockManagerSuite", "Broken", "Check", "NotApplicable", "Options", "Run", "checks", "run_of"]

CHUNK: Final = 2_500
"""Random programs of one check. More make several checks, which can run beside each other."""

Measures: TypeAlias = Mapping[str, int]
"""What a check has done: traces, programs, operations, states, transitions, and what was put down to what is known."""


class Broken(AssertionError):
    """A check failed; the text is the report."""


class NotApplicable(Exception):
    """A check cannot be made on this subject; the text says why."""


class Check(NamedTuple):
    """One thing to hold a subject against."""

    name: str
    run: Callable[[], Measures]
    """Raises `Broken` or `NotApplicable`."""
    of: Told


def checks(run: Run) -> list[Check]:
    """The checks of a subject, in order.

    >>> [check.name for check in checks(run_of("reference"))][:3]
    ['sample_trace', 'corpus', 'programs']
    """
    found: dict[str, Callable[[], Measures]] = {}
    for each in run.known:
        found[f"known[{each.name}]"] = partial(_known, run, each)
    for path in run.traces:
        found[f"trace[{path.name}]"] = partial(_recorded, run, path)
    if all(getattr(run.capabilities, need) for need in sample().header.requires):
        found["sample_trace"] = partial(_held, run, sample(), "the sample trace of the specification")
    found["corpus"] = partial(_corpus, run)
    sizes = [min(CHUNK, run.budget.programs - start) for start in range(0, run.budget.programs, CHUNK)]
    for number, size in enumerate(sizes):
        place = f"[{number + 1} of {len(sizes)}]" if len(sizes) > 1 else ""
        name = f"programs{place}"
        found[name] = partial(_programs, run, name, run.seed + number, size)
    found["state_machine"] = partial(_machine, run)
    for part in exhaustive.slices_for(run.capabilities):
        found[f"exhaustive[{part.name}]"] = partial(_slice, run, part)
    return [Check(name, hold, run) for name, hold in found.items()]


def _known(run: Run, each: KnownFailure) -> Measures:
    if why := changed(each, run.factory):
        raise Broken(why)
    return {}


def _recorded(run: Run, path: Path) -> Measures:
    return _held(run, load(path), str(path), path)


def _held(run: Run, trace: Trace, what: str, path: Path | None = None) -> Measures:
    report = replay(trace, run.factory)
    if report.verdict == "not applicable":
        raise NotApplicable(f"{what} does not apply: {report.detail}")
    if report.verdict == "violation":
        known = None if path else _explained(run, trace)  # a trace that must hold is nobody's known failure
        if known is not None:
            return {"operations": report.operations, **_excused({known: 1})}
        raise Broken(broken_text(run, what, report, trace, path or _written(run, "sample", trace)))
    return {"operations": report.operations}


def _explained(run: Run, trace: Trace) -> str | None:
    """The known failure that the failing program of a trace is put down to."""
    failure = failure_of(trace, run.factory)
    return failure and run.excuse(failure)


def _corpus(run: Run) -> Measures:
    """All traces of the corpus that apply. Of those that fail and that no known failure explains the first is told."""
    excused, held = Counter[str](), Counter[str]()
    broken = dict[Path, ReplayReport]()
    for path, trace in corpus.traces().items():
        report = replay(trace, run.factory)
        known = _explained(run, trace) if report.verdict == "violation" else None
        if known is not None:
            excused[known] += 1
        elif report.verdict == "violation":
            broken[path] = report
        elif report.verdict == "holds":
            held["traces"] += 1
            held["operations"] += report.operations
    if broken:
        path, report = next(iter(broken.items()))
        others = "".join(f"\n  also fails: {other.name}" for other in [*broken][1:])
        where = f"the corpus, {counted(len(broken), 'failures')}\n{corpus.traces()[path].header.note}{others}"
        raise Broken(broken_text(run, where, report, corpus.traces()[path], path))
    if not held and not excused:
        raise NotApplicable("no trace of the corpus applies")
    return {**held, **_excused(excused)}


def _slice(run: Run, part: Slice) -> Measures:
    try:
        report = exhaustive.run(run.factory, part, seed=run.seed, excuse=run.excuse)
    except Misuse as misuse:
        raise NotApplicable(f"the subject does not have the pool of the slice {part.name}: {misuse}") from misuse
    if report.failure:
        shortest = minimise(run.factory, report.failure, excuse=run.excuse)
        visited = f"{counted(report.states, 'states')} and {counted(report.transitions, 'transitions')}"
        where = f"the slice {part.name}, after {visited}"
        raise _broken(run, where, f"exhaustive-{part.name}", shortest)
    return {"states": report.states, "transitions": report.transitions, **_excused(report.excused)}


def _programs(run: Run, name: str, seed: int, programs: int) -> Measures:
    try:
        report = fuzz.run(run.factory, seed=seed, programs=programs, steps=run.budget.steps, excuse=run.excuse)
    except Misuse as misuse:
        raise Broken(f"the subject has none of the pools of {counted(programs, 'programs')}: {misuse}") from misuse
    if found := report.violation:
        where = f"program {found.program + 1} of {programs}, seed {seed}"
        raise _broken(run, where, name, found.failure)
    if not report.holds:
        raise Broken(
            f"declared, but exercised by none of {counted(report.programs, 'programs')}:"
            f" {', '.join(report.not_exercised)}\n"
            "so nothing is known about it. Declare what is there, or let more programs run (--pagedkv-programs)"
        )
    return {"programs": report.programs, "operations": report.steps, **_excused(report.excused)}


def _machine(run: Run) -> Measures:
    try:
        from pagedkv.conformance.suite.machine import hold  # noqa: PLC0415  # the only one with Hypothesis
    except ModuleNotFoundError as error:
        raise NotApplicable(install_hint(error)) from error
    held = hold(run.factory, slug(run.name), run.budget, run.seed, run.excuse)
    if held.failure:
        where = "a program of Hypothesis, whose database has it now and tries it first from here on"
        raise _broken(run, where, "state_machine", held.failure)
    counts = held.counts
    return {"programs": len(counts.programs), "operations": counts.run, **_excused(held.excused)}


def _excused(excused: Mapping[str, int]) -> Measures:
    return {f"known {name}": count for name, count in excused.items()}


def _broken(run: Run, where: str, what: str, failure: Failure) -> Broken:
    """The report of a failing program, which is written to disk, and replayed to tell the line at which it fails."""
    trace = trace_of(failure)
    with attempting(limit_of(failure)):
        path, report = _written(run, what, trace), replay(trace, run.factory)
    if report.verdict != "violation":
        report = replace(report, law=failure.violation.law, detail=failure.violation.detail)
    where += f"; {failure.stopped}" if failure.stopped else ""
    return Broken(broken_text(run, where, report, trace, path))


def _written(run: Run, what: str, trace: Trace) -> Path | None:
    """A failing trace on disk; None, where it cannot be written: then there is the report. Its name is made of subject
    and check, so that the next run writes it anew."""
    path = run.out / f"{file_name(run.name, what)}.jsonl"
    with suppress(OSError, Misuse):
        path.parent.mkdir(parents=True, exist_ok=True)
        save(trace, path)
        return path
    return None


class BlockManagerSuite:
    """The checks as a test class for pytest; derive from it, and name the subject."""

    subject: ClassVar[Any]
    """What makes a subject from a `Config`: a class, a `staticmethod`, a method `subject(self, config)`, or a name."""
    options: ClassVar[Options] = Options()

    @classmethod
    def run_of_class(cls) -> Run:
        """The subject and options of this class."""
        subject, static = cls.subject, inspect.getattr_static(cls, "subject")
        if inspect.isfunction(static) and next(iter(inspect.signature(static).parameters), "") == "self":
            subject = cls().subject  # a method
        return run_of(subject, cls.options, name=subject if isinstance(subject, str) else cls.__name__)

    def pytest_generate_tests(self, metafunc: "pytest.Metafunc") -> None:
        """Make a test of each check."""
        import pytest  # noqa: PLC0415  # the checks themselves do without

        if "check" not in metafunc.fixturenames:
            return
        try:
            found = checks(type(self).run_of_class())
        except (Misuse, TraceError) as error:
            raise pytest.Collector.CollectError(str(error)) from error
        metafunc.parametrize("check", found, ids=[each.name for each in found])

    def test(self, check: Check, record_property: Callable[[str, object], None]) -> None:
        """One check. What it did is among the properties of the report."""
        import pytest  # noqa: PLC0415  # as above

        done: Measures = {}
        report = why = ""
        try:
            done = check.run()
        except Broken as broken:
            report = str(broken)
        except NotApplicable as not_applicable:
            why = str(not_applicable)
        for name, value in [*properties(check.of, {}), *properties(None, done)]:
            record_property(name, value)
        if report:  # not in the handler, where pytest would tell it twice
            pytest.fail(report, pytrace=False)
        if why:
            pytest.skip(why)
