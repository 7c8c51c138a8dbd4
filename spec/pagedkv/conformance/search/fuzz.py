"""Random programs at speed: specification and subject side by side, without Hypothesis.

The programs are those of `machine`; here they are drawn from a seed, and what fails is made minimal by `shrinking`. A
run reports what it exercised, and a capability that was declared and never seen in action is a failure of the run,
unless the run was too short to expect it.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.shrinking import Excusing, Failure, finish, minimise, repeats, trace_of
from pagedkv.conformance.programs.choosing import Dice
from pagedkv.conformance.programs.counting import OUTCOMES, PLACES, Counts, exercised
from pagedkv.conformance.programs.generator import Programmer
from pagedkv.conformance.programs.plans import Plan, declared, draw_plan
from pagedkv.spec import Misuse, Operation
from pagedkv.spec.subject import Capabilities, SubjectFactory
from pagedkv.spec.trace import Trace

ENOUGH: Final = 12_000
"""Operations after which every declared capability has to have been exercised: 200 programs of the usual length. Half
of 500 runs on a subject that has everything needed 15 programs for it, the slowest 124."""


@dataclass(frozen=True)
class Found:
    """A violation, and the simplest program found for it."""

    failure: Failure
    program: int
    """The number of the program that met it, from 0."""
    repeats: bool = True
    """Whether it fails again. If not, the subject does not do the same every time."""

    @property
    def law(self) -> str:
        return self.failure.violation.law

    @property
    def detail(self) -> str:
        return self.failure.violation.detail

    @property
    def trace(self) -> Trace:
        return trace_of(self.failure)


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
    share_depths: Mapping[int, int]
    """Programs by the most owners that a block of theirs had."""
    fork_depths: Mapping[int, int]
    """Programs by their longest line of descent by forks."""
    exhausted: int
    """Programs in which something was refused because no block was left."""
    lengths: Mapping[str, Mapping[str, int]]
    """Lengths asked for, by kind of operation, then by length % block_size: "0", "1", "-1" (the last), "other"."""
    not_exercised: tuple[str, ...]
    """Capabilities that are declared and saw no event."""
    undeclared: tuple[str, ...]
    """Capabilities that were not tested, because the subject does not declare them."""
    seconds: float
    not_made: Mapping[str, int] = field(default_factory=dict)
    """Pools that the subject does not have, which are passed over, by what it said was misuse."""
    excused: Mapping[str, int] = field(default_factory=dict)
    """Programs that failed in a way that is known, by what is known (`known.Excuse`)."""
    violation: Found | None = None

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def enough(self) -> bool:
        """Whether so much was run that all that is declared is expected to have been exercised."""
        return self.steps >= ENOUGH

    @property
    def holds(self) -> bool:
        """No law was broken, and whatever is declared was exercised, if so much was run that it should have been."""
        return self.violation is None and not (self.not_exercised and self.enough)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        speed = round(self.steps_per_second, 1)
        values = {**vars(self), "steps_per_second": speed, "enough": self.enough, "holds": self.holds}
        if self.violation:
            found = self.violation
            values["violation"] = {name: getattr(found, name) for name in ("law", "detail", "program", "repeats")}
        return values


def run(
    factory: SubjectFactory,
    *,
    seed: int,
    programs: int = 200,
    steps: int = 60,
    minimal: bool = True,
    excuse: Excusing | None = None,
    progress: Callable[[int, int], None] | None = None,
    met: Callable[[Failure], None] | None = None,
) -> FuzzReport:
    """Run `programs` programs of `steps` operations each, and stop at the first violation.

    It is made minimal, unless told otherwise. A program that fails in a way that `excuse` knows (`known.Excuse`) is
    counted and passed over, and so is a pool that the subject does not have. `progress` is told after each program how
    many programs and operations are done, and `met` of a violation before it is made minimal. Raises `Misuse` if the
    subject has none of the pools.
    """
    for name, value in (("programs", programs), ("steps", steps)):
        if value < 1:
            raise Misuse(name, value, "an integer >= 1")
    capabilities = declared(factory)
    counts, start, excused, not_made, found = Counts(), time.perf_counter(), Counter[str](), Counter[str](), None
    for number in range(programs):
        dice = Dice(f"{seed}/{number}")
        plan = draw_plan(dice, capabilities)
        try:
            failure = _program(factory, dice, plan, steps, counts)
        except Misuse as misuse:  # no such pool
            not_made[misuse.argument] += 1
            if sum(not_made.values()) == programs:
                raise
            continue
        if failure and excuse and (known := excuse(failure)) is not None:
            excused[known] += 1
        elif failure:
            if met:
                met(failure)
            failure = minimise(factory, failure, excuse=excuse) if minimal else failure
            found = Found(failure, number, repeats(factory, failure))
            break
        if progress:
            progress(number + 1, counts.run)
    report = _summary(seed, counts, capabilities, time.perf_counter() - start)
    return replace(report, not_made=dict(not_made), excused=dict(excused), violation=found)


def _summary(seed: int, counts: Counts, capabilities: Capabilities, seconds: float) -> FuzzReport:
    idle, undeclared = exercised(capabilities, counts.events)
    events = counts.events
    return FuzzReport(
        seed=seed,
        programs=len(counts.programs),
        steps=counts.run,
        operations=_table(counts.operations, OUTCOMES),
        refusals=dict(sorted(counts.refusals.items())),
        copy_on_writes=events["copy_on_write"],
        preemptions=events["preempt_recompute"] + events["preempt_swap"],
        swaps=events["preempt_swap"],
        evictions=events["eviction"],
        hits=events["hit"],
        share_depth_max=max((program.share_depth for program in counts.programs), default=0),
        share_depths=_histogram(program.share_depth for program in counts.programs),
        fork_depths=_histogram(program.fork_depth for program in counts.programs),
        exhausted=sum(program.exhausted for program in counts.programs),
        lengths=_table(counts.lengths, PLACES),
        not_exercised=idle,
        undeclared=undeclared,
        seconds=seconds,
    )


def _table(counts: Mapping[tuple[str, str], int], columns: Sequence[str]) -> dict[str, dict[str, int]]:
    """Counts by pair, as rows with every column."""
    kinds = sorted({kind for kind, _ in counts})
    return {kind: {column: counts.get((kind, column), 0) for column in columns} for kind in kinds}


def _histogram(values: Iterable[int]) -> dict[int, int]:
    return dict(sorted(Counter(values).items()))


def _program(factory: SubjectFactory, dice: Dice, plan: Plan, steps: int, counts: Counts) -> Failure | None:
    """One program to its end, counted. Raises `Misuse` if the subject does not have this pool."""
    program: Sequence[Operation] = ()
    try:
        differential = Differential(factory, plan.config)
        program = differential.log
        programmer = Programmer(dice, plan, differential.capabilities)
        counts.begin()
        for _ in range(steps):
            before = differential.state
            operation = programmer.next(before)
            outcomes = differential.step(operation)
            counts.step(operation, outcomes, before, differential.state)
        finish(differential)
    except Violation as violation:
        return Failure(plan.config, tuple(program), violation)
    return None
