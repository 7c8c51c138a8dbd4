"""Draw a trace: block tables and pool after each operation, changes marked with a star.

The trace runs on the specification itself, so what is drawn is what the operations mean; where a block has to be
evicted, it is the longest idle. With --subject it runs on a subject, too: the blocks are those that the subject chose,
and it ends at the first operation that breaks a law, with what the subject did above what the specification answers.
Exit code 1 if a law is broken, or if the trace expects something else than the specification answers.

    length, reserved, computed   positions known, with a slot, with their KV written
    3[##o.]                      block 3 of a table: # computed, o to be computed, . empty slot
    pool                         references of a block, i in the prefix index, h held, . free

Of a long trace only the lines around the first one that is not as expected are drawn, unless --lines says which.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pagedkv.cli.beside import Beside
from pagedkv.cli.drawing import Paint, bold, draw, operation_text, outcome_text, plain
from pagedkv.cli.inputs import aside, print_json, read_trace, subject_factory
from pagedkv.conformance.counted import counted
from pagedkv.spec import (
    HOLE, Batch, Block, Choices, Misuse, Operation, Outcome, RequestId, State, apply, available,
)  # fmt: skip
from pagedkv.spec.blocks import available_in_order, is_available
from pagedkv.spec.expectation import observed
from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import Line, Trace, mismatches

Answer: TypeAlias = tuple[Outcome, ...] | Misuse

HELP = "draw block tables and pool after each operation of a trace"

LONG: Final = 100
"""Operations of a trace that is not drawn whole without being asked."""
BEFORE: Final = 20
"""Operations that are drawn of it before the one that matters."""
THE_END: Final = "the end, where what is planned is computed and all is freed"
LINES: Final = re.compile(r"(\d*)(-?)(\d*)")


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("trace", metavar="TRACE", help="a trace file")
    parser.add_argument(
        "--lines", type=lines, metavar="A-B",
        help=f"lines of the file to draw, as 7, 7-12, 7- or -12 (default: all of up to {LONG} operations)",
    )  # fmt: skip
    parser.add_argument("--subject", metavar="NAME", help="run it on this subject as well, as replay does")
    parser.add_argument(
        "--limit-s", type=float, metavar="SECONDS", help="that an operation may take, of a subject in its own process"
    )
    parser.add_argument("--json", action="store_true", help="the states as JSON")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="auto: on a terminal")


def lines(text: str) -> tuple[int, float]:
    """The first and the last line that are meant.

    >>> lines("7-12"), lines("7"), lines("7-"), lines("-12")
    ((7, 12), (7, 7), (7, inf), (0, 12))
    """
    found = LINES.fullmatch(text)
    if not found or not (found[1] or found[3]):
        raise ValueError
    first, last = int(found[1] or 0), int(found[3]) if found[3] else float("inf") if found[2] else int(found[1])
    if last < first:
        raise ValueError
    return first, last


lines.__name__ = "range of lines, A-B"  # argparse shows the name in its message


def run(arguments: argparse.Namespace) -> int:
    """The verb."""
    trace = read_trace(arguments.trace)
    if arguments.subject is None:
        steps = list(explain(trace))
    else:
        factory = subject_factory(arguments.subject, limit_s=arguments.limit_s)
        with aside():
            steps = list(explain(trace, factory))
    wrong = any(step.wrong or step.violated for step in steps)
    if arguments.json:
        shown = steps if arguments.lines is None else within(steps, *arguments.lines)
        print_json({"trace": arguments.trace, "holds": not wrong, "steps": [step.as_json() for step in shown]})
    else:
        _draw(arguments, trace, steps)
    return int(wrong)


def _draw(arguments: argparse.Namespace, trace: Trace, steps: Sequence["Step"]) -> None:
    on_terminal = arguments.color == "always" or (arguments.color == "auto" and sys.stdout.isatty())
    header = trace.header
    blocks, operations = counted(header.num_blocks, "blocks"), counted(len(steps), "operations")
    print(f"{arguments.trace}: {blocks} of {header.block_size}, {operations}")
    if header.note:
        print(header.note)
    shown, why = chosen(steps, arguments.lines)
    if why:
        print(why)
    for step in shown:
        print("\n".join(["", *step.lines(bold if on_terminal else plain)]))


def chosen(steps: Sequence["Step"], asked: tuple[int, float] | None) -> tuple[Sequence["Step"], str]:
    """The steps to draw, and what is to be said if they are not all."""
    wrong = [place for place, step in enumerate(steps) if step.wrong or step.violated]
    of_all = ""
    if wrong:
        is_or_are = "is" if len(wrong) == 1 else "are"
        of_all = f"{len(wrong)} of {counted(len(steps), 'operations')} {is_or_are} not as expected"
    if asked:
        drawn = within(steps, *asked)
        return drawn, of_all if drawn else f"no operation is in those lines{f'; {of_all}' if of_all else ''}"
    if len(steps) <= LONG:
        return steps, ""
    end = wrong[0] if wrong else len(steps) - 1
    shown = steps[max(0, end - BEFORE) : end + 1]
    which = f"{of_all}: the first one, and what" if wrong else "all is as expected: the last one, and what"
    return (
        shown,
        f"{which} is before it (lines {_place(shown[0])} to {_place(shown[-1])}; --lines 2- draws all)",
    )


def _place(step: "Step") -> str:
    return str(step.line.number) if step.line else "the end"


def within(steps: Sequence["Step"], first: int, last: float) -> Sequence["Step"]:
    """Those of some lines of the file."""
    return [step for step in steps if step.line is None or first <= step.line.number <= last]


@dataclass(frozen=True)
class Step:
    """One operation of a trace on the specification."""

    line: Line | None
    """None: the end, where what is planned is computed and all is freed."""
    before: State
    after: State
    outcomes: tuple[Outcome | Misuse, ...]
    wrong: list[str] = field(default_factory=list)
    """Expectations of the trace that are not met."""
    violated: str = ""
    """The law that the subject breaks here, and how."""
    did: tuple[str, ...] = ()
    """Then, what the subject answered and showed."""

    def lines(self, paint: Paint) -> Iterator[str]:
        """What is drawn."""
        if self.line is None:
            yield paint(f"{THE_END}:")
            yield from self._violation(paint)
            return
        op = self.line.op
        time = f" at {self.line.t:g} s" if self.line.t is not None else ""
        if isinstance(op, Batch) and len(self.outcomes) == len(op.rows):
            yield paint(f"{self.line.number}{time}: {operation_text(op)}")
            for row, outcome in zip(op.rows, self.outcomes, strict=True):
                yield f"     {operation_text(row)} -> {outcome_text(outcome)}"
        else:
            yield paint(f"{self.line.number}{time}: {operation_text(op)} -> {outcome_text(self.outcomes[0])}")
        for problem in self.wrong:
            yield paint(f"     NOT AS EXPECTED {problem}")
        yield from self._violation(paint)
        yield from ("  " + line for line in draw(self.before, self.after, paint))

    def _violation(self, paint: Paint) -> Iterator[str]:
        if self.violated:
            yield paint(f"     VIOLATED {self.violated}")
            yield from (f"     the subject {what}" for what in self.did)

    def as_json(self) -> dict[str, Any]:
        """Tables, pool and outcome as plain values."""
        tables = {str(name): list(r.table) for name, r in self.after.requests.items() if r.residency == "resident"}
        return {
            "line": self.line and self.line.number,
            "operation": operation_text(self.line.op) if self.line else THE_END,
            "outcomes": [outcome_text(outcome) for outcome in self.outcomes],
            "not_as_expected": self.wrong,
            "changed_requests": changed_requests(self.before, self.after),
            "tables": tables,
            "hole": HOLE,
            "references": {str(block): count for block, count in sorted(self.after.references.items())},
            "indexed": sorted(self.after.entries),
            "held": sorted(self.after.held),
            "available_blocks": available(self.after),
            **({"violated": self.violated, "subject": list(self.did)} if self.violated else {}),
        }


def changed_requests(before: State, after: State) -> list[str]:
    """Requests that an operation made, changed or removed."""
    names = dict.fromkeys([*before.requests, *after.requests])
    return [str(name) for name in names if before.requests.get(name) != after.requests.get(name)]


def explain(trace: Trace, factory: SubjectFactory | None = None) -> Iterator[Step]:
    """Run a trace on the specification, and up to the first violation on a subject, if there is one. Raises `BadInput`
    if the trace does not apply to it."""
    beside = Beside(trace, factory) if factory else None
    state, policy = State(trace.header.config()), beside.policy if beside else "lru"
    for line in trace.lines:
        before = state
        violation = beside.step(line.op) if beside else None
        if beside and violation is None:  # with what the subject chose
            state, said_by_all = beside.state, beside.outcomes
        else:
            state, said_by_all = _specified(state, line.op)
        outcomes = (said_by_all,) if isinstance(said_by_all, Misuse) else said_by_all
        said = observed(line.op, said_by_all, state)
        expects = [line.expect, *([more] if (more := line.expect_policy.get(policy)) else [])]
        wrong = [problem for expect in expects for problem in mismatches(expect, said)]
        if beside and violation:
            yield Step(line, before, state, outcomes, wrong, f"{violation.law}: {violation.detail}", beside.did())
            return
        yield Step(line, before, state, outcomes, wrong)
    if beside and (violation := beside.end()):
        yield Step(None, state, beside.state, (), [], f"{violation.law}: {violation.detail}", beside.did())


def _specified(state: State, operation: Operation) -> tuple[State, Answer]:
    try:
        run = apply(state, operation, LONGEST_IDLE)
    except Misuse as misuse:
        return state, misuse
    return run.state, run.outcomes


def _free_or_longest_idle(state: State, request: RequestId, logical: int) -> Block:
    first = next(available_in_order(state))
    if first not in state.entries:
        return first
    return next(block for block in state.idle_since if is_available(state, block))


LONGEST_IDLE: Final = Choices(block=_free_or_longest_idle, victims=lambda state, count: list(state.idle_since)[:count])
"""What a cache of the policy "lru" does: of one such the trace may expect more (`expect_policy`)."""
