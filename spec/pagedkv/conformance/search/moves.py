"""The moves of the slices: in a state, the short programs of one operation or a few that are tried from there.

Where a slice is not about publication, text is committed with the move that brings it, so that the states stay few.
"""

from collections.abc import Iterator
from itertools import product
from typing import TypeAlias

from pagedkv.spec import (
    Admit, Append, Batch, BeginStep, Commit, EndStep, Evict, Fork, Free, Lookup, Operation, Pin, Preempt, Reserve,
    ResetPrefixIndex, Resume, State, Truncate, Unpin, available,
)  # fmt: skip

Move: TypeAlias = tuple[Operation, ...]


def _resident(state: State) -> list[str]:
    return [str(name) for name, r in state.requests.items() if r.residency == "resident"]


def _spare(state: State, count: int) -> str | None:
    """A fresh name, while there are fewer than `count` requests."""
    return next((name for name in "abcdef"[:count] if name not in state.requests), None)


def _admit(request: str, tokens: tuple[int, ...]) -> Move:
    """Admit and compute at once. If the admission is refused, the commit is misuse, and that is checked too."""
    return Admit(request, tokens), Commit(request, len(tokens))


def _append(state: State, request: str, token: int = 0) -> Move:
    """Append one token and compute it; refused and misuse likewise."""
    length = state.requests[request].length
    return Append(request, (token,)), Commit(request, length + 1)


def core(state: State) -> Iterator[Move]:
    """admit, append, fork, free: allocation, sharing, copy-on-write, refusal."""
    spare = _spare(state, 3)
    for request in _resident(state):
        if state.requests[request].length < 6:
            yield _append(state, request, _own(request) + state.requests[request].length)
        if spare:
            yield (Fork(request, spare),)
        yield (Free(request),)
    if spare:
        yield from (_admit(spare, tuple(_own(spare) + i for i in range(length))) for length in (1, 2, 3))


def plain(state: State) -> Iterator[Move]:
    """admit, append, free."""
    return (move for move in core(state) if not isinstance(move[0], Fork))


def rewind(state: State) -> Iterator[Move]:
    """Truncation of text that is shared, and of text that is not."""
    spare = _spare(state, 2)
    for request in _resident(state):
        r = state.requests[request]
        if r.length < 5:
            yield _append(state, request, _own(request) + r.length)
        yield from ((Truncate(request, length),) for length in range(1, r.length))
        if spare:
            yield (Fork(request, spare),)
        yield (Free(request),)
    if spare:
        yield from (_admit(spare, tuple(_own(spare) + i for i in range(length))) for length in (1, 3))


def truncate(state: State) -> Iterator[Move]:
    """Truncation alone."""
    return (move for move in rewind(state) if not isinstance(move[0], Fork))


def chunks(state: State) -> Iterator[Move]:
    """Slots before they are needed: a prompt in chunks, lookahead; computing is a move of its own."""
    spare = _spare(state, 2)
    for request in _resident(state):
        r = state.requests[request]
        if r.computed < min(r.reserved, r.length):
            yield (Commit(request, r.computed + 1),)
        yield from ((Reserve(request, length),) for length in (r.length, r.length + 1))
        if r.length < 4:
            yield (Append(request, (_own(request) + r.length,)),)
        yield (Free(request),)
    if spare:
        yield from ((Admit(spare, tuple(_own(spare) + i for i in range(3)), "", reserve),) for reserve in (0, 1, 3))


def returns(state: State) -> Iterator[Move]:
    """Preemption, and the way back."""
    for request, r in state.requests.items():
        if r.residency != "resident":
            yield Resume(request), Commit(request, r.length)
            yield (Free(request),)
    for request in _resident(state):
        yield (Preempt(request),)
    yield from plain(state)


def _own(request: str) -> int:
    """The first token of a request's own text, so that a mix-up between requests shows in what they hold."""
    return 100 * ord(request)


def index(state: State) -> Iterator[Move]:
    """Publication, hits, duplicates and eviction over a two-token alphabet; computing is a move of its own."""
    spare = _spare(state, 2)
    for request in _resident(state):
        r = state.requests[request]
        if r.computed < r.length:
            yield (Commit(request, r.computed + 1),)
        if r.length < 3:
            yield from ((Append(request, (token,)),) for token in (0, 1))
        yield (Free(request),)
    if spare:
        yield from ((Admit(spare, text),) for length in (1, 2) for text in product((0, 1), repeat=length))
    yield (Evict(1),)
    yield (ResetPrefixIndex(),)


def hits(state: State) -> Iterator[Move]:
    """Publication, hits, recency and eviction under pressure, for who has no `evict`.

    As long as a path loses its tail before its beginning, no block is filled twice with the same text: prompts end
    inside of a block, so that all full ones are hit, and nothing is appended. Some managers keep both copies then, and
    which one is indexed is beyond this slice.
    """
    yield from ((Free(request),) for request in state.requests)
    if spare := _spare(state, 2):
        yield from (_admit(spare, text) for text in ((0,), (0, 0, 0), (0, 1, 0), (0, 0, 1, 1, 0), (0, 0, 0, 0, 0)))


