"""What is done with one tile of keys or values: read it from its pages, and multiply.

A tile is `TILE` positions of one KV head, as float32 in a buffer that stays in the first-level cache: keys turned, so
that the positions lie side by side, values as they are. Both products are then the same: rows of few numbers times a
buffer whose lines are read one after the other, `ROWS` rows and two vectors at a time, in registers.
"""

from typing import Any, Final

import numpy as np

from pagedkv.optimized.cpu.compiler import compiled
from pagedkv.optimized.cpu.simd import (
    VECTOR, WIDTH, fma, load, load_bfloat16, load_bfloat16_part, load_float16, load_float16_part, load_int64,
    load_number, load_part, prefetch, splat, store, store_bfloat16, store_bfloat16_part, store_float16,
    store_float16_part, store_part, turn, turn_bfloat16, turn_bfloat16_part, turn_float16,
    turn_float16_part, turn_part,
)  # fmt: skip
from pagedkv.optimized.cpu.work import TILE

FLOAT32, FLOAT16, BFLOAT16 = range(3)
"""How numbers are stored: the kinds of a cache, of the query, and of the output."""

ROWS: Final = 4
"""Query rows that share what is read."""
COLUMNS: Final = 2 * WIDTH
"""Columns of a product that stay in registers."""
LINE: Final = 64
"""Bytes that memory is read by."""
PIECE: Final = 4 * LINE
"""Bytes that are asked for in one go."""


@compiled
def item_size(kind: int) -> int:
    """Bytes of a number."""
    return 4 if kind == FLOAT32 else 2


@compiled
def multiple(count: int, unit: int) -> int:
    """The next multiple of a unit."""
    return (count + unit - 1) // unit * unit


@compiled
def whole_columns(dim: int) -> int:
    """Numbers in a line of a buffer."""
    return multiple(dim, COLUMNS)


@compiled
def whole_rows(count: int) -> int:
    """Rows in the blocks that so many take."""
    return multiple(count, ROWS)


@compiled
def read_vector(kind: int, place: int, count: int) -> Any:
    """The first `count` numbers at a place as float32, a vector at the most, and zeros behind them."""
    if count >= WIDTH:
        return load(place) if kind == FLOAT32 else load_float16(place) if kind == FLOAT16 else load_bfloat16(place)
    if kind == FLOAT32:
        return load_part(place, count)
    return load_float16_part(place, count) if kind == FLOAT16 else load_bfloat16_part(place, count)


@compiled
def write_vector(kind: int, place: int, x: Any, count: int) -> None:
    """The first `count` numbers of a vector, rounded to `kind`."""
    if count >= WIDTH:
        if kind == FLOAT32:
            store(place, x)
        elif kind == FLOAT16:
            store_float16(place, x)
        else:
            store_bfloat16(place, x)
    elif kind == FLOAT32:
        store_part(place, x, count)
    elif kind == FLOAT16:
        store_float16_part(place, x, count)
    else:
        store_bfloat16_part(place, x, count)


@compiled
def read_row(kind: int, place: int, dim: int, target: int) -> None:
    """One row of a tensor as `whole_columns(dim)` float32; zeros behind its end."""
    size = item_size(kind)
    for d in range(0, whole_columns(dim), WIDTH):
        store(target + 4 * d, read_vector(kind, place + d * size, max(0, dim - d)))


@compiled
def read_values(kind: int, places: int, offset: int, count: int, dim: int, target: int) -> None:
    """`count` rows, `offset` bytes behind the addresses at `places`, as lines of `whole_columns(dim)` float32."""
    columns = whole_columns(dim)
    for i in range(count):
        read_row(kind, load_int64(places + 8 * i) + offset, dim, target + 4 * columns * i)


@compiled
def read_keys(kind: int, places: int, offset: int, dim: int, target: int) -> None:
    """The same for a whole tile, turned: line d holds number d of each of the `TILE` rows."""
    step, size = 4 * TILE, item_size(kind)
    for i in range(0, TILE, WIDTH):
        for d in range(0, dim, WIDTH):
            turn_vectors(kind, places + 8 * i, offset + d * size, target + d * step + 4 * i, step, dim - d)


@compiled
def turn_vectors(kind: int, places: int, offset: int, target: int, step: int, count: int) -> None:
    """The first `count` numbers of `WIDTH` rows, a vector of each at the most, turned: see `turn`."""
    if count >= WIDTH:
        if kind == FLOAT32:
            turn(places, offset, target, step)
        elif kind == FLOAT16:
            turn_float16(places, offset, target, step)
        else:
            turn_bfloat16(places, offset, target, step)
    elif kind == FLOAT32:
        turn_part(places, offset, target, step, count)
    elif kind == FLOAT16:
        turn_float16_part(places, offset, target, step, count)
    else:
        turn_bfloat16_part(places, offset, target, step, count)


@compiled
def ask_for(piece: int) -> None:
    """Prefetch the `PIECE` bytes from an address on."""
    for line in range(0, PIECE, LINE):
        prefetch(piece + line)


@compiled
def advance(a: int, a_step: int, b: int, x: Any) -> Any:
    """One k: `x` are the sums, two vectors for each of `ROWS` rows."""
    left, right = load(b), load(b + VECTOR)
    p, q = splat(load_number(a)), splat(load_number(a + a_step))
    r, s = splat(load_number(a + 2 * a_step)), splat(load_number(a + 3 * a_step))
    return (
        fma(p, left, x[0]), fma(p, right, x[1]), fma(q, left, x[2]), fma(q, right, x[3]),
        fma(r, left, x[4]), fma(r, right, x[5]), fma(s, left, x[6]), fma(s, right, x[7]),
    )  # fmt: skip


@compiled
def product(
    a: int, a_step: int, b: int, b_step: int, first: int, end: int, c: int, c_step: int, pieces: int, pace: int
) -> int:
    """c[r, j] = sum over first <= k < end, in order, of a[r, k] * b[k, j], for `ROWS` rows r and `COLUMNS` columns j.

    Steps are bytes from row to row. With a_step = c_step = 0 it is one row, to the same bits. Meanwhile memory is asked
    for what comes next, evenly, since it answers only so many questions at a time: with every four k for `pace` of the
    pieces whose addresses lie at `pieces`. Returns where those begin that are left.
    """
    zero = splat(np.float32(0))
    x = (zero, zero, zero, zero, zero, zero, zero, zero)
    a += 4 * first
    b += b_step * first
    for _ in range((end - first) // 4):
        if pace > 0:
            ask_for(load_int64(pieces))
            pieces += 8
        x = advance(a, a_step, b, x)
        x = advance(a + 4, a_step, b + b_step, x)
        if pace > 1:
            ask_for(load_int64(pieces))
            pieces += 8
        x = advance(a + 8, a_step, b + 2 * b_step, x)
        x = advance(a + 12, a_step, b + 3 * b_step, x)
        a += 16
        b += 4 * b_step
    for _ in range((end - first) % 4):
        x = advance(a, a_step, b, x)
        a += 4
        b += b_step
    store(c, x[0])
    store(c + VECTOR, x[1])
    store(c + c_step, x[2])
    store(c + c_step + VECTOR, x[3])
    store(c + 2 * c_step, x[4])
    store(c + 2 * c_step + VECTOR, x[5])
    store(c + 3 * c_step, x[6])
    store(c + 3 * c_step + VECTOR, x[7])
    return pieces
