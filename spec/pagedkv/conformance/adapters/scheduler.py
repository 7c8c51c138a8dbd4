"""What a scheduler keeps and checks, so that an adapter is only the calls of its engine.

Block managers trust their scheduler: that a request is known, that its text is not empty, that it is let in once. These
checks, the reasons of refusals and the lengths of requests are here. So misuse is caught by the adapter, and whether an
engine would catch it is not tested. Blocks, tables, hits and the number of available blocks are the engine's own.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pagedkv.spec.state import check_tokens
from pagedkv.spec.subject import Capabilities, Lengths, Snapshot
from pagedkv.spec.window import dead_blocks
from pagedkv.spec.words import (
    HOLE, Block, Config, Copy, Identity, Misuse, Namespace, Ok, Outcome, PreemptMode, Reason, Refused, RequestId, Slot,
    Token, ceil_div, check_id,
)  # fmt: skip

OWN_LAWS: Final = frozenset({
    "the answer is Ok or Refused, one a row",
    "misuse is an exception",
    "misuse changes nothing",
    "refusal is required: unservable",
    "refusal is required: max_requests",
    "resident requests have a table",
    "slots are where the table puts the positions",
    "lengths",
    "frame: the known requests",
})  # fmt: skip
"""The laws that what is here keeps or breaks, and not the engine."""


@dataclass
class Entry:
    """One request, as its scheduler knows it."""

    namespace: Namespace
    tokens: tuple[Token, ...]
    reserved: int = 0
    computed: int = 0
    resident: bool = True
    handle: Any = field(default=None, repr=False)
    """What the engine knows it by."""

    @property
    def length(self) -> int:
        return len(self.tokens)


class Scheduled(ABC):
    """A subject whose engine is given by the methods `enter` to `available`; the others are the scheduler's."""

    capabilities: Capabilities

    def __init__(self, config: Config) -> None:
        self.config = config
        self.entries: dict[RequestId, Entry] = {}

    def found(self, entry: Entry) -> int:
        """How many tokens a request that has no blocks would find cached. Of use where a window does without some."""
        return 0

    @abstractmethod
    def enter(self, entry: Entry, reserve: int) -> int | None:
        """Give a request that has no blocks its hits, and slots up to `reserve` positions (or its hits, if they reach
        further). How many tokens were cached; None, and nothing has changed: not enough blocks."""

    @abstractmethod
    def grow(self, entry: Entry, tokens: tuple[Token, ...], length: int) -> bool:
        """The text goes on with `tokens`, and there are to be slots up to `length`. False: nothing has changed."""

    @abstractmethod
    def written(self, entry: Entry, computed: int) -> tuple[Copy, ...]:
        """A forward has written the positions up to `computed`. The blocks that were replaced by that."""

    @abstractmethod
    def leave(self, entry: Entry, preempted: bool) -> None:
        """Give the blocks back."""

    @abstractmethod
    def table(self, entry: Entry) -> tuple[Block, ...]:
        """The block table."""

    @abstractmethod
    def available(self) -> int:
        """How many blocks can be handed out, those included that are kept only for their contents."""

    def references(self) -> Mapping[Block, int] | None:
        """Owners of each block, if the engine counts them."""
        return None

    def index(self) -> Mapping[Block, Identity] | None:
        """The prefix index, if the engine shows it."""
        return None

    def admit(
        self, request: RequestId, tokens: Sequence[Token], namespace: Namespace = "", reserve: int | None = None
    ) -> Outcome:
        check_id("request", request)
        check_id("namespace", namespace)
        if request in self.entries:
            raise Misuse("request", request, "the id of no known request")
        check_tokens(tuple(tokens))
        if reserve is not None and (type(reserve) is not int or not 0 <= reserve <= len(tokens)):
            raise Misuse("reserve", reserve, f"an integer between 0 and the prompt's length {len(tokens)}")
        entry = Entry(namespace, tuple(tokens))
        outcome = self._enter(entry, entry.length if reserve is None else reserve)
        if isinstance(outcome, Ok):
            self.entries[request] = entry
        return outcome

    def _enter(self, entry: Entry, reserve: int) -> Outcome:
        places = self.config.max_requests
        holes = len(dead_blocks(self.config, self.found(entry)))
        if ceil_div(entry.length, self.config.block_size) - holes > self.config.num_blocks:
            return Refused(Reason.UNSERVABLE)
        if (
            places is not None
            and sum(other.resident for other in self.entries.values() if other is not entry) >= places
        ):
            return Refused(Reason.MAX_REQUESTS)
        cached = self.enter(entry, reserve)
        if cached is None:
            return Refused(Reason.CAPACITY)
        entry.reserved, entry.computed, entry.resident = max(reserve, cached), cached, True
        return Ok(cached_tokens=cached)

    def append(self, request: RequestId, tokens: Sequence[Token]) -> Outcome:
        entry = self._resident(request)
        check_tokens(tuple(tokens))
        start = entry.length
        return self._grow(entry, tuple(tokens), start, start + len(tokens))

    def reserve(self, request: RequestId, length: int) -> Outcome:
        entry = self._resident(request)
        if type(length) is not int or length < 1:
            raise Misuse("length", length, "an integer >= 1")
        return self._grow(entry, (), min(entry.reserved, entry.length), length)

    def _grow(self, entry: Entry, tokens: tuple[Token, ...], start: int, end: int) -> Outcome:
        if end <= start:
            return Ok()
        holes = len(dead_blocks(self.config, entry.computed))
        if ceil_div(end, self.config.block_size) - holes > self.config.num_blocks:
            return Refused(Reason.UNSERVABLE)
        if not self.grow(entry, tokens, end):
            return Refused(Reason.CAPACITY)
        entry.tokens, entry.reserved = entry.tokens + tokens, max(entry.reserved, end)
        return Ok(slots=self._slots(entry, start, end))

    def commit(self, request: RequestId, computed: int) -> Outcome:
        entry = self._resident(request)
        last = min(entry.reserved, entry.length)
        if type(computed) is not int or not entry.computed <= computed <= last:
            raise Misuse("computed", computed, f"an integer between the computed {entry.computed} and {last}")
        remapped = self.written(entry, computed)
        entry.computed = computed
        return Ok(remapped=remapped)

    def free(self, request: RequestId) -> Outcome:
        check_id("request", request)
        if request not in self.entries:
            raise Misuse("request", request, "the id of a known request")
        entry = self.entries.pop(request)
        if entry.resident:
            self.leave(entry, preempted=False)
        return Ok()

    def preempt(self, request: RequestId, mode: PreemptMode = "recompute") -> Outcome:
        entry = self._resident(request)
        if mode != "recompute":
            raise Misuse("mode", mode, "'recompute'")
        self.leave(entry, preempted=True)
        entry.reserved = entry.computed = 0
        entry.resident = False
        return Ok()

    def resume(self, request: RequestId) -> Outcome:
        check_id("request", request)
        if request not in self.entries or self.entries[request].resident:
            raise Misuse("request", request, "the id of a preempted request")
        return self._enter(self.entries[request], self.entries[request].length)

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        known = {r: entry for r, entry in self.entries.items() if requests is None or r in requests}
        return Snapshot(
            tables={r: self.table(entry) for r, entry in known.items() if entry.resident},
            lengths={r: Lengths(e.length, e.reserved, e.computed, e.resident) for r, e in known.items()},
            available_blocks=self.available(),
            references=self.references() if requests is None else None,
            index=self.index() if requests is None and self.capabilities.reports_index else None,
        )

    def _resident(self, request: RequestId) -> Entry:
        check_id("request", request)
        if request not in self.entries or not self.entries[request].resident:
            raise Misuse("request", request, "the id of a resident request")
        return self.entries[request]

    def _slots(self, entry: Entry, start: int, end: int) -> tuple[Slot, ...]:
        table, size = self.table(entry), self.config.block_size
        return tuple(table[p // size] * size + p % size for p in range(start, end) if table[p // size] != HOLE)
