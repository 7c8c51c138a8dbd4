"""Known failures: traces that must fail, each at a stated line with a stated law, until somebody repairs the cause.

They are pinned in a TOML file (`entries`), whose paths are relative to it:

    [[known]]
    trace = "known/write_into_a_shared_block.jsonl"
    line = 5                    # of the trace file; "end": it fails when the trace has ended, where all is freed
    law = "refusal is required when need > available"
    reason = "no copy-on-write before 2.0: https://…/issues/12"
    subject = "mine:Allocator"  # optional: of this subject only, by the name under which it is run

This is strict both ways: a pinned trace that holds, fails elsewhere or breaks another law is a failure of the run.
A random program is put down to a known failure (`Excuse`) if it breaks the same law *at the same kind of operation* and
*needs every kind of operation* that the pinned trace needs: with the operations of any one of these kinds left out, it
breaks the law no more. Then it is counted and passed over, so that others are found. A second fault that breaks the
same law by the same kinds of operations is passed over with it: what is pinned hides what is like it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pagedkv.conformance.differential.in_time import IN_TIME, attempting
from pagedkv.conformance.failures.entries import entries, entry_of
from pagedkv.conformance.failures.replay import ReplayReport, replay
from pagedkv.conformance.failures.shrinking import (
    LIMIT_OF_AN_ATTEMPT_S,
    Failure,
    attempt,
    failure_of,
    limit_of,
)
from pagedkv.conformance.failures.text import Program
from pagedkv.spec import Batch, Misuse, Operation
from pagedkv.spec.operations import rows_of
from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import Trace, TraceError, load as load_trace
from pagedkv.spec.trace_fields import NAMES

END: Final = "end"


@dataclass(frozen=True)
class KnownFailure:
    """A trace that must fail, where and how."""

    name: str
    """The file of the trace, as it is written in the TOML file."""
    trace: Trace
    line: int | None
    """The line of the trace file, its header being line 1; None: after the last."""
    law: str
    reason: str
    """Why it is let be, for people."""
    subject: str | None = None
    """The name of the one subject that it is about; None: of all."""


def load(path: str | Path) -> tuple[KnownFailure, ...]:
    """The known failures of block managers in a TOML file. What it should not have is `Misuse`, in a trace
    `TraceError`."""
    return tuple(_read(Path(path), where, entry) for where, entry in entries(path, "trace"))


def _read(file: Path, where: str, entry: Mapping[str, Any]) -> KnownFailure:
    line = entry["line"]
    if line != END and (type(line) is not int or line < 2):
        raise Misuse(f"{where}.line", line, f'the line of an operation, >= 2, or "{END}"')
    try:
        trace = load_trace(file.parent / entry["trace"])
    except (OSError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        raise Misuse(f"{where}.trace", entry["trace"], f"a file beside {file} ({error})") from error
    last = max((each.number for each in trace.lines), default=1)
    if line != END and line > last:
        raise Misuse(f"{where}.line", line, f'a line of {entry["trace"]}, which has {last}, or "{END}"')
    at = None if line == END else line
    return KnownFailure(entry["trace"], trace, at, entry["law"], entry["reason"], entry.get("subject"))


def entry_for(trace: str, line: int | None, law: str) -> str:
    """The lines that pin a failure, for whoever wants to."""
    return entry_of(trace=trace, line=line or END, law=law)


def changed(known: KnownFailure, factory: SubjectFactory) -> str | None:
    """Replay a known failure. None if it fails as pinned; else what became of it, and what to do."""
    report = replay(known.trace, factory)
    if report.verdict == "violation" and (report.at_line, report.law) == (known.line, known.law):
        return None
    if report.verdict == "holds":
        return (
            f"{known.name} is pinned as a known failure and holds now: remove its entry, and keep the trace among those"
            f" that must hold (--pagedkv-traces, or pagedkv replay)\n  it was let be because: {known.reason}"
        )
    if report.verdict == "not applicable":
        return f"{known.name} is pinned as a known failure and does not apply: {report.detail}. Remove its entry"
    return (
        f"{known.name} is pinned as a known failure and fails otherwise now\n"
        f"  pinned: line {known.line or END}: {known.law}\n"
        f"  now:    line {_line(report)}: {report.law}: {report.detail}\n"
        "Look at what changed; if it is the same cause, write the new line and law into its entry"
    )


def _line(report: ReplayReport) -> str:
    return str(report.at_line or END)


class Excuse:
    """Tells the known failure that a failing program is put down to, by its name: what runs programs passes over it.

    It costs one run of the program for each kind of operation that the pinned trace needs; nothing is made short.
    """

    def __init__(self, known: Sequence[KnownFailure], factory: SubjectFactory) -> None:
        self.factory = factory
        self.needed = {each.name: needed for each in known if (needed := self._needed(each))}

    def __call__(self, failure: Failure) -> str | None:
        for name, (pinned, kinds) in self.needed.items():
            if _alike(pinned, failure) and all(_needs(self.factory, failure, kind) for kind in kinds):
                return name
        return None

    def _needed(self, each: KnownFailure) -> tuple[Failure, list[str]] | None:
        """The pinned trace as it fails, and the kinds that it needs; None if it fails no more as it should."""
        with attempting(LIMIT_OF_AN_ATTEMPT_S if each.law == IN_TIME else None):  # it has hung for long enough
            return self._needed_in_time(each)

    def _needed_in_time(self, each: KnownFailure) -> tuple[Failure, list[str]] | None:
        failure = failure_of(each.trace, self.factory)
        if failure is None or changed(each, self.factory):
            return None
        kinds = sorted({kind for operation in failure.program for kind in _kinds(operation)} - {"admit"})
        return failure, [kind for kind in kinds if _needs(self.factory, failure, kind)]


def _alike(one: Failure, other: Failure) -> bool:
    """Whether two failures break the same law at the same kind of operation; of batches a row is enough."""
    kinds = [_kinds(failure.program[-1]) if failure.program else set[str]() for failure in (one, other)]
    return one.violation.law == other.violation.law and (kinds[0] == kinds[1] or bool(kinds[0] & kinds[1]))


def _needs(factory: SubjectFactory, failure: Failure, kind: str) -> bool:
    """Whether a program breaks its law no more when it has no operations of this kind. What every program ends with
    (all is freed) may still break it: that is beyond the program."""
    rest = without(failure.program, kind)
    if rest == failure.program:
        return False
    again = attempt(factory, failure.config, rest, limit_s=limit_of(failure))
    return again is None or again.violation.law != failure.violation.law or len(again.program) > len(rest)


def without(program: Program, kind: str) -> Program:
    """A program without the operations of one kind; rows of batches are operations, too.

    >>> from pagedkv.spec import Append, Free
    >>> without((Free("a"), Batch((Append("a", (2,)), Free("a")))), "free")
    (Batch(rows=(Append(request='a', tokens=(2,)),), step=None),)
    """
    kept: list[Operation] = []
    for operation in program:
        if isinstance(operation, Batch):
            rows = tuple(row for row in operation.rows if NAMES[type(row)] != kind)
            if rows:
                kept.append(replace(operation, rows=rows))
        elif NAMES[type(operation)] != kind:
            kept.append(operation)
    return tuple(kept)


def _kinds(operation: Operation) -> set[str]:
    rows = rows_of(operation)
    return {NAMES[type(row)] for row in rows}
