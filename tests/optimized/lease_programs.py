"""Random programs in which a pool on a device takes part: it leases blocks, returns them, and gives requests back that
it has prolonged. They add to the programs of `feature_programs`. What the device has done in between is made up when a
request is adopted: anything that it may do with the blocks that are leased."""

import random
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from pagedkv.optimized.external import Invalidated
from pagedkv.optimized.leasing import Leased
from pagedkv.optimized.loops.memory import NOTHING, RESIDENT
from pagedkv.spec import HOLE, Misuse, Outcome, ceil_div

from tests.optimized import feature_programs
from tests.optimized.feature_programs import Feature, Featured

Rng: TypeAlias = random.Random


@dataclass(frozen=True)
class Lease:
    blocks: int


@dataclass(frozen=True)
class ReturnLease:
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class Adopt:
    request: str
    tokens: tuple[int, ...]
    table: tuple[int, ...]


Leasing: TypeAlias = Lease | ReturnLease | Adopt
Answer: TypeAlias = tuple[Outcome | Invalidated | Leased, ...] | Misuse


def operation(rng: Rng, manager: Featured, more: tuple[type, ...] = ()) -> Feature | Leasing:
    """One operation, every third of them about leases."""
    choice, leased = rng.random(), manager._state.pool.leased.tolist()
    if choice < 0.09:
        return Lease(rng.randint(1, rng.choice((2, 4, 9))))
    if choice < 0.14:
        blocks = rng.sample(leased, rng.randint(0, len(leased)))
        return ReturnLease((*blocks, *([rng.randrange(manager.config.num_blocks)] * (rng.random() < 0.2))))
    rows = manager._state.rows
    resident = [request for request, row in rows.row_of.items() if rows.state[row] == RESIDENT]
    if choice < 0.34 and resident:
        return adoption(rng, manager, str(rng.choice(resident)))
    return feature_programs.operation(rng, manager, more)


def adoption(rng: Rng, manager: Featured, request: str) -> Adopt:
    """A request comes back, as much longer as leased blocks permit; one in ten as it must not."""
    state, leased = manager._state, manager._state.pool.leased.tolist()
    rows, bs, row = state.rows, state.config.block_size, state.rows.row_of[request]
    known = rows.tokens[row, : rows.length[row]].tolist()
    old = rows.tables[0, row, : rows.blocks[row]].tolist()
    start = min(int(rows.reserved[row]), len(known))
    rng.shuffle(leased)
    text = known + rng.choices((0, 1), (9, 1), k=rng.choice((0, 1, 1, bs, 3 * bs)))
    text = text[: max(len(known), (len(old) + len(leased)) * bs)]
    least, most, sinks = int(rows.holes[0][row]), state.windows.holes(0, len(text)), rows.sinks[0]
    holes, table = rng.choice((least, most, rng.randint(least, max(least, most)))), list[int]()
    for column in range(ceil_div(len(text), bs)):
        block = old[column] if column < len(old) else NOTHING
        dead, written = sinks <= column < sinks + holes, column == start // bs and len(text) > start
        lent = block != NOTHING and (state.pool.references[block] > 1 or state.index.entry[block] != NOTHING)
        fresh = block == NOTHING or (written and lent) or rng.random() < 0.1
        table.append(HOLE if dead else leased.pop() if fresh and leased else block)
    if rng.random() < 0.1 and table:
        table[rng.randrange(len(table))] = rng.randrange(-1, manager.config.num_blocks)
    return Adopt(request, (*text,) if rng.random() < 0.95 else (*text[1:], 7), (*table,))


def run(manager: Featured, op: Feature | Leasing) -> Answer:
    """Carry an operation out: one answer a row, or the misuse that was raised."""
    try:
        match op:
            case Lease(blocks):
                return (manager.lease(blocks),)
            case ReturnLease(given):
                return (manager.return_lease(given),)
            case Adopt(request, tokens, table):
                return (manager.adopt(request, tokens, table),)
            case _:
                return feature_programs.run(manager, op)
    except Misuse as misuse:
        return misuse


def drain(manager: Featured) -> None:
    """The device gives back what it has, everybody goes, and every block is available."""
    manager.return_lease(np.array(manager._state.pool.leased))
    feature_programs.drain(manager)
