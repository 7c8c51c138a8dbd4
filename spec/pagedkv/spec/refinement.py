"""Chapter 13. Refinement and invariants: what is true after every operation.

`alpha` reads the tokens back through the block tables. That alpha(L1) = L0 says at once that order is kept, that
requests are isolated, and that sharing and copying were never noticed. The invariants are the ledger of the pool.
Each is one sentence. At the end of every program stands the drain rule: once all requests are freed, pins undone and
steps ended, every block is available, and any request that fits the pool is admitted.
"""

from collections import Counter
from collections.abc import Callable

from pagedkv.spec.meaning import Meaning
from pagedkv.spec.state import Request, State
from pagedkv.spec.window import seen_by, sink_blocks
from pagedkv.spec.words import HOLE, Token, ceil_div


def alpha(state: State) -> Meaning:
    """Each request's tokens: those whose KV is resident are read through the table, the others are only known.

    >>> from pagedkv.spec import Config, admit, append, commit
    >>> s, _ = admit(State(Config(num_blocks=4, block_size=2)), "a", (5, 6, 7))
    >>> s, _ = commit(s, "a", 3)
    >>> s.requests["a"].table, s.contents[1], alpha(s)
    ((0, 1), (7,), {'a': (5, 6, 7)})
    """
    return {request: _read(state, r) for request, r in state.requests.items()}


def _read(state: State, r: Request) -> tuple[Token, ...]:
    bs, tokens = state.config.block_size, list(r.tokens)
    if r.residency == "resident":
        for i, block in enumerate(r.table[: ceil_div(r.computed, bs)]):
            if block != HOLE:
                written = min(r.computed, (i + 1) * bs) - i * bs
                if state.config.publish == "schedule":  # a hit may be ahead of its writer
                    written = min(written, len(state.contents[block]))
                tokens[i * bs : i * bs + written] = state.contents[block][:written]
    return tuple(tokens)


def every_block_is_of_one_kind(state: State) -> bool:
    """Every block is exactly one of used, idle and free, and held only if nobody refers to it."""
    used, idle = set(state.references), set(state.entries) - set(state.references)
    legal = set(range(state.config.num_blocks))
    return used | idle | set(state.held) <= legal and not used & set(state.held) and set(state.contents) == used | idle


def references_are_counted(state: State) -> bool:
    """A block's references are its occurrences in tables plus its pins, and a block with none has no count."""
    tables = Counter(b for r in state.requests.values() for b in r.table if b != HOLE)
    pins = Counter(b for stack in state.pins.values() for blocks in stack for b in blocks)
    return dict(tables + pins) == state.references


def no_block_stands_twice_in_a_table(state: State) -> bool:
    """No block stands twice in one table."""
    live = ([b for b in r.table if b != HOLE] for r in state.requests.values())
    return all(len(set(blocks)) == len(blocks) for blocks in live)


def tables_fit_their_lengths(state: State) -> bool:
    """A resident table has ceil(reserved / block_size) entries, and computed <= reserved, computed <= length."""
    bs = state.config.block_size
    resident = [r for r in state.requests.values() if r.residency == "resident"]
    absent = [r for r in state.requests.values() if r.residency != "resident"]
    fits = all(len(r.table) == ceil_div(r.reserved, bs) and r.computed <= min(r.reserved, r.length) for r in resident)
    return fits and all(r.table == () for r in absent)


def holes_follow_the_sinks(state: State) -> bool:
    """The holes of a table are one run that begins after the sinks."""
    sinks = sink_blocks(state.config)
    return all(r.table[sinks : sinks + r.holes] == (HOLE,) * r.holes for r in state.requests.values())


def what_the_next_query_sees_is_there(state: State) -> bool:
    """No hole is where the next query looks, so there are none without a window."""
    return all(
        r.table[position // state.config.block_size] != HOLE
        for r in state.requests.values()
        if r.holes
        for position in seen_by(state.config, r.computed)[:-1]
    )


def computed_positions_are_written(state: State) -> bool:
    """The slots of all computed positions are written; what a truncate left in a kept block is nobody's."""
    bs = state.config.block_size
    return state.config.publish == "schedule" or all(
        len(state.contents[block]) >= min(r.computed - i * bs, bs)
        for r in state.requests.values()
        for i, block in enumerate(r.table)
        if block != HOLE
    )


def entries_name_what_their_block_holds(state: State) -> bool:
    """An entry's identity is the full path of a full block, its last tokens are those that the block holds."""
    bs = state.config.block_size
    return all(
        len(identity.tokens) % bs == 0
        and identity.tokens[len(identity.tokens) - bs :][: len(state.contents[block])] == state.contents[block]
        and (state.config.publish == "schedule" or len(state.contents[block]) == bs)
        for block, identity in state.entries.items()
    )


def index_is_a_bijection(state: State) -> bool:
    """Every identity is held by one block, and every entry by one identity; without a prefix cache there are none."""
    inverse = {identity: block for block, identity in state.entries.items()}
    return inverse == state.index and (state.config.prefix_cache or not state.index)


def held_blocks_wait_for_steps_in_flight(state: State) -> bool:
    """A held block waits for at least one step, and only for steps in flight."""
    return all(steps and steps <= set(state.steps) for steps in state.held.values())


def swap_space_is_bounded(state: State) -> bool:
    """The blocks saved in swap space are at most swap_blocks."""
    return sum(c is not None for r in state.requests.values() for c in r.saved) <= state.config.swap_blocks


INVARIANTS: tuple[Callable[[State], bool], ...] = (
    every_block_is_of_one_kind,
    references_are_counted,
    no_block_stands_twice_in_a_table,
    tables_fit_their_lengths,
    holes_follow_the_sinks,
    what_the_next_query_sees_is_there,
    computed_positions_are_written,
    entries_name_what_their_block_holds,
    index_is_a_bijection,
    held_blocks_wait_for_steps_in_flight,
    swap_space_is_bounded,
)


def broken(state: State) -> list[str]:
    """The names of the invariants that do not hold; the empty list in every reachable state."""
    return [invariant.__name__ for invariant in INVARIANTS if not invariant(state)]
