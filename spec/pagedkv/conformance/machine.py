"""The Hypothesis state machine: random programs that shrink.

One rule draws the next operation, with the same choices as `fuzz`, and runs it on specification and subject. What
fails is written as a trace on every attempt, so the file that is left is the shortest program that Hypothesis found;
it replays without Hypothesis.
"""

from pathlib import Path
from typing import Any

from hypothesis import event, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pagedkv.conformance.counting import Counts
from pagedkv.conformance.driver import Differential, Violation
from pagedkv.conformance.plans import declared, draw_plan
from pagedkv.conformance.programs import Programmer
from pagedkv.conformance.shrinking import Failure, finish, trace_of
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
    out_dir = FAILURES
    counts: Counts
    """Of all programs of this class."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = False

    @initialize(chooser=choices(32))
    def plan(self, chooser: Bytes) -> None:
        """Draw a pool and what the program is about."""
        self.drawn = draw_plan(chooser, declared(type(self).factory))
        event(f"subset: {self.drawn.subset}")
        self.counts.subsets[self.drawn.subset] += 1
        self.differential = Differential(type(self).factory, self.drawn.config)

    @rule(chooser=choices(48))
    def step(self, chooser: Bytes) -> None:
        """Draw one operation and run it on both sides."""
        before = self.differential.state
        operation = Programmer(chooser, self.drawn, self.differential.capabilities).next(before)
        try:
            outcomes = self.differential.step(operation)
        except Violation as violation:
            raise self._written(violation) from violation
        self.counts.step(operation, outcomes, before, self.differential.state)

    def teardown(self) -> None:
        """The end of the program, with the drain rule."""
        if self.failed or not hasattr(self, "differential"):
            return
        try:
            finish(self.differential)
        except Violation as violation:
            raise self._written(violation) from violation

    def _written(self, violation: Violation) -> Violation:
        """The violation, with a note of where the program was written."""
        self.failed = True
        trace = trace_of(self.differential.config, Failure(tuple(self.differential.log), violation))
        path = self.out_dir / f"{type(self).__name__}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        save(trace, path)
        violation.add_note(f"The program is written to {path}; replay it with: pagedkv replay {path} --subject …")
        return violation


def machine_for(factory: SubjectFactory, name: str = "machine", out_dir: str | Path = FAILURES) -> type[Machine]:
    """A state machine for a subject. Run it with `run_state_machine_as_test`, or as the `TestCase` of a test module.

    A failing program is written to `out_dir`/`name`.jsonl.
    """
    members: dict[str, Any] = {"factory": staticmethod(factory), "out_dir": Path(out_dir), "counts": Counts()}
    return type(name, (Machine,), members)
