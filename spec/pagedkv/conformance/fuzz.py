"""Random programs at speed: specification and subject side by side, without Hypothesis.

The programs are those of `machine`; here they are drawn from a seed, and what fails is made short by `shrinking`. A run
reports what it exercised, and a capability that was declared and never seen in action is a failure of the run.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagedkv.conformance.choosing import Dice
from pagedkv.conformance.counting import OUTCOMES, Counts, exercised
from pagedkv.conformance.driver import Differential, Violation
from pagedkv.conformance.plans import declared, draw_plan
from pagedkv.conformance.programs import Programmer
from pagedkv.conformance.shrinking import Failure, finish, minimise, trace_of
from pagedkv.spec import Config, Misuse
from pagedkv.spec.subject import Capabilities, SubjectFactory
from pagedkv.spec.trace import Trace, save


@dataclass(frozen=True)
class Found:
    """A violation, and the shortest program found for it."""

    law: str
    detail: str
    program: int
    """The number of the program that met it, from 0."""
    trace: Trace
    path: str | None = None
    """Where the trace was written."""


@dataclass(frozen=True)
class FuzzReport:
    """What was run, what was exercised, and the violation that ended it, if any."""

    seed: int
    programs: int
    steps: int
    operations: Mapping[str, Mapping[str, int]]
    """By kind, then by outcome: "ok", "refused", "misuse"."""
    refusals: Mapping[str, int]
    """By reason."""
    copy_on_writes: int
    preemptions: int
    swaps: int
    """Preemptions by swap, of those."""
    evictions: int
    hits: int
    """Admissions that found a prefix."""
    share_depth_max: int
    subsets: Mapping[str, int]
    """Programs by what they were about."""
    not_exercised: tuple[str, ...]
    """Capabilities that are declared and saw no event."""
    undeclared: tuple[str, ...]
    """Capabilities that were not tested, because the subject does not declare them."""
    seconds: float
    violation: Found | None = None

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def holds(self) -> bool:
        """No law was broken, and whatever is declared was exercised."""
        return self.violation is None and not self.not_exercised

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        values = {**vars(self), "steps_per_second": round(self.steps_per_second, 1), "holds": self.holds}
        if self.violation:
            values["violation"] = {name: value for name, value in vars(self.violation).items() if name != "trace"}
        return values


def run(
    factory: SubjectFactory,
    *,
    seed: int,
    programs: int = 200,
    steps: int = 60,
    out_dir: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FuzzReport:
    """Run `programs` programs of `steps` operations each, and stop at the first violation.

    A violation is made short and, with `out_dir`, written there as a trace. `progress` is told after each program how
    many programs and operations are done.
    """
    for name, value in (("programs", programs), ("steps", steps)):
        if value < 1:
            raise Misuse(name, value, "an integer >= 1")
    capabilities = declared(factory)
    counts, start, done, found = Counts(), time.perf_counter(), 0, None
    for number in range(programs):
        dice = Dice(f"{seed}/{number}")
        plan = draw_plan(dice, capabilities)
        counts.subsets[plan.subset] += 1
        differential = Differential(factory, plan.config)
        failure = _program(Programmer(dice, plan, differential.capabilities), differential, steps, counts)
        done += len(failure.program if failure else differential.log)
        if failure:
            found = _report(factory, plan.config, failure, number, out_dir, f"fuzz-{seed}-{number}")
            break
        if progress:
            progress(number + 1, done)
    return _summary(seed, counts, done, capabilities, time.perf_counter() - start, found)


def _summary(
    seed: int, counts: Counts, steps: int, capabilities: Capabilities, seconds: float, found: Found | None
) -> FuzzReport:
    operations: dict[str, dict[str, int]] = {}
    for (kind, outcome), count in sorted(counts.operations.items()):
        operations.setdefault(kind, dict.fromkeys(OUTCOMES, 0))[outcome] = count
    idle, undeclared = exercised(capabilities, counts.events)
    events = counts.events
    return FuzzReport(
        seed=seed,
        programs=counts.subsets.total(),
        steps=steps,
        operations=operations,
        refusals=dict(sorted(counts.refusals.items())),
        copy_on_writes=events["copy_on_write"],
        preemptions=events["preempt_recompute"] + events["preempt_swap"],
        swaps=events["preempt_swap"],
        evictions=events["eviction"],
        hits=events["hit"],
        share_depth_max=counts.share_depth_max,
        subsets=dict(sorted(counts.subsets.items())),
        not_exercised=idle,
        undeclared=undeclared,
        seconds=seconds,
        violation=found,
    )


def _program(programmer: Programmer, differential: Differential, steps: int, counts: Counts) -> Failure | None:
    """One program to its end, counted."""
    try:
        for _ in range(steps):
            before = differential.state
            operation = programmer.next(before)
            outcomes = differential.step(operation)
            counts.step(operation, outcomes, before, differential.state)
        finish(differential)
    except Violation as violation:
        return Failure(tuple(differential.log), violation)
    return None


def _report(
    factory: SubjectFactory, config: Config, failure: Failure, number: int, out_dir: str | Path | None, name: str
) -> Found:
    shortest = minimise(factory, config, failure)
    trace, path = trace_of(config, shortest), None
    if out_dir is not None:
        path = Path(out_dir) / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        save(trace, path)
    violation = shortest.violation
    return Found(violation.law, violation.detail, number, trace, None if path is None else str(path))
