"""docs/operations.md says what the specification does: its tables are complete, and its traces hold."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from pagedkv.conformance.differential.model import ModelSubject
from pagedkv.conformance.failures.replay import replay
from pagedkv.conformance.search import fuzz
from pagedkv.conformance.subjects import subject
from pagedkv.spec import Batch, Misuse, Operation, Outcome, Reason, Refused
from pagedkv.spec.subject import BlockManagerSubject
from pagedkv.spec.trace import parse
from pagedkv.spec.trace_fields import NAMES

PAGE: Final = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
ROWS: Final = re.findall(r"^\| `(\w+)\((.*?)\)` \| (.*?) ?\| (.*?) ?\| (.*) \|$", PAGE, re.MULTILINE)
TRACES: Final = [parse(text) for text in re.findall(r"^```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)]
MISUSE: Final = {
    (name, argument) for name, _, cell, *_ in ROWS for argument in re.findall(r"(?:^|<br>)`(\w+)`: ", cell)
}
REFUSED: Final = {(name, reason) for name, _, _, cell, _ in ROWS for reason in re.findall(r"`(\w+)`", cell)}
METHODS: Final[dict[str, Callable[..., Any]]] = {
    name: method for name, method in vars(BlockManagerSubject).items() if inspect.isfunction(method) and name[0] != "_"
}
NOT_IN_TRACES: Final = {("preempt", "mode")}
"""What cannot be written down in a trace, so that no trace can show that it is misuse."""


def test_every_operation_has_its_row_and_its_arguments() -> None:
    def written(method: Callable[..., Any]) -> Iterator[str]:
        for name, parameter in [*inspect.signature(method).parameters.items()][1:]:
            default = parameter.default
            yield name if default is parameter.empty else f"{name}={default!r}".replace("'", '"')

    assert [(name, arguments) for name, arguments, *_ in ROWS if name in METHODS] == [
        (name, ", ".join(written(METHODS[name]))) for name, *_ in ROWS
    ]
    assert sorted(name for name, *_ in ROWS) == sorted(METHODS)


def test_reasons_stand_in_the_order_in_which_they_are_given() -> None:
    order = [str(reason) for reason in Reason]
    for name, _, _, cell, _ in ROWS:
        told = re.findall(r"`(\w+)`", cell)
        assert told == sorted(told, key=order.index), name


@pytest.mark.parametrize("trace", TRACES, ids=[" ".join(trace.header.requires) or "least" for trace in TRACES])
@pytest.mark.parametrize("factory", [ModelSubject, subject("reference")], ids=["specification", "reference"])
def test_a_trace_holds(trace: Any, factory: Any) -> None:
    report = replay(trace, factory)
    assert report.verdict == "holds", report


def shown(field: str) -> set[tuple[str, str]]:
    """What traces expect: operations with the argument that is wrong, or the reason of the refusal. What is wrong with
    a row of a batch is its own."""
    lines = [line for trace in TRACES for line in trace.lines]
    pairs = {(line.op, str(getattr(line.expect, field))) for line in lines if getattr(line.expect, field, None)}
    return {(NAMES[type(op)], value) for op, value in pairs if not isinstance(op, Batch) or value == "rows"}


def test_every_misuse_and_every_refusal_is_shown() -> None:
    """By a trace: an example of every argument, and of every reason, of every operation."""
    assert shown("error") == MISUSE - NOT_IN_TRACES
    assert shown("reason") == REFUSED


class Watched(ModelSubject):
    """The specification, and what it calls misuse and refuses."""

    misuse: ClassVar[set[tuple[str, str]]] = set()
    refused: ClassVar[set[tuple[str, str]]] = set()

    def run(self, operation: Operation) -> Sequence[Outcome]:
        name = NAMES[type(operation)]
        try:
            outcomes = super().run(operation)
        except Misuse as error:
            if not isinstance(operation, Batch) or error.argument == "rows":  # what a row has wrong is the row's
                self.misuse.add((name, error.argument))
            raise
        if not isinstance(operation, Batch):
            self.refused.update((name, str(o.reason)) for o in outcomes if isinstance(o, Refused))
        return outcomes


def test_nothing_else_is_misuse_or_refused() -> None:
    """Neither an argument nor a reason that the table lacks, in random programs."""
    assert fuzz.run(Watched, seed=1, programs=120, steps=60).violation is None
    assert Watched.misuse <= MISUSE
    assert Watched.misuse >= NOT_IN_TRACES
    assert Watched.refused <= REFUSED
