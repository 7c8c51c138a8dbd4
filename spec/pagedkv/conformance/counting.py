"""What a run has exercised: without it, "no violation" may mean "nothing was tried"."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from pagedkv.spec import (
    HOLE, Admit, Append, Batch, Commit, Lookup, Misuse, Operation, Outcome, Permute, Pin, Preempt, Refused, Reserve,
    ResetPrefixIndex, Resume, State,
)  # fmt: skip
from pagedkv.spec.subject import Capabilities
from pagedkv.spec.trace_fields import NAMES

OUTCOMES: Final = ("ok", "refused", "misuse")


@dataclass
class Counts:
    """Events of all programs of a run. Rows of a batch count as operations of their kind, and the batch as one too."""

    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind and outcome ("ok", "refused", "misuse"); a batch is "refused" if any of its rows was."""
    refusals: Counter[str] = field(default_factory=Counter)
    """By reason."""
    subsets: Counter[str] = field(default_factory=Counter)
    """Programs by the subset of operations that they were about."""
    events: Counter[str] = field(default_factory=Counter)
    """By name, as in `EVENTS`."""
    share_depth_max: int = 0
    """The most references that one block had."""

    def step(self, operation: Operation, outcomes: Sequence[Outcome] | Misuse, before: State, after: State) -> None:
        """Count one operation."""
        kind = NAMES[type(operation)]
        if isinstance(outcomes, Misuse):
            self.operations[kind, "misuse"] += 1
            return
        if isinstance(operation, Batch):
            refused = any(isinstance(outcome, Refused) for outcome in outcomes)
            self.operations[kind, "refused" if refused else "ok"] += 1
            self.events["batch"] += len(operation.rows) > 1
        rows = operation.rows if isinstance(operation, Batch) else (operation,)
        for row, outcome in zip(rows, outcomes, strict=True):
            self._row(row, outcome, before)
        self._change(operation, before, after)

    def _row(self, row: Operation, outcome: Outcome, before: State) -> None:
        kind = NAMES[type(row)]
        if isinstance(outcome, Refused):
            self.operations[kind, "refused"] += 1
            self.refusals[outcome.reason] += 1
            return
        self.operations[kind, "ok"] += 1
        self.events["copy_on_write"] += len(outcome.copies)
        self.events["remapped"] += len(outcome.remapped)
        self.events["evict"] += outcome.evicted
        match row:
            case Admit(_, tokens, _, reserve):
                self.events["hit"] += outcome.cached_tokens > 0
                self.events["partial"] += reserve is not None and reserve < len(tokens)
            case Lookup():
                self.events["lookup"] += outcome.cached_tokens > 0
            case Pin():
                self.events["pin"] += outcome.cached_tokens > 0
            case Preempt(_, mode):
                self.events[f"preempt_{mode}"] += 1
            case Resume(request):
                self.events[f"resume_{before.requests[request].residency}"] += 1
            case Reserve() | Append() | Commit():
                pass
            case _:
                self.events[kind] += 1

    def _change(self, operation: Operation, before: State, after: State) -> None:
        """What only shows in the state."""
        if before is after:
            return
        self.share_depth_max = max(self.share_depth_max, *after.references.values(), 0)
        self.events["held"] += len(after.held.keys() - before.held.keys())
        if before.idle_since and not isinstance(operation, Permute | ResetPrefixIndex):
            self.events["eviction"] += sum(after.entries.get(b) != before.entries[b] for b in before.idle_since)
        if after.config.sliding_window is not None:
            holed = [r for r in after.requests.values() if r.holes]
            self.events["hole"] += bool(holed)
            self.events["sink"] += any(r.table[0] != HOLE for r in holed)


EVENTS: Final[Mapping[str, str]] = {
    "fork": "fork",
    "truncate": "truncate",
    "reserve": "partial",
    "prefix_cache": "hit",
    "lookup": "lookup",
    "pins": "pin",
    "evict": "evict",
    "dedup": "remapped",
    "preempt": "resume_recompute",
    "swap": "resume_swap",
    "sliding_window": "hole",
    "sink_tokens": "sink",
    "overlapped_steps": "held",
    "permute": "permute",
    "batch": "batch",
    "policy": "eviction",
}
"""For each capability the event that exercises it."""


def exercised(capabilities: Capabilities, events: Mapping[str, int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Capabilities that are declared but saw no event, and those that are not declared.

    >>> idle, undeclared = exercised(Capabilities(fork=True, swap=True), {"fork": 3})
    >>> idle, "truncate" in undeclared
    (('swap',), True)
    """
    names = [item.name for item in fields(Capabilities)]
    undeclared = tuple(name for name in names if getattr(capabilities, name) in (False, "any", "commit"))
    idle = tuple(name for name in names if name not in undeclared and name in EVENTS and not events.get(EVENTS[name]))
    return idle, undeclared
