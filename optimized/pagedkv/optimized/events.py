"""What a router that follows the prefix index is told: which blocks can be found, and which no more."""

from dataclasses import dataclass
from typing import TypeAlias

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

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self._events: list[Event] = []
        self._count = 0

    def add(self, event: Event) -> None:
        """Note an event. If the operation fails it has not happened: what lies past the count means nothing."""
        del self._events[self._count :]
        self._events.append(event)
        self._count += 1

    def take(self) -> tuple[Event, ...]:
        """The events so far; from now on they are history."""
        events = tuple(self._events[: self._count])
        self._events, self._count = [], 0
        return events

    def copy(self) -> "EventLog":
        """A log that goes its own way from here."""
        twin = EventLog(enabled=self.enabled)
        twin._events, twin._count = self._events[: self._count], self._count
        return twin
