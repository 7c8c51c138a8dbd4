"""What a run has exercised: without it, "no violation" may mean "nothing was tried"."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from pagedkv.spec import (
    HOLE, Admit, Append, Batch, Commit, Evict, Fork, Lookup, Misuse, Operation, Outcome, Permute, Pin, Preempt, Reason,
    Refused, RequestId, Reserve, ResetPrefixIndex, Resume, State, Truncate,
)  # fmt: skip
from pagedkv.spec.operations import rows_of
from pagedkv.spec.prefix import match
from pagedkv.spec.subject import Capabilities
from pagedkv.spec.trace_fields import NAMES

OUTCOMES: Final = ("ok", "refused", "misuse")
PLACES: Final = ("0", "1", "-1", "other")
"""Where in a block a length ends: length % block_size, -1 being the last."""


@dataclass
class ProgramCounts:
    """How deep one program got."""

    share_depth: int = 0
    """The most owners of one block."""
    fork_depth: int = 0
    """The longest line of descent by forks."""
    exhausted: bool = False
    """Whether something was refused because no block was left."""
    descent: dict[RequestId, int] = field(default_factory=dict)
    """By how many forks each request has come."""


@dataclass
class Counts:
    """Events of all programs of a run. Rows of a batch count as operations of their kind, and the batch as one too."""

    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind and outcome ("ok", "refused", "misuse"); a batch is "refused" if any of its rows was."""
    refusals: Counter[str] = field(default_factory=Counter)
    """By reason."""
    events: Counter[str] = field(default_factory=Counter)
    """By name, as in `EVENTS`."""
    lengths: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Lengths asked for, and granted or refused, by kind of operation and `PLACES`."""
    programs: list[ProgramCounts] = field(default_factory=list)
    run: int = 0
    """Operations, a batch being one; what a program ends with is none of them."""

    def begin(self) -> None:
        """A program begins."""
        self.programs.append(ProgramCounts())

    def step(self, operation: Operation, outcomes: Sequence[Outcome] | Misuse, before: State, after: State) -> None:
        """Count one operation."""
        self.run += 1
        kind = NAMES[type(operation)]
        if isinstance(outcomes, Misuse):
            self.operations[kind, "misuse"] += 1
            return
        if isinstance(operation, Batch):
            refused = any(isinstance(outcome, Refused) for outcome in outcomes)
            self.operations[kind, "refused" if refused else "ok"] += 1
            self.events["batch"] += len(operation.rows) > 1
        rows = rows_of(operation)
        for row, outcome in zip(rows, outcomes, strict=True):
            self._row(row, outcome, before)
        self._change(operation, before, after)

    def _row(self, row: Operation, outcome: Outcome, before: State) -> None:
        kind = NAMES[type(row)]
        if (length := _length(row, before)) is not None:
            self.lengths[kind, place(length, before.config.block_size)] += 1
        if isinstance(outcome, Refused):
            self.operations[kind, "refused"] += 1
            self.refusals[outcome.reason] += 1
            self.programs[-1].exhausted |= outcome.reason in (Reason.CAPACITY, Reason.IN_FLIGHT)
            return
        self.operations[kind, "ok"] += 1
        self.events["copy_on_write"] += len(outcome.copies)
        self.events["remapped"] += len(outcome.remapped)
        self.events["evict"] += outcome.evicted
        match row:
            case Admit(_, tokens, _, reserve):
                self.events["hit"] += outcome.cached_tokens > 0
                self.events["hit_ahead"] += _ahead(before, row, outcome.cached_tokens)
                self.events["partial"] += reserve is not None and reserve < len(tokens)
                self.programs[-1].descent.pop(row.request, None)
            case Fork(parent, child):
                self.events["fork"] += 1
                program = self.programs[-1]
                program.descent[child] = program.descent.get(parent, 0) + 1
                program.fork_depth = max(program.fork_depth, program.descent[child])
            case Lookup():
                self.events["lookup"] += outcome.cached_tokens > 0
            case Pin():
                self.events["pin"] += outcome.cached_tokens > 0
            case Preempt(_, mode):
                self.events[f"preempt_{mode}"] += 1
            case Resume(request):
                self.events[f"resume_{before.requests[request].residency}"] += 1
            case Reserve() | Append() | Commit() | Evict():
                pass
            case _:
                self.events[kind] += 1

    def _change(self, operation: Operation, before: State, after: State) -> None:
        """What only shows in the state."""
        if before is after:
            return
        program = self.programs[-1]
        self.events["entry"] += len(after.entries) > len(before.entries)
        program.share_depth = max(program.share_depth, *after.references.values(), 0)
        self.events["held"] += len(after.held.keys() - before.held.keys())
        if before.idle_since and not isinstance(operation, Permute | ResetPrefixIndex):
            self.events["eviction"] += sum(after.entries.get(b) != before.entries[b] for b in before.idle_since)
        if after.config.sliding_window is not None:
            holed = [r for r in after.requests.values() if r.holes]
            self.events["hole"] += bool(holed)
            self.events["sink"] += any(r.table[0] != HOLE for r in holed)


def _ahead(before: State, row: Admit, cached_tokens: int) -> bool:
    """Whether a hit is on a block that is not computed yet."""
    size = before.config.block_size
    blocks = match(before, row.namespace, row.tokens)[: cached_tokens // size]
    return any(len(before.contents[block]) < size for block in blocks)


def place(length: int, block_size: int) -> str:
    """Where in a block a length ends, as in `PLACES`.

    >>> [place(length, 4) for length in range(4, 9)], place(7, 2)
    (['0', '1', 'other', '-1', '0'], '1')
    """
    offset = length % block_size
    return str(offset) if offset < 2 else "-1" if offset == block_size - 1 else "other"


def _length(row: Operation, before: State) -> int | None:
    """The length that an operation asks for."""
    match row:
        case Admit(_, tokens):
            return len(tokens)
        case Append(request, tokens):
            return before.requests[request].length + len(tokens)
        case Reserve(_, length) | Truncate(_, length):
            return length
        case _:
            return None


EVENTS: Final[Mapping[str, str]] = {
    "fork": "fork",
    "truncate": "truncate",
    "reserve": "partial",
    "prefix_cache": "hit",
    "lookup": "lookup",
    "pins": "pin",
    "evict": "evict",
    "reports_index": "entry",
    "publish": "hit_ahead",
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
