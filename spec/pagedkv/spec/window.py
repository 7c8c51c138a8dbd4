"""Chapter 6. The sliding window decides what is kept; paging decides where.

With a window of W a query at position p sees the positions p - W + 1 … p. A position is *dead* when no query to come
can see it, not even after a rollback of `max_rollback`. A block that holds only dead positions is released, and the
table keeps a named hole, so that the indices after it stay aligned. An implementation may release later; what is
dead counts as available at once.
"""

from dataclasses import replace

from pagedkv.spec.blocks import release
from pagedkv.spec.state import State
from pagedkv.spec.words import HOLE, Config, RequestId


def dead_blocks(config: Config, computed: int) -> int:
    """Leading blocks that hold only dead positions once `computed` positions are written.

    >>> config = Config(num_blocks=8, block_size=2, sliding_window=4)
    >>> [dead_blocks(config, computed) for computed in (4, 5, 6, 7)]  # at 5 the next query sees 2, 3, 4 and itself
    [0, 1, 1, 2]
    """
    if config.sliding_window is None:
        return 0
    return max(0, computed - config.sliding_window + 1 - config.max_rollback) // config.block_size


def needed_from(config: Config, computed: int) -> int:
    """The first position that the query at `computed` sees."""
    return 0 if config.sliding_window is None else max(0, computed - config.sliding_window + 1)


def release_dead(state: State, request: RequestId) -> None:
    """Turn the blocks that have died into holes. An indexed one becomes idle, and can still be hit."""
    r = state.requests[request]
    holes = max(r.holes, dead_blocks(state.config, r.computed))
    for block in reversed(r.table[r.holes : holes]):
        release(state, block)
    state.requests[request] = replace(r, table=(HOLE,) * holes + r.table[holes:])
