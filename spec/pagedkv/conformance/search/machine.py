"""The Hypothesis state machine: the programs of `fuzz`, drawn by Hypothesis.

One rule draws the next operation, with the same choices as `fuzz`, and runs it on specification and subject. The first
program that breaks a law is made short at once and written as a trace, which replays without Hypothesis. Where
Hypothesis is let shrink as well, the file always holds the shortest program so far; `hold` does not let it, since ours
takes a second and Hypothesis, which knows nothing of operations, minutes.
"""

import re
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.shrinking import Failure, finish, is_simpler, minimise, trace_of
from pagedkv.conformance.programs.counting import Counts
from pagedkv.conformance.programs.generator import Programmer
from pagedkv.conformance.programs.plans import declared, draw_plan
from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import save

FAILURES = Path("failures")


class Bytes:
    """Choices from a string of bytes, one each; when it has come to its end, the simplest. So Hypothesis draws once a
    step, which it does and shrinks quickly."""

    def __init__(self, data: bytes) -> None:
        self.data = iter(data)

    def integer(self, low: int, high: int) -> int:
        """An integer, both bounds included (of wide ranges only the low end is used)."""
        return low + next(self.data, 0) % (high - low + 1)


def choices(count: int) -> st.SearchStrategy[Bytes]:
    """At most `count` choices."""
    return st.binary(min_size=count, max_size=count).map(Bytes)


class Machine(RuleBasedStateMachine):
    """One program; `machine_for` makes a class for a subject."""

    factory: SubjectFactory
    out_dir: Path
    counts: Counts
    """Of all programs of this class."""
    shortest: dict[str, Failure]
    """By law, of all programs of this class."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = False

    @initialize(chooser=choices(40))
    def plan(self, chooser: Bytes) -> None:
        """Draw a pool and what the program is about."""
        self.drawn = draw_plan(chooser, declared(type(self).factory))
        event(f"subset: {self.drawn.subset}")
        self.counts.begin(self.drawn.subset)
        self.differential = Differential(type(self).factory, self.drawn.config)

    @rule(chooser=choices(48))
    def step(self, chooser: Bytes) -> None:
        """Draw one operation and run it on both sides."""
        before = self.differential.state
        operation = Programmer(chooser, self.drawn, self.differential.capabilities).next(before)
        try:
            outcomes = self.differential.step(operation)
        except Violation as violation:
            self.broke(violation)
            raise
        self.counts.step(operation, outcomes, before, self.differential.state)

    def teardown(self) -> None:
        """The end of the program, with the drain rule."""
        if self.failed or not hasattr(self, "differential"):
            return
        try:
            finish(self.differential)
        except Violation as violation:
            self.broke(violation)
            raise

    def broke(self, violation: Violation) -> None:
        """Write the shortest program so far, and note at the violation where it is."""
        self.failed = True
        law = violation.law
        slug = re.sub("[^a-z0-9]+", "-", law.lower()).strip("-")
        path = self.out_dir / f"{type(self).__name__}-{slug}.jsonl"
        failure = Failure(self.drawn.config, tuple(self.differential.log), violation)
        if law not in self.shortest:
            failure = minimise(type(self).factory, failure)
        if law not in self.shortest or is_simpler(failure, self.shortest[law]):
            self.shortest[law] = failure
            path.parent.mkdir(parents=True, exist_ok=True)
            save(trace_of(failure), path)
        violation.add_note(f"A short program is written to {path}; it replays with: pagedkv replay {path}")


def machine_for(factory: SubjectFactory, name: str = "machine", out_dir: str | Path = FAILURES) -> type[Machine]:
    """A state machine for a subject, for `run_state_machine_as_test`; its `TestCase` suits a test module.

    A failing program is written to `out_dir`, in a file that is named after the machine and the law.
    """
    members: dict[str, Any] = {"factory": staticmethod(factory), "out_dir": Path(out_dir)}
    return type(name, (Machine,), {**members, "counts": Counts(), "shortest": {}})


def hold(
    factory: SubjectFactory, name: str = "machine", *, programs: int = 100, steps: int = 50,
    out_dir: str | Path = FAILURES,
) -> Counts:  # fmt: skip
    """Hold a subject against the specification: raises `Violation`, or returns what was exercised."""
    machine = machine_for(factory, name, out_dir)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=programs,
            stateful_step_count=steps,
            deadline=None,
            report_multiple_bugs=False,
            database=None,  # the trace is what lasts
            phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
    return machine.counts
