"""Replaying a trace on a subject: no Hypothesis, no pytest, no chance.

The subject is held against the specification as in every other run, and against what the trace itself expects. When
the trace has ended, so does the program: what was planned is computed, and the drain rule is checked.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.shrinking import finish, missing
from pagedkv.spec import Config, Misuse, Outcome
from pagedkv.spec.expectation import observed
from pagedkv.spec.subject import Capabilities, SubjectFactory
from pagedkv.spec.trace import Line, Trace, mismatches

Verdict: TypeAlias = Literal["holds", "violation", "not applicable"]

AT_THE_END = "at the end of the trace"


@dataclass(frozen=True)
class ReplayReport:
    """What became of a trace."""

    verdict: Verdict
    operations: int = 0
    """How many were run, a batch being one."""
    seconds: float = 0.0
    at_line: int | None = None
    """The line of the file (from 1, the header's), or of the program, with the violation; None: after the last."""
    law: str = ""
    detail: str = ""
    """Of a violation; of "not applicable", why."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return dict(vars(self))


def replay(trace: Trace, factory: SubjectFactory, *, touched_only: bool = False) -> ReplayReport:
    """Run a trace on a fresh subject, up to the first violation.

    `touched_only` compares after an operation what it touched, and the whole state at the end: for long workloads.
    """
    config, start = trace.header.config(), time.perf_counter()
    operations, at_line, ended = 0, None, False

    def report(verdict: Verdict, law: str = "", detail: str = "") -> ReplayReport:
        return ReplayReport(verdict, operations, time.perf_counter() - start, at_line, law, detail)

    try:
        differential = Differential(factory, config, touched_only=touched_only)
        if why := not_applicable(trace, differential.capabilities, config):
            return ReplayReport("not applicable", detail=why)
        for number, line in enumerate(trace.lines, start=2):
            at_line = line.number or number
            operations += 1
            outcomes = differential.step(line.op)
            if wrong := _unexpected(line, outcomes, differential):
                return report("violation", "the trace's expectation", "; ".join(wrong))
        at_line, ended = None, True
        differential.check_all()
        finish(differential)
    except Violation as violation:
        where = f"{AT_THE_END}: " if ended else ""
        return report("violation", violation.law, where + violation.detail)
    except Misuse as misuse:
        return ReplayReport("not applicable", detail=f"the subject cannot be made with the pool of the trace: {misuse}")
    return report("holds")


def not_applicable(trace: Trace, can: Capabilities, config: Config) -> str:
    """Why a subject cannot run the trace; empty if it can."""
    lacks = {*missing(config, [line.op for line in trace.lines], can)}
    lacks |= {name for name in trace.header.requires if not getattr(can, name, False)}
    if lacks:
        return f"the subject does not declare {', '.join(sorted(lacks))}"
    for option in ("publish", "dedup"):
        if getattr(config, option) != getattr(can, option):
            return f"{option} is {getattr(config, option)!r}, the subject has {getattr(can, option)!r}"
    return ""


def _unexpected(line: Line, outcomes: Sequence[Outcome] | Misuse, differential: Differential) -> list[str]:
    """Where the subject's behaviour, which is the specification's by now, is not what the trace expects."""
    policy = line.expect_policy.get(differential.capabilities.policy)
    expects = [line.expect, *([policy] if policy else [])]
    said = observed(line.op, outcomes, differential.state)
    return [problem for expect in expects for problem in mismatches(expect, said)]
