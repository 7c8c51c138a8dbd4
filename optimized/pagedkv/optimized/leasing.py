"""Blocks on lease to a pool on a device, which hands them out by itself, and requests that come back from there.

A leased block is a used block whose one reference is the lease: no table names it, and no entry. So whatever takes,
shares, holds or evicts blocks passes it by, as it does a block of somebody else's, and need not know what a lease is.
What is leased is a list of ids beside that. To adopt a block is to strike it off the list: the table of a request names
it from then on, and its one reference is that.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pagedkv.optimized import commits
from pagedkv.optimized.arguments import Integers, Tokens, int_array, integer, token_array
from pagedkv.optimized.core import ManagerCore, atomic
from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.loops.memory import BLOCKS, HOLES, LENGTH, NOTHING, RESERVED, ROOM, UNKNOWN
from pagedkv.optimized.state import DONE, ManagerState
from pagedkv.spec.words import HOLE, Block, Misuse, Ok, Refused, RequestId, ceil_div


class Leased(NamedTuple):
    """What `lease` answers."""

    blocks: tuple[Block, ...]
    """Nobody else's until they are returned or adopted."""


class Leasing(ManagerCore):
    """Blocks go to a device, and come back: free, or as those of a request."""

    @atomic
    def lease(self, blocks: int) -> Leased | Refused:
        """Take so many blocks out of what is available, those that an admission would take: free ones first, then the
        longest idle. Refused as `unservable` if the pool has no more than that, as `in_flight`, or for `capacity`."""
        count = integer("blocks", blocks, 1)
        if refused := self._state.refusal(count, count):
            return refused
        return Leased(tuple(self._state.pool.lease(count).tolist()))

    @atomic
    def return_lease(self, blocks: Integers) -> Ok:
        """These blocks, leased and each named once, are free again; held, if steps are in flight that may read them."""
        pool, allowed = self._state.pool, "blocks that are leased, each named once"
        given = block_array("blocks", blocks, 0, allowed, pool.num_blocks)
        if len(np.unique(given)) < len(given) or not np.isin(given, pool.leased).all():
            raise Misuse("blocks", blocks, allowed)
        pool.end_lease(given)
        pool.release(given[::-1])  # so that the first is the next to be taken
        return DONE

    @atomic
    def adopt(self, request: RequestId, tokens: Tokens, table: Integers) -> Ok:
        """A resident request comes back from the device, longer: these are all its `tokens`, all computed, and this is
        its whole `table`, ceil(len(tokens) / block_size) entries. Full blocks may be found, as after `commit`.

        An entry is the block that stands there here, or a leased one, which is the request's from now on; or, with a
        window, HOLE where a block is dead. Blocks that are replaced or left out are released. Where the device has
        written on, at min(reserved, length), a block that others own or can find must have been replaced: `reserve`
        of one position more makes sure that there is none. Misuse with several cache groups."""
        state = self._state
        row = state.rows.find_resident("request", request)
        if len(state.groups) > 1:
            raise Misuse(
                "table", table, f"no table at all: requests have {len(state.groups)}, one for each cache group"
            )
        text = lengthened(state, row, tokens)
        adopt(state, row, text, replaced(state, row, len(text), table))
        return DONE


def block_array(argument: str, values: object, least: int, allowed: str, num_blocks: int) -> Int64:
    """Integers in [least, num_blocks) as (count,) int64."""
    if not isinstance(values, Sequence | np.ndarray):
        raise Misuse(argument, values, allowed)
    count = values.size if isinstance(values, np.ndarray) else len(values)
    try:
        return int_array(argument, values, count, least, num_blocks - 1)
    except Misuse:  # which speaks of a batch
        raise Misuse(argument, values, allowed) from None


def lengthened(state: ManagerState, row: int, tokens: Tokens) -> Int32:
    """All tokens of a row, (num_tokens,), checked to begin with those that it has."""
    text, length = token_array(tokens), int(state.rows.length[row])
    if not np.array_equal(text[:length], state.rows.tokens[row, :length]):
        raise Misuse("tokens", tokens, f"the {length} tokens that the request has, and those that have come since")
    return text


def replaced(state: ManagerState, row: int, length: int, table: Integers) -> Int64:
    """The table of a row that has grown to `length` tokens, (num_blocks,), checked entry by entry."""
    rows, pool, bs = state.rows, state.pool, state.config.block_size
    count, sinks, least = ceil_div(length, bs), rows.sinks[0], rows.holes[0][row]
    most = state.windows.holes(0, length, rollback=False)  # it may have been longer: what the next query sees is left
    allowed = f"{count} entries, each the block that stands there or a leased one, none of them twice"
    blocks = block_array("table", table, HOLE, allowed, pool.num_blocks)
    if len(blocks) != count:
        raise Misuse("table", table, allowed)
    holes = np.flatnonzero(blocks == HOLE)
    if not least <= len(holes) <= most or not np.array_equal(holes, np.arange(sinks, sinks + len(holes))):
        raise Misuse("table", table, f"at least {least} and at most {most} holes, the first of them entry {sinks}")
    kept = stays(rows.tables[0, row, : rows.blocks[row]], blocks)
    new = blocks[~kept & (blocks != HOLE)]
    if len(np.unique(new)) < len(new) or not np.isin(new, pool.leased).all():
        raise Misuse("table", table, allowed)
    start = min(int(rows.reserved[row]), int(rows.length[row]))
    first = start // bs
    if length > start and kept[first]:
        block = blocks[first]
        if pool.references[block] > 1 or state.index.entry[block] != NOTHING:
            raise Misuse("table", table, f"a leased block as entry {first}: others own {block}, or can find it")
    return blocks


def stays(old: Int32 | Int64, new: Int32 | Int64) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which entries of the second table stand in the first one at the same place."""
    same, both = np.zeros(len(new), np.bool_), min(len(old), len(new))
    same[:both] = old[:both] == new[:both]
    return same


def adopt(state: ManagerState, row: int, text: Int32, blocks: Int64) -> None:
    """A row has this table and these tokens, computed to their end. All that has been checked."""
    rows, journal = state.rows, state.journal
    length, count = int(rows.length[row]), int(rows.blocks[row])
    old = rows.tables[0, row, :count].astype(np.int64)
    kept = stays(blocks, old)
    rows.fit_blocks(len(blocks))
    rows.fit_tokens(len(text))
    rows.tokens[row, length : len(text)] = text[length:]
    journal.put(rows.tables, (0, row, slice(len(blocks))), blocks)
    rows.touch(row, int(np.append(kept, False).argmin()))
    for line, value in ((LENGTH, len(text)), (RESERVED, len(text)), (BLOCKS, len(blocks)), (ROOM, UNKNOWN)):
        rows.set(line, row, value)
    rows.set(HOLES, row, int((blocks == HOLE).sum()))
    state.pool.end_lease(blocks)
    state.pool.release(old[~kept][::-1])  # children before parents
    commits.commit(state, row, len(text))
