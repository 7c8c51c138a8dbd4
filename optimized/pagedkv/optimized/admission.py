"""Admission: a request comes in, or comes back to be computed again.

First `plan_entry` finds hits and decides, changing nothing; then `seat` carries it out and cannot fail.
"""

from typing import NamedTuple

from pagedkv.optimized.arguments import Int32
from pagedkv.optimized.index import Node
from pagedkv.optimized.rows import RESIDENT
from pagedkv.optimized.state import ManagerState, blocks_of
from pagedkv.spec.words import Namespace, Ok, Refused, ceil_div


class Entry(NamedTuple):
    """How a request will enter."""

    cached: int
    """Positions that were found."""
    path: Node | None
    """What was found, as a path; None without a prefix cache."""
    hits: Int32
    """The blocks that hold them, but for the first `holes`, which a window would release at once."""
    holes: int
    fresh: int
    """Blocks to take."""
    reserved: int


def plan_entry(state: ManagerState, namespace: Namespace, tokens: Int32, reserve: int) -> Entry | Refused:
    """Match all tokens but the last against the index, and see whether the rest fits."""
    bs = state.config.block_size
    nodes = state.match(namespace, tokens, (len(tokens) - 1) // bs)
    cached = len(nodes) * bs
    reserved = max(reserve, cached)
    holes = state.dead_blocks(cached)
    hits = blocks_of(nodes[holes:])
    shared = int((state.pool.references[hits] > 0).sum())
    need = ceil_div(reserved, bs) - holes - shared
    if refused := state.refusal(need, ceil_div(len(tokens), bs) - holes, entering=True):
        return refused
    path = nodes[-1] if nodes else None
    if state.config.prefix_cache:  # here, since a new namespace may have no repr to hash, and nothing has changed yet
        path = path or state.index.root(namespace)
    return Entry(cached, path, hits, holes, ceil_div(reserved, bs) - len(nodes), reserved)


def seat(state: ManagerState, row: int, entry: Entry) -> Ok:
    """Give a row the table that was planned for it, and make it resident."""
    rows = state.rows
    state.pool.acquire(entry.hits)  # before taking, so that no hit is evicted
    state.move_cursor(row, entry.path)
    rows.set_table(row, entry.holes, entry.hits, state.pool.take(entry.fresh))
    rows.reserved[row], rows.computed[row] = entry.reserved, entry.cached
    rows.set_state(row, RESIDENT)
    state.hit_tokens += entry.cached
    return Ok(cached_tokens=entry.cached)
