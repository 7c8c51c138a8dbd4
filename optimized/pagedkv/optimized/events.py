"""What a router that follows the prefix index is told: which blocks can be found, and which no more."""

from dataclasses import dataclass
from typing import TypeAlias

from pagedkv.optimized.journal import Journal
from pagedkv.spec.words import Namespace


@dataclass(frozen=True)
class BlocksStored:
    """These blocks of one path can be found from now on, in path order."""

    digests: tuple[bytes, ...]
    """Of each path, 16 bytes; `prefix_digests` computes the same from tokens and a shared `hash_seed`."""
    parent: bytes
    """The digest of the path that the first of them continues: of another block, or of the empty path."""
    tokens: tuple[int, ...]
    """All tokens of these blocks."""
    namespace: Namespace
    group: int
    """The cache group, 0 if there is one only."""


@dataclass(frozen=True)
class BlocksRemoved:
    """These paths can be found no more: evicted, overwritten or invalid. No copy of them is left in the index."""

    digests: tuple[bytes, ...]
    group: int


@dataclass(frozen=True)
class IndexCleared:
    """Nothing can be found any more."""


Event: TypeAlias = BlocksStored | BlocksRemoved | IndexCleared


class EventLog:
    """Events since they were last taken, in order. One that nobody listens to costs nothing."""

    def __init__(self, journal: Journal, *, enabled: bool) -> None:
        self.enabled, self._journal = enabled, journal
        self._events: dict[int, Event] = {}  # numbered, so that one can be taken back

    def add(self, event: Event) -> None:
        """Note an event."""
        self._journal.set(self._events, len(self._events), event)

    def take(self) -> tuple[Event, ...]:
        """The events so far; from now on they are history."""
        events = tuple(self._events.values())
        self._journal.set(vars(self), "_events", {})
        return events

    def copy(self, journal: Journal) -> "EventLog":
        """A log that goes its own way from here."""
        twin = EventLog(journal, enabled=self.enabled)
        twin._events = self._events.copy()
        return twin
