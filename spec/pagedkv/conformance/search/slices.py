"""The slices of the exhaustive check: small pools, each with the moves that one part of the contract is about."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pagedkv.conformance.search import moves
from pagedkv.conformance.search.moves import Move
from pagedkv.spec import Config, State


@dataclass(frozen=True)
class Slice:
    """A pool, its moves, and the capabilities that they need."""

    name: str
    config: Config
    moves: Callable[[State], Iterator[Move]]
    requires: tuple[str, ...]
    unless: str = ""
    """The slice that has these moves and more: who can run that one has no need of this one."""
    with_tokens: bool = False
    """Whether states that differ only in their tokens are different states."""


_CORE = Config(num_blocks=6, block_size=2, prefix_cache=False)
"""As in the figures of the paper."""
_POOL = Config(num_blocks=4, block_size=2)
_NO_INDEX = Config(num_blocks=4, block_size=2, prefix_cache=False)
_SMALL = Config(num_blocks=3, block_size=1)
_WINDOW = Config(num_blocks=5, block_size=1, prefix_cache=False, sliding_window=2, max_rollback=1)

SLICES = {
    part.name: part
    for part in (
        Slice("plain", _CORE, moves.plain, (), "core"),
        Slice("core", _CORE, moves.core, ("fork",)),
        Slice("truncate", _NO_INDEX, moves.truncate, ("truncate",), "rewind"),
        Slice("rewind", _NO_INDEX, moves.rewind, ("truncate", "fork")),
        Slice("chunks", replace(_NO_INDEX, num_blocks=3), moves.chunks, ("reserve",)),
        Slice("returns", _NO_INDEX, moves.returns, ("preempt",)),
        Slice("hits", _POOL, moves.hits, ("prefix_cache",), "lookups", with_tokens=True),
        Slice("lookups", _POOL, moves.lookups, ("prefix_cache", "lookup"), with_tokens=True),
        Slice(
            "rewritten", replace(_POOL, num_blocks=3), moves.rewritten, ("prefix_cache", "truncate"), with_tokens=True
        ),
        Slice("siblings", _NO_INDEX, moves.siblings, ("fork", "batch")),
        Slice("index", _SMALL, moves.index, ("prefix_cache", "evict"), with_tokens=True),
        Slice("pins", _SMALL, moves.pins, ("pins", "evict", "truncate"), with_tokens=True),
        Slice(
            "steps",
            Config(num_blocks=4, block_size=1, overlapped_steps=True),
            moves.steps,
            ("overlapped_steps", "fork"),
        ),
        Slice(
            "swap", Config(num_blocks=4, block_size=2, prefix_cache=False, swap_blocks=2), moves.swap, ("swap", "fork")
        ),
        Slice("window", _WINDOW, moves.window, ("sliding_window", "truncate", "reserve", "fork")),
        Slice("rolling", _WINDOW, moves.rolling, ("sliding_window", "truncate", "fork"), "window"),
        Slice("sliding", _WINDOW, moves.sliding, ("sliding_window",), "rolling"),
        Slice(
            "sliding_hits",
            Config(num_blocks=4, block_size=2, sliding_window=3),
            moves.hits,
            ("sliding_window", "prefix_cache"),
            with_tokens=True,
        ),
        Slice(
            "sinks",
            Config(num_blocks=4, block_size=2, sliding_window=1, sink_tokens=1, max_rollback=1, swap_blocks=2),
            moves.sinks,
            ("sliding_window", "sink_tokens", "prefix_cache", "evict", "swap", "truncate", "fork"),
        ),
    )
}
"""By name. `core` is the one of the paper's figures: 6 blocks, 3 requests."""
