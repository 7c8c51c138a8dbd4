"""Traces, an aside. What a trace may expect of an operation.

An expectation holds for *every* legal allocator, so it names no block. Where legal implementations may differ in a
count, it is a `Range`. What it does not mention, it does not constrain.

What is held against it is what the specification says: in a recording, where the trace has what an engine answered, it
is the engine that was wrong.

>>> mismatches(Expect(outcome="ok", copies=Range(max=1)), {"outcome": "refused", "reason": "capacity", "copies": 0})
['outcome: the trace has ok, the specification says refused']
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal

from pagedkv.spec.blocks import available
from pagedkv.spec.operations import Fork, Operation
from pagedkv.spec.state import State
from pagedkv.spec.words import Misuse, Ok, Outcome, Reason, Refused, RequestId

OUTCOMES: Final = ("ok", "refused", "error")


@dataclass(frozen=True)
class Range:
    """Counts from `min` to `max`, both included; None: no bound. One that no count is in is misuse."""

    min: int | None = None
    max: int | None = None

    def __post_init__(self) -> None:
        if self.min is not None and self.max is not None and self.max < self.min:
            raise Misuse("max", self.max, f"at least {self.min}, the min of the same range")

    def __contains__(self, count: object) -> bool:
        low, high = self.min, self.max
        return isinstance(count, int) and (low is None or low <= count) and (high is None or count <= high)

    def __str__(self) -> str:
        if self.max is None:
            return f"at least {self.min}"
        return f"at most {self.max}" if self.min is None else f"{self.min} to {self.max}"


@dataclass(frozen=True)
class Expect:
    """What is observed after an operation; None: anything.

    For a batch: `outcome` is "error" if it was misuse, else "refused" if any row was (with the `reason` of the first
    that was), else "ok"; `copies` is the sum over its rows.
    """

    outcome: Literal["ok", "refused", "error"] | None = None
    reason: Reason | None = None
    """Of a refusal."""
    error: str | None = None
    """Of misuse: the argument that `Misuse` names."""
    cached_tokens: int | Range | None = None
    """What the operation returned."""
    copies: int | Range | None = None
    """How many copy-on-writes the operation returned."""
    available_blocks: int | Range | None = None
    """Of the pool, after the operation."""
    length: int | Range | None = None
    """Tokens of the request (of a fork: of the child), after the operation."""


def answered(outcomes: Sequence[Outcome] | Misuse) -> dict[str, object]:
    """An answer (one outcome a row, or misuse) in the words of an `Expect`.

    >>> answered([Refused(Reason.CAPACITY), Ok(copies=((0, 1),))])
    {'outcome': 'refused', 'reason': <Reason.CAPACITY: 'capacity'>, 'cached_tokens': 0, 'copies': 1}
    """
    if isinstance(outcomes, Misuse):
        return {"outcome": "error", "error": outcomes.argument.partition("[")[0]}
    refused = next((outcome for outcome in outcomes if isinstance(outcome, Refused)), None)
    done = [outcome for outcome in outcomes if isinstance(outcome, Ok)]
    return {
        "outcome": "refused" if refused else "ok",
        "reason": refused.reason if refused else None,
        "cached_tokens": sum(outcome.cached_tokens for outcome in done),
        "copies": sum(len(outcome.copies) for outcome in done),
    }


def observed(operation: Operation, outcomes: Sequence[Outcome] | Misuse, after: State) -> dict[str, object]:
    """What an `Expect` can speak of: the answer to an operation, and the state after it."""
    request = after.requests.get(spoken_of(operation))
    return {
        **answered(outcomes),
        "available_blocks": available(after),
        "length": request.length if request else None,
    }


def spoken_of(operation: Operation) -> RequestId | None:
    """The request whose length is meant, of a fork the child's."""
    return operation.child if isinstance(operation, Fork) else getattr(operation, "request", None)


def mismatches(expect: Expect, said: Mapping[str, object]) -> list[str]:
    """One sentence for each field of `expect` that what the specification says (keys as in `Expect`) does not meet."""
    wrong = []
    for field in fields(Expect):
        has, says = getattr(expect, field.name), said.get(field.name)
        met = has is None or (says in has if isinstance(has, Range) else says == has)
        if not met:
            says = "nothing" if says is None else says
            wrong.append(f"{field.name}: the trace has {has}, the specification says {says}")
    return wrong
