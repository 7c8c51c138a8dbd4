"""Slices for subjects that have neither fork nor `evict`, which those of the kit need: the managers of engines.

In `hits` no text is written twice, since vLLM keeps both blocks then and the kit follows only one: prompts end inside
of a block, so that all full blocks are hit, and nothing is appended.
"""

from collections.abc import Iterator
from typing import Final

from pagedkv.conformance.search.slices import Move, Slice
from pagedkv.spec import Admit, Append, Commit, Config, Free, Preempt, Reserve, Resume, State

PROMPTS: Final = ((0,), (0, 0, 0), (0, 1, 0), (0, 0, 1, 1, 0), (0, 0, 0, 0, 0))


def _spare(state: State, names: str) -> str | None:
    return next((name for name in names if name not in state.requests), None)


def _resident(state: State) -> list[str]:
    return [str(name) for name, r in state.requests.items() if r.residency == "resident"]


def _admit(request: str, tokens: tuple[int, ...]) -> Move:
    return Admit(request, tokens), Commit(request, len(tokens))


def _append(state: State, request: str) -> Move:
    length = state.requests[request].length
    return Append(request, (100 * ord(request) + length,)), Commit(request, length + 1)


def plain(state: State) -> Iterator[Move]:
    """admit, append, free: three requests in four blocks."""
    for request in _resident(state):
        if state.requests[request].length < 6:
            yield _append(state, request)
        yield (Free(request),)
    if spare := _spare(state, "abc"):
        yield from (_admit(spare, tuple(100 * ord(spare) + i for i in range(length))) for length in (1, 2, 3))


def chunks(state: State) -> Iterator[Move]:
    """Slots before they are needed: chunks of a prompt, lookahead, computing step by step."""
    for request in _resident(state):
        r = state.requests[request]
        if r.computed < min(r.reserved, r.length):
            yield (Commit(request, r.computed + 1),)
        yield from ((Reserve(request, length),) for length in (r.length, r.length + 1))
        if r.length < 4:
            yield (Append(request, (100 * ord(request) + r.length,)),)
        yield (Free(request),)
    if spare := _spare(state, "ab"):
        tokens = tuple(100 * ord(spare) + i for i in range(3))
        yield from ((Admit(spare, tokens, "", reserve),) for reserve in (0, 1, 3))


def hits(state: State) -> Iterator[Move]:
    """Publication, hits, recency and eviction, preemption and return."""
    for request, r in state.requests.items():
        yield (Free(request),)
        if r.residency != "resident":
            yield Resume(request), Commit(request, r.length)
        else:
            yield (Preempt(request),)
    if spare := _spare(state, "ab"):
        yield from (_admit(spare, tokens) for tokens in PROMPTS)


def sliding(state: State) -> Iterator[Move]:
    """A window of two positions, of which one more is kept."""
    for request in _resident(state):
        if state.requests[request].length < 6:
            yield _append(state, request)
        yield (Free(request),)
    if spare := _spare(state, "ab"):
        yield from (_admit(spare, tuple(100 * ord(spare) + i for i in range(length))) for length in (1, 4))


ENGINE_SLICES: Final = (
    Slice("plain", Config(num_blocks=4, block_size=2, prefix_cache=False), plain, ()),
    Slice("chunks", Config(num_blocks=3, block_size=2, prefix_cache=False), chunks, ("reserve",)),
    Slice("hits", Config(num_blocks=4, block_size=2), hits, ("prefix_cache", "preempt"), with_tokens=True),
    Slice(
        "sliding",
        Config(num_blocks=5, block_size=1, prefix_cache=False, sliding_window=2, max_rollback=1),
        sliding,
        ("sliding_window",),
    ),
    Slice(
        "sliding hits",
        Config(num_blocks=4, block_size=2, sliding_window=3),
        hits,
        ("sliding_window", "prefix_cache", "preempt"),
        with_tokens=True,
    ),
)
