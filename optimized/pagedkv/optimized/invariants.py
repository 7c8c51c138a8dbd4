"""Every invariant of a manager, verified from its arrays alone. Each law is one function and one sentence."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from pagedkv.optimized.arguments import Int32
from pagedkv.optimized.index import Node, path_tokens
from pagedkv.optimized.rows import RESIDENT, SWAPPED
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import HOLE, ceil_div


class InvariantBroken(AssertionError):
    """The manager's own books do not agree; `law` is the name of the invariant."""

    def __init__(self, law: str) -> None:
        super().__init__(law.replace("_", " "))
        self.law = law


def resident_rows(state: ManagerState) -> list[int]:
    """The rows of resident requests."""
    rows: list[int] = np.flatnonzero(state.rows.state == RESIDENT).tolist()
    return rows


def every_block_is_free_used_or_idle(state: ManagerState) -> bool:
    """Each block is on the free stack, used, in the idle queue, or held and unknown; exactly one of them."""
    pool, indexed = state.pool, state.index.indexed
    limbo = np.array([b for b in pool.held if not indexed[b]], np.int32)
    used = np.flatnonzero(pool.references)
    everything = np.concatenate((pool.free_blocks(), used, pool.idle.blocks(), limbo))
    once = np.array_equal(np.sort(everything), np.arange(pool.num_blocks))
    return once and len(used) == pool.used and len(pool.idle) == len(pool.idle.blocks())


def idle_blocks_are_the_indexed_unused_ones(state: ManagerState) -> bool:
    """The idle queue holds exactly the blocks with an entry and without references."""
    idle = np.flatnonzero(state.index.indexed & (state.pool.references == 0))
    return np.array_equal(np.sort(state.pool.idle.blocks()), idle)


def held_blocks_are_unused_and_wait_in_order(state: ManagerState) -> bool:
    """Held blocks have no references, wait for a step in flight, and stand in the order of their release; the held
    idle ones are the last in the idle queue."""
    pool = state.pool
    waits, oldest = list(pool.held.values()), next(iter(pool.steps.values()), None)
    waiting = all(oldest is not None and oldest < number for number in waits)
    held_idle = [b in pool.held for b in pool.idle.blocks().tolist()]
    unused = not any(pool.references[b] for b in pool.held)
    return unused and waiting and waits == sorted(waits) and held_idle == sorted(held_idle)


def references_are_counted(state: ManagerState) -> bool:
    """A block's references are its occurrences in tables plus its pins."""
    owned: list[Int32] = [state.rows.live(row) for row in resident_rows(state)]
    owned += [blocks for stack in state.pins.values() for blocks in stack]
    blocks = np.concatenate(owned) if owned else np.empty(0, np.int32)
    return np.array_equal(np.bincount(blocks, minlength=state.pool.num_blocks), state.pool.references)


def tables_fit_their_lengths(state: ManagerState) -> bool:
    """A resident table has ceil(reserved / block_size) distinct entries, holes first, and computed <= reserved."""
    rows, bs = state.rows, state.config.block_size
    return rows.resident == len(resident_rows(state)) and all(
        rows.blocks[row] == ceil_div(int(rows.reserved[row]), bs)
        and rows.computed[row] <= min(rows.reserved[row], rows.length[row])
        and len(np.unique(rows.live(row))) == len(rows.live(row))
        and (rows.table(row)[: rows.holes[row]] == HOLE).all()
        and (rows.live(row) != HOLE).all()
        and rows.holes[row] <= state.dead_blocks(int(rows.computed[row]) + int(state.config.max_rollback))
        for row in resident_rows(state)
    )


def only_the_next_block_is_shared(state: ManagerState) -> bool:
    """Table entries after the one that the next write falls into have one owner and no entry, so growth copies at most
    one block."""
    rows = state.rows
    for row in resident_rows(state):
        start = min(int(rows.reserved[row]), int(rows.length[row]))
        ahead = rows.table(row)[start // state.config.block_size + 1 :]
        if (state.pool.references[ahead] != 1).any() or state.index.indexed[ahead].any():
            return False
    return True


def entries_are_full_blocks_of_their_path(state: ManagerState) -> bool:
    """Each indexed block is known to its node and the node to it, and without a prefix cache there is none."""
    nodes = list(state.index.nodes())
    entries = dict(state.index.entries())
    mutual = all(node.block == block for block, node in entries.items())
    return (
        mutual
        and {id(n) for n in nodes if n.block >= 0} == {id(n) for n in entries.values()}
        and (state.config.prefix_cache or not nodes)
    )


def nodes_have_the_users_that_they_count(state: ManagerState) -> bool:
    """A path is kept exactly as long as an entry, a longer path or a request needs it."""
    nodes: list[Node] = list(state.index.nodes())
    users = Counter(id(node) for node in state.rows.cursor if node is not None)
    users += Counter(id(node.parent) for node in nodes if node.parent is not None)
    users += Counter(id(node) for node in nodes if node.block >= 0)
    return {id(node): node.users for node in nodes} == users


def cursors_are_the_computed_paths(state: ManagerState) -> bool:
    """The path kept for a request is that of its full computed blocks, in its namespace."""
    rows, bs = state.rows, state.config.block_size
    for row in np.flatnonzero((rows.state == RESIDENT) | (rows.state == SWAPPED)).tolist():
        node, full = rows.cursor[row], int(rows.computed[row]) // bs * bs
        if (node is not None) != state.config.prefix_cache:
            return False
        if node is not None and not (
            node.namespace == rows.namespace[row] and np.array_equal(path_tokens(node), rows.tokens[row, :full])
        ):
            return False
    return True


def swap_blocks_are_free_or_saved_into(state: ManagerState) -> bool:
    """Each block of swap space is free or holds one live block of one swapped request."""
    rows, space = state.rows, list(state.swap_free)
    for row, saved in enumerate(rows.saved):
        if (saved is not None) != (rows.state[row] == SWAPPED):
            return False
        if saved is not None:
            space += saved.tolist()
            if len(saved) != ceil_div(int(rows.reserved[row]), state.config.block_size) - rows.holes[row]:
                return False
    return sorted(space) == list(range(state.config.swap_blocks))


INVARIANTS: tuple[Callable[[ManagerState], bool], ...] = (
    every_block_is_free_used_or_idle,
    idle_blocks_are_the_indexed_unused_ones,
    held_blocks_are_unused_and_wait_in_order,
    references_are_counted,
    tables_fit_their_lengths,
    only_the_next_block_is_shared,
    entries_are_full_blocks_of_their_path,
    nodes_have_the_users_that_they_count,
    cursors_are_the_computed_paths,
    swap_blocks_are_free_or_saved_into,
)


def check(state: ManagerState) -> None:
    """Raise `InvariantBroken` for the first invariant that does not hold."""
    for invariant in INVARIANTS:
        if not invariant(state):
            raise InvariantBroken(invariant.__name__)
