"""Running a program that is given, and making one that fails short.

The shorter program must break the same law, so that what is reported is what was found. Operations are dropped in
chunks that halve, then rows of batches, then tokens; there is no other cleverness, and none is needed for a program of
a few dozen operations.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from pagedkv.conformance.driver import Differential, Violation
from pagedkv.conformance.programs import may_follow, waiting
from pagedkv.spec import (
    Admit, Append, Batch, BeginStep, Commit, Config, Evict, Fork, Lookup, Operation, Permute, Pin, Preempt, Reserve,
    ResetPrefixIndex, Truncate, Unpin,
)  # fmt: skip
from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import Header, Line, Trace

Program: TypeAlias = tuple[Operation, ...]


class Failure(NamedTuple):
    """A program whose last operation, or whose end, breaks a law."""

    program: Program
    violation: Violation


def finish(differential: Differential) -> None:
    """The end of a program: what is planned is computed, then the drain rule."""
    for request, length in waiting(differential.state).items():
        differential.step(Commit(request, length))
    differential.finish()


def attempt(factory: SubjectFactory, config: Config, program: Sequence[Operation]) -> Failure | None:
    """Run a program to its end. None if all laws held, or if no engine would run it so."""
    differential = Differential(factory, config)
    try:
        for operation in program:
            if not may_follow(differential.state, operation):
                return None
            differential.step(operation)
        finish(differential)
    except Violation as violation:
        return Failure(tuple(differential.log), violation)
    return None


def size(program: Program) -> tuple[int, int]:
    """Operations, a batch being one more than its rows, and tokens."""
    batches = [operation for operation in program if isinstance(operation, Batch)]
    rows = [*(row for batch in batches for row in batch.rows), *program]
    return len(rows), sum(len(getattr(row, "tokens", ())) for row in rows)


def minimise(factory: SubjectFactory, config: Config, failure: Failure, *, budget_s: float = 20.0) -> Failure:
    """A program, no longer than the one given, that breaks the same law. Stops after `budget_s` seconds."""
    until = time.perf_counter() + budget_s

    def better(candidate: Program) -> Failure | None:
        found = attempt(factory, config, candidate) if time.perf_counter() < until else None
        same = found and found.violation.law == failure.violation.law
        return found if found and same and size(found.program) < size(failure.program) else None

    previous = None
    while failure is not previous:
        previous = failure
        chunk = max(1, len(failure.program) // 2)
        while chunk:
            start = len(failure.program) - chunk
            while start >= 0:
                failure = better(failure.program[:start] + failure.program[start + chunk :]) or failure
                start = min(start, len(failure.program)) - chunk
            chunk //= 2
        while found := next(filter(None, map(better, _simplified(failure.program))), None):
            failure = found
    return failure


def _simplified(program: Program) -> Iterator[Program]:
    for i, operation in enumerate(program):
        for simpler in _simpler(operation):
            yield (*program[:i], simpler, *program[i + 1 :])


def _simpler(operation: Operation) -> Iterator[Operation]:
    match operation:
        case Batch(rows):
            yield from rows
            yield from (Batch(rows[:i] + rows[i + 1 :]) for i in range(len(rows)) if len(rows) > 2)
            for i, row in enumerate(rows):
                less: Iterator[Any] = _simpler(row)
                yield from (Batch((*rows[:i], simpler, *rows[i + 1 :])) for simpler in less)
        case Admit(_, tokens) | Append(_, tokens) | Lookup(tokens) | Pin(tokens):
            fewer = (tokens[: len(tokens) // 2], tokens[:-1]) if len(tokens) > 1 else ()
            yield from (replace(operation, tokens=less) for less in dict.fromkeys(fewer))


_REQUIRED: Final[tuple[tuple[type, str], ...]] = (
    (Fork, "fork"), (Truncate, "truncate"), (Reserve, "reserve"), (Lookup, "lookup"), (Pin, "pins"), (Unpin, "pins"),
    (Evict, "evict"), (ResetPrefixIndex, "evict"), (Permute, "permute"), (Batch, "batch"),
    (BeginStep, "overlapped_steps"),
)  # fmt: skip


def required(config: Config, program: Sequence[Operation]) -> tuple[str, ...]:
    """The capabilities without which a program cannot be run."""
    rows = [row for operation in program if isinstance(operation, Batch) for row in operation.rows]
    everything = [*program, *rows]
    needs = {name for operation in everything for kind, name in _REQUIRED if isinstance(operation, kind)}
    needs |= {"swap" if o.mode == "swap" else "preempt" for o in everything if isinstance(o, Preempt)}
    needs |= {"reserve" for o in everything if isinstance(o, Admit) and o.reserve is not None}
    options = ("prefix_cache", "sliding_window", "sink_tokens", "overlapped_steps", "dedup")
    return tuple(sorted(needs | {name for name in options if getattr(config, name) not in (False, None)}))


def trace_of(config: Config, failure: Failure) -> Trace:
    """The failing program as a trace that says what it breaks."""
    note = f"{failure.violation.law}: {failure.violation.detail}"
    header = Header.of(config, requires=required(config, failure.program), note=note)
    return Trace(header, tuple(Line(operation) for operation in failure.program))
