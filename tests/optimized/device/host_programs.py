"""Random calls between the host and a pool that is leased: what the host may do, and rows that may be none.

Who owns a block is read from the state: the pool's own, lent by the host, or the host's and nowhere on the device.
"""

import random
from collections.abc import Mapping
from typing import Final

import torch
from pagedkv.optimized.device.pool import DevicePool
from torch import Tensor

from tests.optimized.device.drawing import Call, Draw, chosen, draw_rows, strided, vector


def of_the_host(pool: DevicePool, *, lent: bool) -> list[int]:
    """Blocks of the host that are lent already, or that are nowhere here."""
    state = pool._state
    mine = (state.owned == 0) & ((state.lent > 0) if lent else (state.lent == 0) & (state.references == 0))
    return [int(block) for block in mine.nonzero()[:, 0]]


def draw_import(rng: random.Random, pool: DevicePool) -> Call:
    """Requests of blocks that the host lends, or gives away, at times of more blocks than there is room for."""
    owning = rng.random() < 0.3
    blocks = of_the_host(pool, lent=False) + ([] if owning else of_the_host(pool, lent=True))
    rows, size, most = draw_rows(rng, pool, 0), pool.shape.block_size, pool.shape.max_blocks
    width = rng.choice((1, 2, 3, most + 1))
    tables, lengths, holes = [], [], []
    for _ in rows:
        table = rng.sample(blocks, min(len(blocks), width))
        gone = rng.randint(0, len(table)) if pool.shape.sliding_window and rng.random() < 0.3 else 0
        gone = max(0, min(gone, len(table) - 1 - pool.shape.sink_blocks))  # the last one may not be full
        at = pool.shape.sink_blocks
        if rng.random() < 0.1:  # what there is not, or what the pool hands out itself
            owned = [int(block) for block in pool._state.owned.nonzero()[:, 0]]
            table = [rng.choice((pool.shape.num_blocks, 2**20, -1, *owned)), *table[1:]]
        tables.append([*table[:at], *[-1] * gone, *table[at + gone :], *[-7] * (width - len(table))])
        odd = rng.random() < 0.1
        lengths.append(
            rng.choice((-1, 2**30 + 1, width * size + 1)) if odd else len(table) * size - rng.choice((0, 0, 1))
        )
        lengths[-1] = lengths[-1] if odd else max(lengths[-1], (at + gone) * size if gone else 0)
        holes.append(gone if rng.random() < 0.95 else rng.choice((gone + 1, -1, len(table))))
    given = torch.tensor(tables, dtype=torch.int32).view(len(rows), width)
    if rng.random() < 0.3:
        given = torch.stack([given, torch.full_like(given, 5)], 2)[:, :, 0]
    arguments = {"rows": vector(rng, rows), "block_tables": given, "lengths": vector(rng, lengths), "owning": owning}
    return Call("import_", {**arguments, "num_holes": numbers(rng, holes), "where": chosen(rng, len(rows))})


def numbers(rng: random.Random, holes: list[int]) -> Tensor | None:
    """None where there are none, at times."""
    return None if not any(holes) and rng.random() < 0.5 else vector(rng, holes)


def draw_hand_over(rng: random.Random, pool: DevicePool) -> Call:
    """Rows that leave."""
    rows = draw_rows(rng, pool, 1)
    return Call("hand_over", {"rows": vector(rng, rows), "where": chosen(rng, len(rows))})


def draw_export(rng: random.Random, pool: DevicePool) -> Call:
    """Rows to look at."""
    return Call("export", {"rows": vector(rng, draw_rows(rng, pool, 1))})


def draw_lease(rng: random.Random, pool: DevicePool) -> Call:
    """A few blocks more."""
    blocks = of_the_host(pool, lent=False)
    return Call("lease", {"blocks": vector(rng, rng.sample(blocks, min(len(blocks), rng.choice((0, 1, 2, 5)))))})


def draw_return(rng: random.Random, pool: DevicePool) -> Call:
    """As many as there may be."""
    return Call("return_lease", {"count": rng.randint(0, min(4, pool.shape.num_blocks))})


def draw_end_loan(rng: random.Random, pool: DevicePool) -> Call:
    """What no row reads any more."""
    blocks = [block for block in of_the_host(pool, lent=True) if pool.references[block] == 1]
    return Call("end_loan", {"blocks": strided(rng, torch.tensor(blocks, dtype=torch.int32), 0)})


HOST_KINDS: Final[Mapping[str, tuple[int, Draw]]] = {
    "import_": (6, draw_import),
    "hand_over": (4, draw_hand_over),
    "export": (1, draw_export),
    "lease": (2, draw_lease),
    "return_lease": (1, draw_return),
    "end_loan": (2, draw_end_loan),
}
"""How often each is drawn, and by what."""
