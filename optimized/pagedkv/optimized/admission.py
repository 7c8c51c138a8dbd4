"""Admission: a request comes in, or comes back to be computed again.

First `plan_entry` finds hits and decides, changing nothing; then `seat` carries it out and cannot be refused.
"""

from typing import NamedTuple

from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.loops import calls
from pagedkv.optimized.loops.memory import NOTHING
from pagedkv.optimized.state import DONE, ManagerState
from pagedkv.spec.words import Namespace, Ok, Refused, ceil_div


class Entry(NamedTuple):
    """How a request will enter."""

    nodes: Int64
    """(num_blocks,): the path of each block that is hit."""
    reserved: int
    need: int
    """Available blocks that it takes."""
    refused: Refused | None
    """Why it cannot."""


class Hit(NamedTuple):
    """A present prefix that is good for all groups."""

    nodes: Int64
    """(num_blocks,): the path of each of its blocks."""
    owned: int
    """Blocks of it that are used,"""
    held: int
    """that are held,"""
    holes: int
    """and that windows would release at once, of all groups."""


def present(state: ManagerState, namespace: Namespace, tokens: Int32, limit: int) -> Hit:
    """The longest present prefix of these tokens, of at most `limit` blocks."""
    nodes = state.paths.find(namespace, tokens, limit).nodes
    if not len(nodes):
        return Hit(nodes, 0, 0, 0)
    size, owned, held, holes = calls.hit(state.journal.reading, nodes)
    return Hit(nodes[:size], owned, held, holes)


def plan_entry(state: ManagerState, namespace: Namespace, tokens: Int32, reserve: int, *, reads: bool = True) -> Entry:
    """Match all tokens but the last against the index, if it is read at all, and see whether the rest fits."""
    bs, num_groups = state.config.block_size, len(state.groups)
    hit = present(state, namespace, tokens, (len(tokens) - 1) // bs if reads else 0)
    reserved = max(reserve, len(hit.nodes) * bs)
    need = num_groups * ceil_div(reserved, bs) - hit.holes - hit.owned - hit.held
    total = num_groups * ceil_div(len(tokens), bs) - hit.holes
    return Entry(hit.nodes, reserved, need, state.refusal(need, total, entering=True, hit_held=hit.held))


def seat(state: ManagerState, row: int, length: int, entry: Entry) -> Ok:
    """Give a row of `length` tokens the tables that were planned for it, and make it resident."""
    info, nodes, path = state.rows.known(row), entry.nodes, NOTHING
    if info.publishes:
        path = int(nodes[-1]) if len(nodes) else state.paths.root(info.namespace)
    state.rows.fit_blocks(ceil_div(entry.reserved, state.config.block_size))
    calls.seat(state.journal.fields(), row, length, entry.reserved, path, nodes)
    state.index.settle()
    return Ok(cached_tokens=len(nodes) * state.config.block_size) if len(nodes) else DONE
