"""Chapter 6. The sliding window decides what is kept; paging decides where.

With a window of W a query at position p sees the positions p - W + 1 … p, and of a text that has *sinks* also the first
`sink_tokens` positions, for ever: models whose layers look through a window may need the beginning of a text, whatever
it says, as a place for weight that nothing else draws (Xiao et al., "Efficient Streaming Language Models with
Attention Sinks", ICLR 2024, §3). These sinks are positions with KV. The learned sinks of the attention chapter are
logits, and no positions at all.

A position is *dead* when no query to come can see it, not even after a rollback of `max_rollback`. A block that holds
only dead positions is released, and the table keeps a named hole, so that the indices after it stay aligned. A table
is therefore sinks, holes, and what lives. An implementation may release later; what is dead counts as available at
once.
"""

from dataclasses import replace

from pagedkv.spec.blocks import release
from pagedkv.spec.state import State
from pagedkv.spec.words import HOLE, Config, RequestId, ceil_div


def sink_blocks(config: Config) -> int:
    """Leading blocks that hold sinks, the last one perhaps with other positions, too: they never die."""
    return 0 if config.sliding_window is None else ceil_div(config.sink_tokens, config.block_size)


def dead_blocks(config: Config, computed: int) -> range:
    """The logical indices of the blocks that hold only dead positions once `computed` positions are written.

    >>> config = Config(num_blocks=8, block_size=2, sliding_window=4)
    >>> [len(dead_blocks(config, computed)) for computed in (4, 5, 6, 7)]  # at 5 the next query sees 2, 3, 4 and itself
    [0, 1, 1, 2]
    >>> dead_blocks(Config(num_blocks=8, block_size=2, sliding_window=4, sink_tokens=1), 9)
    range(1, 3)
    """
    sinks = sink_blocks(config)
    if config.sliding_window is None:
        return range(0)
    dead = max(0, computed - config.sliding_window + 1 - config.max_rollback)
    return range(sinks, max(sinks, dead // config.block_size))


def window_start(config: Config, position: int) -> int:
    """Where the window of the query at `position` begins."""
    return 0 if config.sliding_window is None else max(0, position - config.sliding_window + 1)


def seen_by(config: Config, position: int) -> tuple[int, ...]:
    """The positions that the query at `position` sees, itself included.

    >>> seen_by(Config(num_blocks=8, block_size=2, sliding_window=2, sink_tokens=1), 5)
    (0, 4, 5)
    """
    start = window_start(config, position)
    return (*range(min(config.sink_tokens, start)), *range(start, position + 1))


def release_dead(state: State, request: RequestId) -> None:
    """Turn the blocks that have died into holes. An indexed one becomes idle, and can still be hit."""
    r = state.requests[request]
    died = dead_blocks(state.config, r.computed)[r.holes :]  # after a rollback there may be more holes than dead blocks
    for i in reversed(died):
        release(state, r.table[i])
    table = r.table[: died.start] + (HOLE,) * len(died) + r.table[died.stop :]
    state.requests[request] = replace(r, table=table)
