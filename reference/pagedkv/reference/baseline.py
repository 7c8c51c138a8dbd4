"""The baseline: reserving the maximum length for every conversation, in one contiguous piece.

That is what serving systems did before paging (Kwon et al., SOSP 2023, §3.1 and Figure 3): a request that *may* grow
to `max_length` tokens takes that much room on arrival and keeps it until it ends. Admit, append and free mean what
they mean for a `BlockManager`, so both can be given the same requests, and `waste_of_paging` and
`waste_of_reservation` say what each makes of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pagedkv.reference.arguments import integer, token_path
from pagedkv.spec.words import Misuse, Ok, Outcome, Reason, Refused, RequestId, Slot, Token, ceil_div, check_id


@dataclass(frozen=True)
class Usage:
    """Room taken and room filled, in tokens."""

    reserved_tokens: int
    used_tokens: int

    @property
    def waste(self) -> float:
        """The part of the reserved room that holds no token, 0..1; 0 of nothing."""
        return 1 - self.used_tokens / self.reserved_tokens if self.reserved_tokens else 0.0


class ContiguousReservation:
    """Room for `capacity_tokens // max_length` requests, each in a piece of `max_length` slots.

    >>> manager = ContiguousReservation(capacity_tokens=32, max_length=16)
    >>> outcome = manager.admit("a", [1, 2, 3, 4, 5])
    >>> manager.append("a", [6]).slots
    (5,)
    >>> manager.usage
    Usage(reserved_tokens=16, used_tokens=6)
    """

    def __init__(self, capacity_tokens: int, max_length: int) -> None:
        integer("capacity_tokens", capacity_tokens, 1)
        integer("max_length", max_length, 1)
        self.capacity_tokens, self.max_length = capacity_tokens, max_length
        self.refusals = {Reason.CAPACITY: 0, Reason.UNSERVABLE: 0}
        """How many calls were refused, by reason."""
        self._free = list(range(capacity_tokens // max_length))[::-1]
        self._place: dict[RequestId, int] = {}
        self._tokens: dict[RequestId, list[Token]] = {}

    def admit(self, request: RequestId, tokens: Sequence[Token]) -> Outcome:
        """A new request with its prompt. Refused: unservable (longer than `max_length`), capacity (no piece left)."""
        check_id("request", request)
        if request in self._tokens:
            raise Misuse("request", request, "an id that is not in use")
        path = token_path("tokens", tokens, least=1)
        if len(path) > self.max_length or self.max_length > self.capacity_tokens:
            return self._refuse(Reason.UNSERVABLE)
        if not self._free:
            return self._refuse(Reason.CAPACITY)
        self._place[request] = self._free.pop()
        self._tokens[request] = list(path)
        return Ok()

    def append(self, request: RequestId, tokens: Sequence[Token]) -> Outcome:
        """The request goes on; `Ok.slots` are those of the new positions. Refused: unservable (past `max_length`)."""
        known = self._known(request)
        path = token_path("tokens", tokens, least=1)
        if len(known) + len(path) > self.max_length:
            return self._refuse(Reason.UNSERVABLE)
        known.extend(path)
        return Ok(slots=self.slots(request)[-len(path) :])

    def free(self, request: RequestId) -> Outcome:
        """The request is gone, and its piece is free."""
        self._known(request)
        self._free.append(self._place.pop(request))
        del self._tokens[request]
        return Ok()

    def slots(self, request: RequestId) -> tuple[Slot, ...]:
        """Where its tokens lie, in order: one run."""
        known = self._known(request)
        start = self._place[request] * self.max_length
        return tuple(range(start, start + len(known)))

    @property
    def num_active(self) -> int:
        """Requests that have a piece."""
        return len(self._tokens)

    @property
    def usage(self) -> Usage:
        """What is reserved and used now."""
        used = sum(len(tokens) for tokens in self._tokens.values())
        return Usage(reserved_tokens=len(self._tokens) * self.max_length, used_tokens=used)

    def _known(self, request: RequestId) -> list[Token]:
        check_id("request", request)
        if request not in self._tokens:
            raise Misuse("request", request, "a request that was admitted and not freed")
        return self._tokens[request]

    def _refuse(self, reason: Reason) -> Refused:
        self.refusals[reason] += 1
        return Refused(reason)


def waste_of_paging(lengths: Iterable[int], block_size: int) -> Usage:
    """What requests of these lengths take in blocks of their own: only the last block of each is partly empty.

    >>> waste_of_paging([5, 8], block_size=4)
    Usage(reserved_tokens=16, used_tokens=13)
    """
    integer("block_size", block_size, 1)
    checked = _lengths(lengths)
    return Usage(sum(ceil_div(length, block_size) * block_size for length in checked), sum(checked))


def waste_of_reservation(lengths: Iterable[int], max_length: int) -> Usage:
    """What the same requests take when each reserves `max_length` tokens.

    >>> waste_of_reservation([5, 8], max_length=16)
    Usage(reserved_tokens=32, used_tokens=13)
    """
    integer("max_length", max_length, 1)
    checked = _lengths(lengths, max_length)
    return Usage(max_length * len(checked), sum(checked))


def table_usage(tables: Mapping[RequestId, Sequence[int]], lengths: Mapping[RequestId, int], block_size: int) -> Usage:
    """What a pool with sharing takes: each physical block counts once, however many tables hold it.

    `tables` and `lengths` (tokens) of the resident requests. A slot is used if the longest of its owners fills it.

    >>> table_usage({"a": (0, 1), "b": (0, 1)}, {"a": 6, "b": 6}, block_size=4)
    Usage(reserved_tokens=8, used_tokens=6)
    """
    filled: dict[int, int] = {}
    for request, table in tables.items():
        for logical, block in enumerate(table):
            if block >= 0:
                here = min(max(lengths[request] - logical * block_size, 0), block_size)
                filled[block] = max(filled.get(block, 0), here)
    return Usage(len(filled) * block_size, sum(filled.values()))


def _lengths(lengths: Iterable[int], most: int | None = None) -> list[int]:
    return [integer(f"lengths[{i}]", length, 0, most) for i, length in enumerate(lengths)]
