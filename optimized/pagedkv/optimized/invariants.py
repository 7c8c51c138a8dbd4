"""Every invariant of a manager, verified from its arrays alone. Each law is one function and one sentence."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from pagedkv.optimized.loops.arrays import Int64
from pagedkv.optimized.loops.memory import NOTHING, NUM_SWAP_FREE, OTHERS, RESIDENT, STEPS, UNKNOWN, USED_INDEXED
from pagedkv.optimized.paths import are_same
from pagedkv.optimized.rows import SWAPPED
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import HOLE, ceil_div


class InvariantBroken(AssertionError):
    """The manager's own books do not agree; `law` is the name of the invariant."""

    def __init__(self, law: str) -> None:
        super().__init__(law.replace("_", " "))
        self.law = law


def rows_in(state: ManagerState, *states: int) -> list[int]:
    """The rows in one of these states."""
    rows: list[int] = np.flatnonzero(np.isin(state.rows.state, states)).tolist()
    return rows


def every_block_is_free_used_idle_or_leased(state: ManagerState) -> bool:
    """Each block is in the chain of free ones, used, in that of idle ones, held and unknown, or leased; exactly one of
    them."""
    pool, held, idle = state.pool, state.pool.held_blocks(), state.pool.idle_blocks()
    limbo = held[~state.index.has_entry(held)]
    used = np.setdiff1d(np.flatnonzero(pool.references), pool.leased)
    everything = np.concatenate((pool.free_blocks(), used, idle, limbo, pool.leased))
    once = np.array_equal(np.sort(everything), np.arange(pool.num_blocks)) and state.journal.counters[STEPS] == len(
        pool.steps
    )
    return once and len(used) == pool.used and len(idle) == pool.idle and len(held) == pool.held


def idle_blocks_are_the_indexed_unused_ones(state: ManagerState) -> bool:
    """The chain of idle blocks holds exactly the blocks with an entry and without references; those with both are
    counted."""
    idle = np.flatnonzero((state.index.entry != NOTHING) & (state.pool.references == 0))
    used = np.count_nonzero((state.index.entry != NOTHING) & (state.pool.references > 0))
    return np.array_equal(np.sort(state.pool.idle_blocks()), idle) and used == state.journal.counters[USED_INDEXED]


def held_blocks_are_unused_and_wait_in_order(state: ManagerState) -> bool:
    """Held blocks have no references, wait for a step in flight, and stand in the order of their release; the held
    idle ones are the last in the chain of idle ones."""
    pool, held = state.pool, state.pool.held_blocks()
    waits, oldest = pool.releases(held), next(iter(pool.steps.values()), 0)
    held_idle = pool.is_held(pool.idle_blocks())
    in_order = (np.diff(waits) >= 0).all() and (np.diff(held_idle.astype(int)) >= 0).all()
    waiting = (oldest < waits).all() and (oldest > 0 or not len(held))
    return bool(in_order and waiting and not pool.references[held].any())


def references_are_counted(state: ManagerState) -> bool:
    """A block's references are its occurrences in tables plus its pins, and one if it is leased."""
    owned: list[Int64] = [state.rows.live(g, row) for row in rows_in(state, RESIDENT) for g in state.groups]
    owned += [blocks for stack in state.pins.values() for blocks in stack]
    blocks = np.concatenate([*owned, state.pool.leased])
    return np.array_equal(np.bincount(blocks, minlength=state.pool.num_blocks), state.pool.references)


def leased_blocks_are_nobody_elses(state: ManagerState) -> bool:
    """Leased blocks stand in order, each with the one reference that is the lease, and cannot be found."""
    leased = state.pool.leased
    alone = (state.pool.references[leased] == 1).all() and not state.index.has_entry(leased).any()
    return bool(alone and (np.diff(leased) > 0).all())


def tables_fit_their_lengths(state: ManagerState) -> bool:
    """A resident table has ceil(reserved / block_size) distinct entries, holes after the sinks, and computed <=
    reserved."""
    rows, bs = state.rows, state.config.block_size
    for row in rows_in(state, RESIDENT):
        count, computed = int(rows.blocks[row]), int(rows.computed[row])
        if count != ceil_div(int(rows.reserved[row]), bs) or computed > min(rows.reserved[row], rows.length[row]):
            return False
        for group in state.groups:
            table, live, sinks = rows.tables[group, row, :count], rows.live(group, row), rows.sinks[group]
            holes = int(rows.holes[group][row])
            if len(np.unique(live)) != len(live) or len(live) + holes != count:
                return False
            if (table[sinks : sinks + holes] != HOLE).any():
                return False
            if holes > state.windows.holes(group, computed + state.config.max_rollback):
                return False
    return rows.resident == len(rows_in(state, RESIDENT))


