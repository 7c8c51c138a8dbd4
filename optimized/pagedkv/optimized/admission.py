"""Admission: a request comes in, or comes back to be computed again.

First `plan_entry` finds hits and decides, changing nothing; then `seat` carries it out and cannot be refused.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.arguments import Int32, Int64
from pagedkv.optimized.paths import NOTHING
from pagedkv.optimized.rows import RESIDENT, UNKNOWN
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import Namespace, Ok, Refused, ceil_div


class Hit(NamedTuple):
    """A present prefix."""

    size: int
    """Blocks."""
    node: int
    """Its path, or NOTHING."""
    blocks: Int32
    """(count, num_groups): what holds it; where a window does not look perhaps NOTHING."""


class Entry(NamedTuple):
    """How a request will enter."""

    cached: int
    """Positions that were found."""
    node: int
    """What was found, as a path; NOTHING if nothing was."""
    hits: tuple[Int64, ...]
    """Of each group, the blocks that hold them, but for the holes."""
    holes: tuple[int, ...]
    """Of each group, the blocks that its window would release at once."""
    fresh: int
    """Blocks to take for each group."""
    reserved: int
    need: int
    """Available blocks that it takes."""
    refused: Refused | None
    """Why it cannot."""


def present(state: ManagerState, namespace: Namespace, tokens: Int32, limit: int) -> Hit:
    """The longest present prefix that is good for all groups, of at most `limit` blocks."""
    nodes = state.paths.find(namespace, tokens, limit).nodes
    if not len(nodes):
        return Hit(0, NOTHING, state.paths.blocks[:0])
    blocks: Int32 = state.paths.blocks.take(nodes, axis=0)
    missing = blocks == NOTHING
    count = len(nodes)
    if missing.any():
        count = int(missing[:, 0].argmax()) if state.whole_prefix else longest_good(state, missing)
    return Hit(count, int(nodes[count - 1]) if count else NOTHING, blocks[:count])


def longest_good(state: ManagerState, missing: NDArray[np.bool_]) -> int:
    """How many blocks may be hit if some are `missing`, (num_blocks, num_groups). A group of full attention needs all
    of them; one with a window its sinks and what its window will look at."""
    lengths = np.arange(1, len(missing) + 1)
    good = np.ones(len(missing), np.bool_)
    for group in state.groups:
        last_missing = np.maximum.accumulate(np.where(missing[:, group], lengths, 0))  # counted from 1; 0: none
        holes, sinks = state.windows.each_holes(group, lengths * state.config.block_size), state.windows.sinks[group]
        sinks_present = not missing[:sinks, group].any()
        good &= (last_missing == 0) | ((holes > 0) & (last_missing <= sinks + holes) & sinks_present)
    return int(lengths[good][-1]) if good.any() else 0


def without_holes(state: ManagerState, hit: Hit) -> tuple[tuple[int, ...], tuple[Int64, ...]]:
    """The holes that the windows make in a hit, and the blocks that are left, of each group."""
    if not state.windows.sliding:
        return (0,) * len(state.groups), tuple(hit.blocks.T.astype(np.int64))
    holes, kept = state.windows.all_holes(hit.size * state.config.block_size), list[Int64]()
    for blocks, sinks, released in zip(hit.blocks.T, state.windows.sinks, holes, strict=True):
        kept.append(np.delete(blocks, slice(sinks, sinks + released)).astype(np.int64))
    return holes, tuple(kept)


def plan_entry(state: ManagerState, namespace: Namespace, tokens: Int32, reserve: int, *, reads: bool = True) -> Entry:
    """Match all tokens but the last against the index, if it is read at all, and see whether the rest fits."""
    bs = state.config.block_size
    hit = present(state, namespace, tokens, (len(tokens) - 1) // bs if reads else 0)
    cached = hit.size * bs
    reserved = max(reserve, cached)
    holes, hits = without_holes(state, hit)
    owned = held = 0
    for blocks in hits if hit.size else ():
        owned += int(np.count_nonzero(state.pool.references.take(blocks)))
        held += int(np.count_nonzero(state.pool.is_held(blocks)))
    size = len(holes)
    need = size * ceil_div(reserved, bs) - sum(holes) - owned - held
    total = size * ceil_div(len(tokens), bs) - sum(holes)
    refused = state.refusal(need, total, entering=True, hit_held=held)
    return Entry(cached, hit.node, hits, holes, ceil_div(reserved, bs) - hit.size, reserved, need, refused)


def seat(state: ManagerState, row: int, length: int, entry: Entry) -> Ok:
    """Give a row of `length` tokens the tables that were planned for it, and make it resident."""
    rows, info = state.rows, state.rows.known(row)
    node = NOTHING
    if info.publishes:
        node = entry.node if entry.node != NOTHING else state.paths.root(info.namespace)
        state.paths.hold(node)
    for hits in entry.hits if entry.cached else ():
        state.pool.acquire(hits)  # before taking, so that no hit is evicted
    fresh = state.pool.take(entry.fresh * len(entry.holes))
    count = ceil_div(entry.reserved, state.config.block_size)
    rows.fit_blocks(count)
    for group in state.groups:
        own = fresh[group * entry.fresh : (group + 1) * entry.fresh]
        rows.set_table(group, row, entry.holes[group], entry.hits[group], own)
    room = count * state.config.block_size - length if entry.reserved >= length else UNKNOWN
    rows.set_numbers(row, RESIDENT, length, entry.reserved, entry.cached, count, node, room, entry.holes)
    return Ok(cached_tokens=entry.cached)
