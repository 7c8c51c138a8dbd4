"""Traces, an aside. What a trace may expect of an operation.

An expectation holds for *every* legal allocator, so it names no block. Where legal implementations may differ in a
count, it is a `Range`. What it does not mention, it does not constrain.

>>> mismatches(Expect(outcome="ok", copies=Range(max=1)), {"outcome": "refused", "reason": "capacity", "copies": 0})
['outcome: expected ok, got refused']
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal

from pagedkv.spec.words import Misuse, Reason

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


def mismatches(expect: Expect, observed: Mapping[str, object]) -> list[str]:
    """One sentence for each field of `expect` that `observed` (keys as in `Expect`) does not meet."""
    wrong = []
    for field in fields(Expect):
        wanted, got = getattr(expect, field.name), observed.get(field.name)
        met = wanted is None or (got in wanted if isinstance(wanted, Range) else got == wanted)
        if not met:
            wrong.append(f"{field.name}: expected {wanted}, got {'nothing' if got is None else got}")
    return wrong
