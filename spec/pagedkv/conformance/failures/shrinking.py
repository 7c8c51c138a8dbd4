"""Running a program that is given, and making one that fails minimal.

A failure is a pool, a program and the law that it breaks. `minimise` takes away what is not needed: operations in
chunks that halve, then one thing at a time, as `shrinking_steps` lists them (an operation, a row, a request, a token, a
block of the pool, an option, a name), until no single one can go.

What is kept is the *law*, not the place: a shorter program that breaks the same law earlier, or elsewhere, is taken as
the same fault, since the place moves with everything that is left out; where the subject raised something, it has to
raise the same type again, and where its process ended, to end in the same way. A program that breaks another law first
is not taken, even if it is shorter: what is reported is what was found. So of two faults that break one law the simpler
one is reported, and the other once that is repaired.

The same failure is always made minimal in the same way, as long as `attempts` and not the time are what ends it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.in_time import IN_TIME, attempting
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.steps import Cost, cost, single_steps
from pagedkv.conformance.failures.text import Program
from pagedkv.conformance.programs.generator import may_follow, waiting
from pagedkv.conformance.programs.plans import NEEDS
from pagedkv.spec import Admit, Commit, Config, Misuse, Operation, Preempt
from pagedkv.spec.operations import rows_of
from pagedkv.spec.subject import Capabilities, SubjectFactory
from pagedkv.spec.trace import Header, Line, Trace
from pagedkv.spec.trace_fields import NAMES

ATTEMPTS: Final = 6_000
"""Programs that `minimise` runs at most."""
BUDGET_S: Final = 30.0
"""Seconds that it takes at most."""
LIMIT_OF_AN_ATTEMPT_S: Final = 1.0
"""Seconds of computing that an operation of it may take: what fails otherwise may hang when it is shorter."""


CONFIRMED_S: Final = 10.0
"""Seconds that the operation of a minimal program has to hang for."""


class Failure(NamedTuple):
    """A pool, and a program whose last operation, or whose end, breaks a law on it."""

    config: Config
    program: Program
    violation: Violation
    stopped: str = ""
    """Why it may not be minimal."""


Excusing: TypeAlias = Callable[[Failure], str | None]
"""Tells the name under which a failure is known, and None if it is new. It is asked about more failures than are met:
whoever passes over one counts it."""


def finish(differential: Differential) -> None:
    """The end of a program: what is planned is computed, then the drain rule."""
    for request, length in waiting(differential.state).items():
        differential.step(Commit(request, length))
    differential.finish()


def attempt(
    factory: SubjectFactory, config: Config, program: Sequence[Operation], *, limit_s: float | None = None
) -> Failure | None:
    """Run a program to its end. None if all laws held, or if no engine would run it so, or not on this subject."""
    with attempting(limit_s):
        return _attempt(factory, config, program)


def _attempt(factory: SubjectFactory, config: Config, program: Sequence[Operation]) -> Failure | None:
    try:
        differential = Differential(factory, config)
    except Misuse:  # it does not have this pool
        return None
    except Violation as violation:
        return Failure(config, (), violation)
    if missing(config, program, differential.capabilities):
        return None
    try:
        for operation in program:
            if not may_follow(differential.state, operation):
                return None
            differential.step(operation)
        finish(differential)
    except Violation as violation:
        return Failure(config, tuple(differential.log), violation)
    return None


def minimise(
    factory: SubjectFactory, failure: Failure, *, attempts: int = ATTEMPTS, budget_s: float = BUDGET_S,
    excuse: Excusing | None = None,
) -> Failure:  # fmt: skip
    """A program that breaks the same law, and of which nothing can be left out or made simpler on its own.

    What `excuse` knows (`known.Excuse`) is another fault, and not taken. Stops early after `attempts` programs, or
    after `budget_s` seconds: then something may be left that could go.
    """
    return Shrinker(factory, failure, attempts, budget_s, excuse).minimal()


class Shrinker:
    """The simplest failure so far, and what has been tried: on some subjects an attempt is a process started."""

    def __init__(
        self, factory: SubjectFactory, failure: Failure, attempts: int, budget_s: float,
        excuse: Excusing | None = None,
    ) -> None:  # fmt: skip
        self.factory, self.failure, self.left, self.excuse = factory, failure, attempts, excuse
        self.met = failure
        self.until = time.perf_counter() + budget_s
        self.tried: set[tuple[Config, Program]] = set()

    def minimal(self) -> Failure:
        """Until nothing can go, or a budget is spent."""
        self.chunks()
        while self.round():
            pass
        failure = self._hanging() if self.failure.violation.law == IN_TIME else self.failure
        if failure.stopped or not self.exhausted():
            return failure
        spent = "time" if self.left > 0 else "programs"
        return failure._replace(stopped=f"not minimal: making it short was stopped, for want of {spent}")

    def _hanging(self) -> Failure:
        """The failure, given more time than an attempt; or if it is only slow then, the one that was met."""
        found = attempt(self.factory, *self.failure[:2], limit_s=CONFIRMED_S)
        if found is None or found.violation.law != IN_TIME:
            return self.met._replace(stopped="not minimal: shorter programs end within the limit")
        return self.failure._replace(violation=Violation(IN_TIME, self.met.violation.detail, found.violation.operation))

    def chunks(self) -> None:
        """Leave out half of the operations, quarters, and so on down to single ones, from the end backwards."""
        chunk = len(self.failure.program) // 2
        while chunk:
            start = len(self.failure.program) - chunk
            while start >= 0:
                config, program = self.failure[:2]
                self.simpler(config, program[:start] + program[start + chunk :])
                start = min(start, len(self.failure.program)) - chunk
            chunk //= 2

    def round(self) -> bool:
        """Try every single step once; whether any was taken. After one that was, go on at its place in the list."""
        place, taken = 0, False
        steps = self.steps(place)
        while (candidate := next(steps, None)) and not self.exhausted():
            if self.simpler(*candidate):
                taken, steps = True, self.steps(place)
            else:
                place += 1
        return taken

    def steps(self, place: int) -> Iterator[tuple[Config, Program]]:
        return islice(single_steps(self.failure.config, self.failure.program), place, None)

    def exhausted(self) -> bool:
        return self.left <= 0 or time.perf_counter() > self.until

    def simpler(self, config: Config, program: Program) -> bool:
        """Take a program if it is new, breaks the same law, and what ran of it is simpler."""
        if (config, program) in self.tried or self.exhausted():
            return False
        self.tried.add((config, program))
        self.left -= 1
        found = attempt(self.factory, config, program, limit_s=LIMIT_OF_AN_ATTEMPT_S)
        taken = (
            found is not None
            and is_simpler(found, self.failure)
            and (self.excuse is None or self.excuse(found) is None)
        )
        if found and taken:
            self.failure = found
        return taken


def is_simpler(one: Failure, other: Failure) -> bool:
    """Whether one is the same fault as the other and costs less. That a subject cannot be made is another fault."""
    return (
        fault(one.violation) == fault(other.violation)
        and bool(one.program) == bool(other.program)
        and cost_of(one) < cost_of(other)
    )


def repeats(factory: SubjectFactory, failure: Failure) -> bool:
    """Whether a failure comes back when its program runs again."""
    again = attempt(factory, failure.config, failure.program, limit_s=limit_of(failure))
    return again is not None and again.violation.law == failure.violation.law


def limit_of(failure: Failure) -> float | None:
    """How long an operation may take when a failure is run again: one that has hung is not waited for as long."""
    return LIMIT_OF_AN_ATTEMPT_S if failure.violation.law == IN_TIME else None


def fault(violation: Violation) -> tuple[str, str]:
    """What stays the same: the law, and the type of the exception or the end of the process that broke it."""
    return violation.law, violation.kind


def cost_of(failure: Failure) -> Cost:
    """How much there is to read in a failure."""
    return cost(failure.config, failure.program)


def required(config: Config, program: Sequence[Operation]) -> tuple[str, ...]:
    """The capabilities without which a program cannot be run."""
    everything = [*program, *(row for operation in program for row in rows_of(operation))]
    kinds = {NAMES[type(operation)] for operation in everything}
    needs = {need for kind in kinds - {"preempt", "resume"} for need in NEEDS.get(kind, "").split()}
    needs |= {"swap" if o.mode == "swap" else "preempt" for o in everything if isinstance(o, Preempt)}
    needs |= {"preempt"} if "resume" in kinds and not needs & {"preempt", "swap"} else set()
    needs |= {"reserve" for o in everything if isinstance(o, Admit) and o.reserve is not None}
    options = ("prefix_cache", "sliding_window", "sink_tokens", "overlapped_steps", "dedup")
    return tuple(sorted(needs | {name for name in options if getattr(config, name) not in (False, None)}))


def missing(config: Config, program: Sequence[Operation], can: Capabilities) -> list[str]:
    """What a program requires and a subject does not declare, but for options that most programs do not turn on."""
    needed = set(required(config, program)) - {"prefix_cache", "dedup"}
    if can.swap and not any(isinstance(o, Preempt) and o.mode != "swap" for o in program):
        needed -= {"preempt"}  # a resume is from swap, too
    return sorted(name for name in needed if not getattr(can, name, False))


def failure_of(trace: Trace, factory: SubjectFactory) -> Failure | None:
    """The program of a trace, run to its end without what the trace itself expects: the law that it breaks, if any."""
    return attempt(factory, trace.header.config(), [line.op for line in trace.lines])


def trace_of(failure: Failure) -> Trace:
    """The failing program as a trace that says what it breaks."""
    config, program, violation = failure[:3]
    header = Header.of(config, requires=required(config, program), note=f"{violation.law}: {violation.detail}")
    return Trace(header, tuple(Line(operation) for operation in program))