def only_the_next_block_is_shared(state: ManagerState) -> bool:
    """Table entries after the one that the next write falls into have one owner and no entry, so growth copies at most
    one block of each group."""
    rows = state.rows
    for row in rows_in(state, RESIDENT):
        start = min(int(rows.reserved[row]), int(rows.length[row]))
        ahead = rows.tables[:, row, start // state.config.block_size + 1 : rows.blocks[row]]
        if (state.pool.references[ahead] != 1).any() or (state.index.entry[ahead] != NOTHING).any():
            return False
    return True


def entries_are_full_blocks_of_their_path(state: ManagerState) -> bool:
    """Each indexed block is known to its path and the path to it, and without a prefix cache there is none."""
    index, nodes = state.index, state.paths.nodes()
    indexed = np.flatnonzero(index.entry != NOTHING)
    mutual = np.array_equal(state.paths.blocks.reshape(-1)[index.entry[indexed]], indexed)
    known = int((state.paths.blocks[nodes] != NOTHING).sum()) if nodes else 0
    strays = int((state.paths.blocks != NOTHING).sum())
    return mutual and known == strays == len(indexed) and (state.config.prefix_cache or not nodes)


def paths_have_the_users_that_they_count(state: ManagerState) -> bool:
    """A path is kept exactly as long as an entry, a longer path or a request needs it."""
    nodes = state.paths.nodes()
    users = Counter(state.rows.path[rows_in(state, RESIDENT, SWAPPED)].tolist())
    users += Counter(state.paths.parent[nodes].tolist())
    for node in nodes:
        users[node] += int((state.paths.blocks[node] != NOTHING).sum())
    del users[NOTHING]
    return {node: int(state.paths.users[node]) for node in nodes} == users


def paths_are_found(state: ManagerState) -> bool:
    """Every path is found from the one before it, and so from its namespace on; a path without children says so."""
    paths, parents = state.paths, set(state.paths.parent[state.paths.nodes()].tolist())
    for node in paths.nodes():
        if not paths.finds(node):
            return False
        child = int(paths.first_child[node])
        if (child == NOTHING and node in parents) or (child not in (NOTHING, OTHERS) and paths.parent[child] != node):
            return False
    return True


def cursors_are_the_computed_paths(state: ManagerState) -> bool:
    """The path kept for a request is that of its full computed blocks, in its namespace."""
    rows, bs = state.rows, state.config.block_size
    for row in rows_in(state, RESIDENT, SWAPPED):
        node, full = int(rows.path[row]), int(rows.computed[row]) // bs * bs
        if (node != NOTHING) != rows.known(row).publishes:
            return False
        if node != NOTHING:
            namespace, tokens = state.paths.path_of(node)
            if not are_same(namespace, rows.known(row).namespace) or not np.array_equal(
                tokens, rows.tokens[row, :full]
            ):
                return False
    return True


def swap_blocks_are_free_or_saved_into(state: ManagerState) -> bool:
    """Each block of swap space is free or holds one live block of one swapped request."""
    rows, space = state.rows, state.swap_free[: state.journal.counters[NUM_SWAP_FREE]].tolist()
    for row, info in enumerate(rows.info):
        saved = None if info is None else info.saved
        if (saved is not None) != (rows.state[row] == SWAPPED):
            return False
        if saved is not None:
            space += saved.tolist()
            size, holes = len(state.groups), sum(int(holes[row]) for holes in rows.holes)
            if len(saved) != size * ceil_div(int(rows.reserved[row]), state.config.block_size) - holes:
                return False
    return sorted(space) == list(range(state.config.swap_blocks))


def requests_have_rows(state: ManagerState) -> bool:
    """Every id names a row that knows it, and every row that is not absent has an id."""
    rows = state.rows
    named = {row: request for request, row in rows.row_of.items()}
    known = {row: info.request for row, info in enumerate(rows.info) if info is not None}
    return named == known and sorted(named) == np.flatnonzero(rows.state).tolist()


def room_is_there(state: ManagerState) -> bool:
    """The room of a row, if known, is what is left of its table past its length, in blocks of its own without
    entries."""
    rows, bs = state.rows, state.config.block_size
    for row in rows_in(state, RESIDENT):
        room, length = int(rows.room[row]), int(rows.length[row])
        if room == UNKNOWN:
            continue
        written = rows.tables[:, row, length // bs : rows.blocks[row]]
        if rows.reserved[row] < length or length + room != rows.blocks[row] * bs:
            return False
        if (state.pool.references[written] != 1).any() or (state.index.entry[written] != NOTHING).any():
            return False
    return True


INVARIANTS: tuple[Callable[[ManagerState], bool], ...] = (
    every_block_is_free_used_idle_or_leased,
    idle_blocks_are_the_indexed_unused_ones,
    held_blocks_are_unused_and_wait_in_order,
    references_are_counted,
    leased_blocks_are_nobody_elses,
    tables_fit_their_lengths,
    only_the_next_block_is_shared,
    entries_are_full_blocks_of_their_path,
    paths_have_the_users_that_they_count,
    paths_are_found,
    cursors_are_the_computed_paths,
    swap_blocks_are_free_or_saved_into,
    requests_have_rows,
    room_is_there,
)


def check(state: ManagerState) -> None:
    """Raise `InvariantBroken` for the first invariant that does not hold."""
    for invariant in INVARIANTS:
        if not invariant(state):
            raise InvariantBroken(invariant.__name__)
