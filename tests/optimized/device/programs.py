"""Random programs of calls on a device pool: what the contract allows, and what a row may answer with a refusal.

A call is a value, drawn from the state that it will meet: rows that are there and rows that are not, families that
share their last block, counts that fit and counts that do not, vectors of any dtype and stride. So each call can be
made on several pools that ought to answer alike.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Final

from pagedkv.optimized.device.pool import DevicePool

from tests.optimized.device.drawing import Call, Draw, chosen, draw_rows, length_of, vector
from tests.optimized.device.host_programs import HOST_KINDS, draw_import


def draw_pool(rng: random.Random) -> DevicePool:
    """Small enough to run out of blocks, of table entries, or of neither; a quarter of them are leased."""
    window = rng.choice((None, None, 1, 3, 6))
    pool = DevicePool(
        rng.choice((3, 6, 12, 24)), rng.choice((1, 2, 3, 4, 4)), rng.choice((4, 6, 9)), rng.choice((3, 6, 17)),
        sliding_window=window, sink_tokens=rng.choice((0, 0, 1, 4)) if window else 0,
        max_rollback=rng.choice((0, 0, 1, 2)) if window else 0, leased=rng.random() < 0.25,
    )  # fmt: skip
    if not int(pool.num_free):
        pool.lease(vector(rng, range(1, pool.shape.num_blocks, 2)))
    return pool


def calls(rng: random.Random, pool: DevicePool, count: int) -> Iterator[Call]:
    """So many calls, each drawn from the state in which the pool is when it is asked for. An empty pool is filled."""
    every = {**KINDS, **({} if pool._state.owned.all() else HOST_KINDS)}
    kinds = [kind for kind in every if kind != "release_window" or pool.shape.sliding_window]
    weights = [every[kind][0] for kind in kinds]
    script: list[Draw] = []
    for _ in range(count):
        if not script and not pool.in_use.any():
            likely = LONG_LIFE if pool.shape.sliding_window and rng.random() < 0.6 else CROWD
            begun = (draw_import,) if "import_" in every else (draw_admit,)
            script = list(likely if rng.random() < 0.7 and int(pool.num_free) > 2 else begun)
        yield (script.pop(0) if script else every[rng.choices(kinds, weights)[0]][1])(rng, pool)


def draw_single(rng: random.Random, pool: DevicePool) -> Call:
    """One row whose last block has room."""
    size = pool.shape.block_size
    length = rng.randrange(min(3, pool.shape.max_blocks, pool.shape.num_blocks)) * size + rng.randint(
        1, max(1, size - 1)
    )
    return Call("admit", {"rows": vector(rng, [rng.randrange(pool.shape.num_rows)]), "lengths": vector(rng, [length])})


def draw_children(rng: random.Random, pool: DevicePool) -> Call:
    """Of the first row in use, in rows that are not: all of those but one, or fewer."""
    children = draw_rows(rng, pool, 0)[: rng.choice((1, 2, 3, max(1, pool.shape.num_rows - 2)))]
    parent = max(range(pool.shape.num_rows), key=pool.in_use.tolist().__getitem__)
    return Call("fork", {"parents": vector(rng, [parent] * len(children)), "children": vector(rng, children)})


def draw_stride(rng: random.Random, pool: DevicePool) -> Call:
    """All rows grow by one or two blocks."""
    rows = [row for row in range(pool.shape.num_rows) if pool.in_use[row]]
    counts = [rng.randint(1, 2) * pool.shape.block_size for _ in rows]
    return Call("append", {"rows": vector(rng, rows), "counts": vector(rng, counts), "total": sum(counts)})


def draw_passing(_rng: random.Random, _pool: DevicePool) -> Call:
    """The window goes on in all rows."""
    return Call("release_window", {"rows": None})


def draw_squeeze(rng: random.Random, pool: DevicePool) -> Call:
    """One row more, that leaves a few blocks to all others if its table has room for the rest."""
    rows = [row for row in range(pool.shape.num_rows) if not pool.in_use[row]][:1]
    left = max(0, int(pool.num_free) - rng.choice((0, 1, 1, 2, 2, 3, 9)))
    length = min(left, pool.shape.max_blocks) * pool.shape.block_size
    return Call("admit", {"rows": vector(rng, rows), "lengths": vector(rng, [length] * len(rows))})


def draw_counts(rng: random.Random, pool: DevicePool, count: int) -> tuple[list[int], int | None]:
    """Mostly one position, or a few; now and then more than there is room for, or nonsense; and a `total`."""
    size = pool.shape.block_size
    likely = (0, 1, 1, 1, 2, size, size + 1, 3 * size)
    odd = (-1, -9, size * pool.shape.max_blocks + 1, size * pool.shape.num_blocks + 1, 2**30, 2**31, 2**63 - 1)
    counts = [rng.choice(odd if rng.random() < 0.1 else likely) for _ in range(count)]
    wanted = sum(value for value in counts if 0 < value < 10**4)
    return counts, rng.choice((None, wanted, wanted, max(0, wanted - 2), wanted + 5))


def draw_admit(rng: random.Random, pool: DevicePool) -> Call:
    """Rows that are not in use get their first positions."""
    rows = draw_rows(rng, pool, 0)[: rng.choice((1, 2, 2, 9))]
    lengths, total = draw_counts(rng, pool, len(rows))
    arguments = {"rows": vector(rng, rows), "lengths": vector(rng, lengths), "total": total}
    return Call("admit", {**arguments, "where": chosen(rng, len(rows))})


def draw_append(rng: random.Random, pool: DevicePool) -> Call:
    """Rows in use grow: all in order, or those that share a last block with one of them, or any."""
    how = rng.random()
    if how < 0.15:
        return Call("append", {"rows": None, "where": chosen(rng, pool.shape.num_rows)})
    rows = draw_family(rng, pool) if how < 0.65 else draw_rows(rng, pool, 1)
    if rng.random() < 0.5:
        return Call("append", {"rows": vector(rng, rows), "where": chosen(rng, len(rows))})
    counts, total = draw_counts(rng, pool, len(rows))
    arguments = {"rows": vector(rng, rows), "counts": vector(rng, counts), "total": total}
    return Call("append", {**arguments, "where": chosen(rng, len(rows))})


def draw_family(rng: random.Random, pool: DevicePool) -> list[int]:
    """The rows that end in the same unfilled block, in any order, and perhaps others among them."""
    last: dict[int, list[int]] = {}
    for row, length in enumerate(pool.seq_lens.tolist()):
        if length % pool.shape.block_size:
            last.setdefault(int(pool.block_tables[row, (length - 1) // pool.shape.block_size]), []).append(row)
    families = [rows for rows in last.values() if len(rows) > 1]
    if not families:
        return draw_rows(rng, pool, 1)
    rows = max(families, key=lambda family: (len(family), family))
    rows = rows if rng.random() < 0.7 else rows[1:]
    others = [row for row in draw_rows(rng, pool, 1) if row not in rows]
    rows += others[: rng.choice((0, 0, 1, 4))]
    rng.shuffle(rows)
    return rows


def draw_fork(rng: random.Random, pool: DevicePool) -> Call:
    """One row gets many children, or several rows one or two each; a child may be named as a parent, in vain."""
    children, parents = draw_rows(rng, pool, 0)[: rng.choice((1, 3, 9))], draw_rows(rng, pool, 1)
    parents.sort(key=lambda row: length_of(pool, row) % pool.shape.block_size == 0)
    candidates = parents[:1] if rng.random() < 0.7 else parents
    candidates = [*candidates, *children[:1]] if rng.random() < 0.2 else candidates
    named = [rng.choice(candidates or [-1]) for _ in children]
    arguments = {"parents": vector(rng, named), "children": vector(rng, children)}
    return Call("fork", {**arguments, "where": chosen(rng, len(children))})


def draw_free(rng: random.Random, pool: DevicePool) -> Call:
    """Rows go, often several that share blocks."""
    if rng.random() < 0.1:
        return Call("free", {"rows": None, "where": chosen(rng, pool.shape.num_rows)})
    rows = draw_rows(rng, pool, 1)[: rng.choice((1, 2, 8))]
    return Call("free", {"rows": vector(rng, rows), "where": chosen(rng, len(rows))})


def draw_truncate(rng: random.Random, pool: DevicePool) -> Call:
    """To lengths around the present one, at times to nothing, past the end or below 0."""
    rows = draw_rows(rng, pool, 1)
    lengths = [length_of(pool, row) for row in rows]
    wanted = [rng.choice((n, n - 1, n - 1, n - 2, n // 2, n // 2, 0, n + 1, -1)) for n in lengths]
    computed = None if rng.random() < 0.6 else vector(rng, [rng.choice((n, n - 1, n // 2, 0, -1)) for n in lengths])
    arguments = {"rows": vector(rng, rows), "lengths": vector(rng, wanted), "computed": computed}
    return Call("truncate", {**arguments, "where": chosen(rng, len(rows))})


def draw_window(rng: random.Random, pool: DevicePool) -> Call:
    """What is written of each row, all or less, at times nonsense."""
    rows = draw_rows(rng, pool, 1)
    written = [rng.choice((n, n, n - 1, n // 2, n + 1, -1)) for n in (length_of(pool, row) for row in rows)]
    arguments = {"rows": vector(rng, rows), "computed": None if rng.random() < 0.5 else vector(rng, written)}
    return Call("release_window", {**arguments, "where": chosen(rng, len(rows))})


def draw_permute(rng: random.Random, pool: DevicePool) -> Call:
    """Any bijection."""
    blocks = pool.shape.num_blocks
    return Call("permute", {"new_block": vector(rng, rng.sample(range(blocks), blocks))})


KINDS: Final[Mapping[str, tuple[int, Draw]]] = {
    "admit": (1, draw_admit),
    "squeeze": (2, draw_squeeze),
    "append": (7, draw_append),
    "fork": (6, draw_fork),
    "free": (3, draw_free),
    "truncate": (3, draw_truncate),
    "release_window": (3, draw_window),
    "permute": (1, draw_permute),
}
"""How often each is drawn, and by what."""
CROWD: Final[tuple[Draw, ...]] = (draw_single, draw_children, draw_squeeze, draw_append, draw_append)
"""Rows that share a block all write into it in one call, while little is free."""
LONG_LIFE: Final[tuple[Draw, ...]] = (
    draw_single, *(draw_stride, draw_passing) * 3, draw_fork, draw_truncate, draw_free
)  # fmt: skip
"""A row becomes longer than the pool has blocks for, is forked, taken back and freed while blocks in it are gone."""
