"""Draw a trace: block tables and pool after each operation, changes marked with a star.

The trace runs on the specification itself, so what is drawn is what the operations mean. Exit code 1 if the trace
expects something else than the specification answers.

    length, reserved, computed   positions known, with a slot, with their KV written
    3[##o.]                      block 3 of a table: # computed, o to be computed, . empty slot
    pool                         references of a block, i in the prefix index, h held, . free
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pagedkv.cli.drawing import Paint, bold, draw, operation_text, outcome_text, plain
from pagedkv.cli.inputs import print_json, read_trace
from pagedkv.spec import HOLE, Batch, Misuse, Ok, Outcome, Refused, State, apply, available
from pagedkv.spec.trace import Line, Trace, mismatches

HELP = "draw block tables and pool after each operation of a trace"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("trace", metavar="TRACE", help="a trace file")
    parser.add_argument("--json", action="store_true", help="the states as JSON")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="auto: on a terminal")


def run(arguments: argparse.Namespace) -> int:
    """The verb."""
    trace = read_trace(arguments.trace)
    steps = list(explain(trace))
    wrong = sum(bool(step.wrong) for step in steps)
    if arguments.json:
        print_json({"trace": arguments.trace, "holds": not wrong, "steps": [step.as_json() for step in steps]})
        return int(wrong > 0)
    on_terminal = arguments.color == "always" or (arguments.color == "auto" and sys.stdout.isatty())
    header = trace.header
    print(f"{arguments.trace}: {header.num_blocks} blocks of {header.block_size}, {len(steps)} operations")
    if header.note:
        print(header.note)
    for step in steps:
        print("\n".join(["", *step.lines(bold if on_terminal else plain)]))
    return int(wrong > 0)


@dataclass(frozen=True)
class Step:
    """One operation of a trace on the specification."""

    line: Line
    before: State
    after: State
    outcomes: tuple[Outcome | Misuse, ...]
    wrong: list[str] = field(default_factory=list)
    """Expectations of the trace that are not met."""

    def lines(self, paint: Paint) -> Iterator[str]:
        """What is drawn."""
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
        yield from ("  " + line for line in draw(self.before, self.after, paint))

    def as_json(self) -> dict[str, Any]:
        """Tables, pool and outcome as plain values."""
        tables = {str(name): list(r.table) for name, r in self.after.requests.items() if r.residency == "resident"}
        return {
            "line": self.line.number,
            "operation": operation_text(self.line.op),
            "outcomes": [outcome_text(outcome) for outcome in self.outcomes],
            "not_as_expected": self.wrong,
            "changed_requests": changed_requests(self.before, self.after),
            "tables": tables,
            "hole": HOLE,
            "references": {str(block): count for block, count in sorted(self.after.references.items())},
            "indexed": sorted(self.after.entries),
            "held": sorted(self.after.held),
            "available_blocks": available(self.after),
        }


def changed_requests(before: State, after: State) -> list[str]:
    """Requests that an operation made, changed or removed."""
    names = dict.fromkeys([*before.requests, *after.requests])
    return [str(name) for name in names if before.requests.get(name) != after.requests.get(name)]


def explain(trace: Trace) -> Iterator[Step]:
    """Run a trace on the specification."""
    state = State(trace.header.config())
    for line in trace.lines:
        before, outcomes = state, tuple[Outcome | Misuse, ...]()
        try:
            state, outcomes = apply(state, line.op)
        except Misuse as misuse:
            outcomes = (misuse,)
        yield Step(line, before, state, outcomes, mismatches(line.expect, _observed(line, state, outcomes)))


def _observed(line: Line, state: State, outcomes: tuple[Outcome | Misuse, ...]) -> dict[str, object]:
    """What an expectation can speak of, as `replay` sees it of a subject."""
    first = next((o for o in outcomes if not isinstance(o, Ok)), outcomes[0])
    done = [o for o in outcomes if isinstance(o, Ok)]
    answered = not isinstance(first, Misuse)
    r = state.requests.get(getattr(line.op, "child", getattr(line.op, "request", None)))
    return {
        "outcome": "error" if isinstance(first, Misuse) else "refused" if isinstance(first, Refused) else "ok",
        "reason": first.reason if isinstance(first, Refused) else None,
        "error": first.argument if isinstance(first, Misuse) else None,
        "cached_tokens": sum(o.cached_tokens for o in done) if answered else None,
        "copies": sum(len(o.copies) for o in done) if answered else None,
        "available_blocks": available(state),
        "length": r.length if r else None,
    }
