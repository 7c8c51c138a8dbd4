"""The slices of the exhaustive check: small pools, each with the moves that one part of the contract is about.

A move is a short program. Where a part is not about publication, text is committed with the move that brings it, so
that the states stay few.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from pagedkv.spec import (
    Admit, Append, BeginStep, Commit, Config, EndStep, Evict, Fork, Free, Operation, Pin, Preempt, Reserve,
    ResetPrefixIndex, Resume, State, Truncate, Unpin,
)  # fmt: skip

Move: TypeAlias = tuple[Operation, ...]


@dataclass(frozen=True)
class Slice:
    """A pool, its moves, and the capabilities that they need."""

    name: str
    config: Config
    moves: Callable[[State], Iterator[Move]]
    requires: tuple[str, ...]
    with_tokens: bool = False
    """Whether states that differ only in their tokens are different states."""


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
    """Steps in flight hold what is released meanwhile: not handed out, yet hit."""
    spare = _spare(state, 2)
    for request in _resident(state):
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


SLICES = {
    part.name: part
    for part in (
        Slice("core", Config(num_blocks=6, block_size=2, prefix_cache=False), core, ("fork",)),
        Slice("index", Config(num_blocks=3, block_size=1), index, ("prefix_cache", "evict"), with_tokens=True),
        Slice("pins", Config(num_blocks=3, block_size=1), pins, ("pins", "evict", "truncate"), with_tokens=True),
        Slice("steps", Config(num_blocks=4, block_size=1, overlapped_steps=True), steps, ("overlapped_steps", "fork")),
        Slice("swap", Config(num_blocks=4, block_size=2, prefix_cache=False, swap_blocks=2), swap, ("swap", "fork")),
        Slice(
            "window",
            Config(num_blocks=5, block_size=1, prefix_cache=False, sliding_window=2, max_rollback=1),
            window,
            ("sliding_window", "truncate", "reserve", "fork"),
        ),
        Slice(
            "rolling",
            Config(num_blocks=5, block_size=1, prefix_cache=False, sliding_window=2, max_rollback=1),
            rolling,
            ("sliding_window", "truncate", "fork"),
        ),
        Slice(
            "sinks",
            Config(num_blocks=4, block_size=2, sliding_window=1, sink_tokens=1, max_rollback=1, swap_blocks=2),
            sinks,
            ("sliding_window", "sink_tokens", "prefix_cache", "evict", "swap", "truncate", "fork"),
        ),
    )
}
"""By name. `core` is the one of the paper's figures: 6 blocks, 3 requests."""
