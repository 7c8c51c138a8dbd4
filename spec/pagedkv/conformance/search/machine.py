"""The Hypothesis state machine: the programs of `fuzz`, drawn by Hypothesis.

One rule draws the next operation, with the same choices as `fuzz`, and runs it on specification and subject. A program
that breaks a law is made short at once, and the shortest so far is written as a trace, which replays without
Hypothesis. Under Hypothesis's own shrinking it only gets shorter; `suite.machine` does without, since ours takes a
second and Hypothesis, which knows nothing of operations, minutes.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.shrinking import Excusing, Failure, finish, is_simpler, minimise, trace_of
from pagedkv.conformance.programs.counting import Counts
from pagedkv.conformance.programs.generator import Programmer
from pagedkv.conformance.programs.plans import declared, draw_plan
from pagedkv.spec import Misuse
from pagedkv.spec.subject import Capabilities, SubjectFactory
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
    capabilities: Capabilities
    excuse: Excusing | None
    out_dir: Path | None
    counts: Counts
    """Of all programs of this class."""
    excused: Counter[str]
    """Programs that failed in a way that is known, by what is known."""
    shortest: dict[str, Failure]
    """By law, of all programs of this class, the first law first."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False
        """The program failed, or there is no such pool: what Hypothesis draws further is not run."""

    @initialize(chooser=choices(40))
    def plan(self, chooser: Bytes) -> None:
        """Draw a pool."""
        self.drawn = draw_plan(chooser, type(self).capabilities)
        try:
            self.differential = Differential(type(self).factory, self.drawn.config)
        except Misuse:  # the subject does not have this pool
            self.ended = True
        except Violation as violation:
            self._broke(Failure(self.drawn.config, (), violation))
        else:
            self.counts.begin()

    @rule(chooser=choices(48))
    def step(self, chooser: Bytes) -> None:
        """Draw one operation and run it on both sides."""
        if self.ended:
            return
        before = self.differential.state
        operation = Programmer(chooser, self.drawn, self.differential.capabilities).next(before)
        try:
            outcomes = self.differential.step(operation)
        except Violation as violation:
            self._broke(Failure(self.drawn.config, tuple(self.differential.log), violation))
        else:
            self.counts.step(operation, outcomes, before, self.differential.state)

    def teardown(self) -> None:
        """The end of the program, with the drain rule."""
        if self.ended or not hasattr(self, "differential"):
            return
        try:
            finish(self.differential)
        except Violation as violation:
            self._broke(Failure(self.drawn.config, tuple(self.differential.log), violation))

    def _broke(self, failure: Failure) -> None:
        """Raise the violation, unless it is known, with a note of where its shortest program so far is written."""
        self.ended = True
        violation, law, found = failure.violation, failure.violation.law, type(self).shortest
        excuse = type(self).excuse
        if excuse and (known := excuse(failure)) is not None:
            self.excused[known] += 1
            return
        if law not in found:
            failure = minimise(type(self).factory, failure, excuse=excuse)
        if law not in found or is_simpler(failure, found[law]):
            found[law] = failure
        if self.out_dir is not None:
            path = self.out_dir / f"{type(self).__name__}-{re.sub('[^a-z0-9]+', '-', law.lower()).strip('-')}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            save(trace_of(found[law]), path)
            violation.add_note(f"A short program is written to {path}; it replays with: pagedkv replay {path}")
        raise violation


def machine_for(
    factory: SubjectFactory, name: str = "machine", out_dir: str | Path | None = FAILURES,
    excuse: Excusing | None = None,
) -> type[Machine]:  # fmt: skip
    """A state machine for a subject, for `run_state_machine_as_test`; its `TestCase` suits a test module.

    A failing program is written to `out_dir`, unless that is None, in a file that is named after the machine and the
    law. Programs that fail in a way that `excuse` knows (`known.Excuse`) are passed over.
    """
    members: dict[str, Any] = {
        "factory": staticmethod(factory),
        "capabilities": declared(factory),
        "excuse": staticmethod(excuse) if excuse else None,
        "out_dir": None if out_dir is None else Path(out_dir),
        "counts": Counts(),
        "excused": Counter(),
        "shortest": {},
    }
    return type(name, (Machine,), members)
