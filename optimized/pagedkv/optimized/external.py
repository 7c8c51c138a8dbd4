"""KV that comes from elsewhere, another machine or a slower tier. It may arrive late, or wrong, or not at all.

What a position holds follows from the tokens up to it. So wrong KV can be wherever a request has, or a path says, the
same tokens up to the first wrong position: it may have got there by a hit, a fork, or by looking at it while it was
computed. Copies, windows and evictions hide how, hence that alone decides. Who computed the same independently is
suspected, too, which costs time and nothing else.
"""

from typing import NamedTuple

import numpy as np

from pagedkv.optimized.admission import Entry, seat
from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.growth import slots_between
from pagedkv.optimized.loops.memory import NOTHING, RESIDENT
from pagedkv.optimized.residency import released, shorten
from pagedkv.optimized.rows import SWAPPED
from pagedkv.optimized.paths import are_same
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import Namespace, Ok, Reason, Refused, RequestId


class Affected(NamedTuple):
    """Another request with the same tokens up to the first wrong position: its KV from there on may be wrong, too."""

    request: RequestId
    from_position: int


class Invalidated(NamedTuple):
    """What `invalidate` found besides the request itself."""

    affected: tuple[Affected, ...]
    """To be invalidated, too; those that are swapped out, once they are back."""


def seat_external(state: ManagerState, row: int, length: int, entry: Entry, external: int) -> Ok:
    """Seat a request; `slots` of the positions from what was found here up to `external`, for who writes there."""
    outcome = seat(state, row, length, entry)
    cached = outcome.cached_tokens
    return Ok(cached_tokens=cached, slots=slots_between(state, row, cached, external))


def invalidate(state: ManagerState, row: int, from_position: int) -> Invalidated | Refused:
    """Roll the request back to `from_position`, its tokens but not their KV and slots, and forget every path on which
    such KV may lie."""
    rows = state.rows
    if released(state, row, min(from_position, int(rows.computed[row]))):
        return Refused(Reason.RELEASED)
    if from_position >= rows.computed[row]:
        return Invalidated(())
    namespace, tokens = rows.known(row).namespace, rows.tokens[row, : from_position + 1]
    affected = tuple(Affected(other, from_position) for other in alike(state, row, namespace, tokens))
    state.pool.drop_entries(entries_along(state, namespace, tokens))
    shorten(state, row, from_position)
    return Invalidated(affected)


def alike(state: ManagerState, row: int, namespace: Namespace, tokens: Int32) -> list[RequestId]:
    """Other requests of this namespace that begin with these tokens, and have computed as many positions."""
    rows = state.rows
    computed = (rows.computed >= len(tokens)) & ((rows.state == RESIDENT) | (rows.state == SWAPPED))
    found: list[RequestId] = []
    for other in np.flatnonzero(computed).tolist():
        info = rows.known(other)
        same = are_same(info.namespace, namespace) and np.array_equal(rows.tokens[other, : len(tokens)], tokens)
        if other != row and same:
            found.append(info.request)
    return found


def entries_along(state: ManagerState, namespace: Namespace, tokens: Int32) -> Int64:
    """The blocks with an entry whose path begins with these tokens, the last of which may stand inside a block."""
    paths, bs = state.paths, state.config.block_size
    whole = (len(tokens) - 1) // bs
    way = paths.find(namespace, tokens, whole)
    if way.end == NOTHING or len(way.nodes) < whole:
        return np.empty(0, np.int64)
    last = tokens[whole * bs :]
    nodes = np.array([node for node in paths.nodes() if paths.parent[node] == way.end], np.int64)
    here = (paths.tokens[nodes, : len(last)] == last).all(axis=1)
    holders = paths.blocks[paths.below(nodes[here].tolist())].reshape(-1)
    blocks: Int64 = holders[holders != NOTHING].astype(np.int64)
    return blocks
