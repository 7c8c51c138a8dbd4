"""One tile of keys or values, read from its pages into a buffer that fits the first or second level of the caches.

A tile is `TILE` positions of one KV head. Keys are transposed, so that the positions lie side by side, values are as
they are; as float32, or as pairs of bfloat16: of a key's neighbouring numbers, of the values of neighbouring positions.
"""

from typing import Any

import numpy as np

from pagedkv.optimized.cpu.compiler import compiled, inlined
from pagedkv.optimized.cpu.prefetching import prefetch_some
from pagedkv.optimized.cpu.products import COLUMNS, whole_columns
from pagedkv.optimized.cpu.simd import (
    WIDTH, load_int64, join_part, join, splat, store, transpose, transpose_bfloat16, transpose_bfloat16_part,
    transpose_float16, transpose_float16_part, transpose_part,
)  # fmt: skip
from pagedkv.optimized.cpu.storage import FLOAT16, FLOAT32, item_size, read_vector
from pagedkv.optimized.cpu.work import TILE


@inlined
def read_row(kind: int, place: int, dim: int, target: int) -> None:
    """One row of a tensor as `whole_columns(dim)` float32; zeros behind its end."""
    size, full = item_size(kind), dim - dim % WIDTH
    for d in range(0, full, WIDTH):
        store(target + 4 * d, read_vector(kind, place + d * size, WIDTH))
    if full < dim:
        store(target + 4 * full, read_vector(kind, place + full * size, dim - full))
    fill_up(dim, target)


@inlined
def read_pairs(first: int, second: int, dim: int, target: int) -> None:
    """Two rows of bfloat16 as `whole_columns(dim)` pairs; zeros behind their ends."""
    full = dim - dim % COLUMNS
    for d in range(0, full, COLUMNS):
        join(first + 2 * d, second + 2 * d, target + 4 * d)
    for d in range(full, dim, WIDTH):
        store(target + 4 * d, join_part(first + 2 * d, second + 2 * d, min(WIDTH, dim - d)))
    fill_up(dim, target)


@inlined
def fill_up(dim: int, target: int) -> None:
    """Zeros for the last vector of a line, if `dim` leaves it out."""
    columns = whole_columns(dim)
    if columns - dim >= WIDTH:
        store(target + 4 * (columns - WIDTH), splat(np.float32(0)))


@compiled
def read_values(work: Any, places: int, head: int, count: int, target: int, ahead: Any) -> Any:
    """Values of the first `count` positions whose addresses lie at `places`, as lines of `whole_columns(value_dim)`.

    Of an odd number one more is read. Prefetches some of what is `ahead`, and returns what is left.
    """
    offset, line = head * work.values_head, 4 * whole_columns(work.value_dim)
    for i in range(0, count, 2):
        first, second = load_int64(places + 8 * i) + offset, load_int64(places + 8 * i + 8) + offset
        ahead = prefetch_some(ahead)
        if work.in_pairs:
            read_pairs(first, second, work.value_dim, target)
            target += line
        else:
            read_row(work.kind, first, work.value_dim, target)
            read_row(work.kind, second, work.value_dim, target + line)
            target += 2 * line
    return ahead


@compiled
def read_keys(work: Any, places: int, head: int, target: int, ahead: Any) -> Any:
    """Keys of a whole tile, transposed: line d holds number d, or pair d, of each of the `TILE` positions."""
    kind, dim, offset, step = work.kind, work.head_dim, head * work.keys_head, 4 * TILE
    if work.in_pairs:  # they are moved as float32 are
        kind, dim = FLOAT32, dim // 2
    size = item_size(kind)
    for i in range(0, TILE, WIDTH):
        for d in range(0, dim, WIDTH):
            ahead = prefetch_some(ahead)
            if work.in_pairs:
                ahead = prefetch_some(ahead)
            transpose_vectors(kind, places + 8 * i, offset + d * size, target + d * step + 4 * i, step, dim - d)
    return ahead


@compiled
def transpose_vectors(kind: int, places: int, offset: int, target: int, step: int, count: int) -> None:
    """The first `count` numbers of `WIDTH` rows, a vector of each at the most: see `transpose`."""
    if count >= WIDTH:
        if kind == FLOAT32:
            transpose(places, offset, target, step)
        elif kind == FLOAT16:
            transpose_float16(places, offset, target, step)
        else:
            transpose_bfloat16(places, offset, target, step)
    elif kind == FLOAT32:
        transpose_part(places, offset, target, step, count)
    elif kind == FLOAT16:
        transpose_float16_part(places, offset, target, step, count)
    else:
        transpose_bfloat16_part(places, offset, target, step, count)