def rewritten(state: State) -> Iterator[Move]:
    """Text that is rolled back into a block that the index knows, and written anew."""
    spare = _spare(state, 2)
    for request in _resident(state):
        length = state.requests[request].length
        if length < 3:
            yield _append(state, request, 1)
        yield from ((Truncate(request, shorter),) for shorter in range(1, length))
        yield (Free(request),)
    if spare:
        yield from (_admit(spare, text) for text in ((0, 0), (0, 0, 0)))


def lookups(state: State) -> Iterator[Move]:
    """The same, and lookups, which change nothing: not even what was used last, as shows in what is evicted next."""
    yield from hits(state)
    pressure = _admit(spare, (2, 3, 4, 5, 6)) if (spare := _spare(state, 2)) else ()
    yield from ((Lookup(text), *pressure) for text in ((0, 0, 0), (0, 1, 0)))


def siblings(state: State) -> Iterator[Move]:
    """All who share a block append to it in one batch: all copy it but the last, for whom there need be no block."""
    spare, resident = _spare(state, 3), _resident(state)
    if resident and all(state.requests[request].length < 5 for request in resident):
        texts = {request: _own(request) + state.requests[request].length for request in resident}
        yield (
            Batch(tuple(Append(request, (token,)) for request, token in texts.items())),
            *(Commit(request, state.requests[request].length + 1) for request in resident),
        )
    for request in resident:
        if spare:
            yield (Fork(request, spare),)
        yield (Free(request),)
    if spare:
        yield from (_admit(spare, tuple(_own(spare) + i for i in range(length))) for length in (1, 2))


def pins(state: State) -> Iterator[Move]:
    """Pins that nest, against eviction, writing and reset."""
    spare = _spare(state, 2)
    for request in _resident(state):
        length = state.requests[request].length
        if length < 3:
            yield _append(state, request)
        if length > 1:
            yield (Truncate(request, length - 1),)
        yield (Free(request),)
    if spare:
        yield from (_admit(spare, text) for text in ((0,), (0, 0), (0, 1, 0)))
    if sum(map(len, state.pins.values())) < 2:
        yield from ((Pin(text),) for text in ((0, 0), (0, 1)))
    yield from ((Unpin(text),) for text in ((0, 0), (0, 1)))
    yield (Evict(1),)
    yield (ResetPrefixIndex(),)


def steps(state: State) -> Iterator[Move]:
    """Steps in flight hold what is released meanwhile: not handed out, yet hit. Too long a text is refused, in no
    other way than without them."""
    spare = _spare(state, 2)
    for request in _resident(state):
        if 0 < available(state) < 3:
            yield (Append(request, (0, 0, 0)),)
        if state.requests[request].length < 3:
            yield _append(state, request)
        yield (Free(request),)
        if spare:
            yield (Fork(request, spare),)
    if spare:
        yield from (_admit(spare, (0,) * length) for length in (1, 2))
    yield from ((BeginStep(step),) for step in ("s0", "s1"))
    yield from ((EndStep(step),) for step in ("s0", "s1"))


def swap(state: State) -> Iterator[Move]:
    """Preemption in both modes, with too little swap space."""
    spare = _spare(state, 3)
    for request, r in state.requests.items():
        if r.residency != "resident":
            yield (Resume(request),)
        yield (Free(request),)
    for request in _resident(state):
        if state.requests[request].length < 4:
            yield _append(state, request, len(state.requests[request].tokens))
        if spare and state.requests[request].computed == state.requests[request].length:
            yield (Fork(request, spare),)
        yield (Preempt(request, "recompute"),)
        yield (Preempt(request, "swap"),)
    if spare:
        yield from (_admit(spare, tuple(range(length))) for length in (1, 3))


def window(state: State) -> Iterator[Move]:
    """A sliding window, rollback within and beyond what it keeps, lookahead, forks."""
    spare = _spare(state, 2)
    for request in _resident(state):
        r = state.requests[request]
        if r.length < 6:
            yield _append(state, request, len(r.tokens))
            yield (Reserve(request, r.length + 1),)
        yield from ((Truncate(request, length),) for length in range(max(1, r.length - 3), r.length))
        if spare:
            yield (Fork(request, spare),)
        yield (Free(request),)
    if spare:
        yield from (_admit(spare, tuple(range(length))) for length in (1, 4))


def rolling(state: State) -> Iterator[Move]:
    """The window without lookahead, for who takes slots only as text grows."""
    yield from (move for move in window(state) if not isinstance(move[0], Reserve))


def sliding(state: State) -> Iterator[Move]:
    """The window without rollback and forks."""
    return (move for move in rolling(state) if not isinstance(move[0], Truncate | Fork))


def sinks(state: State) -> Iterator[Move]:
    """A sliding window that keeps half a block of sinks: hits and swaps with holes in between, rollback, eviction."""
    spare = _spare(state, 2)
    for request, r in state.requests.items():
        if r.residency != "resident":
            yield (Resume(request),)
        yield (Free(request),)
    for request in _resident(state):
        r = state.requests[request]
        if r.length < 7:
            yield _append(state, request, len(r.tokens))
        yield from ((Truncate(request, length),) for length in range(r.length - 2, r.length))
        if spare:
            yield (Fork(request, spare),)
        yield (Preempt(request, "swap"),)
    if spare:
        yield from (_admit(spare, tuple(range(length))) for length in (5, 7))
    yield (Evict(1),)
