"""Rows of few numbers times a buffer whose lines are read one after the other: both products of attention.

`ROWS` rows and two vectors at a time stay in registers.
"""

from typing import Any, Final

import numpy as np

from pagedkv.optimized.cpu.compiler import compiled, inlined
from pagedkv.optimized.cpu.prefetching import prefetch_some
from pagedkv.optimized.cpu.simd import (
    VECTOR, WIDTH, dot, first_halves, fma, load, load_number, plus, second_halves, splat, store,
)  # fmt: skip

ROWS: Final = 4
"""Query rows that share what is read."""
COLUMNS: Final = 2 * WIDTH
"""Columns of a product that stay in registers."""
TURN: Final = 8
"""Numbers k of a product from one call of `prefetch_some` to the next."""


@compiled
def round_up(count: int, unit: int) -> int:
    """The next multiple of a unit."""
    return (count + unit - 1) // unit * unit


@compiled
def whole_columns(dim: int) -> int:
    """Numbers in a line of a buffer."""
    return round_up(dim, COLUMNS)


@compiled
def whole_rows(count: int) -> int:
    """Rows in the blocks that so many take."""
    return round_up(count, ROWS)


@inlined
def spread_rows(a: int, a_step: int) -> Any:
    """A number, or a pair, of each of `ROWS` rows, in all lanes."""
    return (
        splat(load_number(a)), splat(load_number(a + a_step)),
        splat(load_number(a + 2 * a_step)), splat(load_number(a + 3 * a_step)),
    )  # fmt: skip


@inlined
def advance(a: int, a_step: int, b: int, x: Any) -> Any:
    """One k: `x` are the sums, two vectors for each of `ROWS` rows."""
    (p, q, r, s), left, right = spread_rows(a, a_step), load(b), load(b + VECTOR)
    return (
        fma(p, left, x[0]), fma(p, right, x[1]), fma(q, left, x[2]), fma(q, right, x[3]),
        fma(r, left, x[4]), fma(r, right, x[5]), fma(s, left, x[6]), fma(s, right, x[7]),
    )  # fmt: skip


@inlined
def advance_pairs(a: int, a_step: int, left: Any, right: Any, x: Any) -> Any:
    """Two k."""
    p, q, r, s = spread_rows(a, a_step)
    return (
        dot(p, left, x[0]), dot(p, right, x[1]), dot(q, left, x[2]), dot(q, right, x[3]),
        dot(r, left, x[4]), dot(r, right, x[5]), dot(s, left, x[6]), dot(s, right, x[7]),
    )  # fmt: skip


@inlined
def nothing() -> Any:
    """Sums of no numbers."""
    zero = splat(np.float32(0))
    return zero, zero, zero, zero, zero, zero, zero, zero


@inlined
def product(a: int, a_step: int, b: int, b_step: int, first: int, end: int, ahead: Any) -> Any:
    """Sums over first <= k < end, in order, of a[r, k] * b[k, j], for `ROWS` rows r and `COLUMNS` columns j.

    Steps are bytes from row to row. With a_step = 0 it is one row, to the same bits. Prefetches some of `ahead`;
    returns the sums, and what is left.
    """
    x, at, line = nothing(), a + 4 * first, b + b_step * first
    for _ in range((end - first) // TURN):
        ahead = prefetch_some(ahead)
        for _ in range(TURN):
            x = advance(at, a_step, line, x)
            at, line = at + 4, line + b_step
    for _ in range((end - first) % TURN):
        x = advance(at, a_step, line, x)
        at, line = at + 4, line + b_step
    return x, ahead


@inlined
def product_of_pairs(a: int, a_step: int, b: int, b_step: int, first: int, end: int, ahead: Any) -> Any:
    """The same for bfloat16, of which a row of `a` and a line of `b` hold two in the place of each float32.

    Two sets of sums take turns, as one would wait for itself. A pair of which only one is between `first` and `end` has
    zeros for the other.
    """
    x, y, begin, stop = nothing(), nothing(), (first + 1) // 2, end // 2
    at, line = a + 4 * begin, b + b_step * begin
    if first % 2 == 1:
        left, right = second_halves(load(line - b_step)), second_halves(load(line - b_step + VECTOR))
        x = advance_pairs(at - 4, a_step, left, right, x)
    for _ in range((stop - begin) // (TURN // 2)):
        ahead = prefetch_some(ahead)
        for _ in range(TURN // 4):
            x = advance_pairs(at, a_step, load(line), load(line + VECTOR), x)
            y = advance_pairs(at + 4, a_step, load(line + b_step), load(line + b_step + VECTOR), y)
            at, line = at + 8, line + 2 * b_step
    for _ in range((stop - begin) % (TURN // 2)):
        x = advance_pairs(at, a_step, load(line), load(line + VECTOR), x)
        at, line = at + 4, line + b_step
    if end % 2 == 1:
        x = advance_pairs(at, a_step, first_halves(load(line)), first_halves(load(line + VECTOR)), x)
    x = (
        plus(x[0], y[0]), plus(x[1], y[1]), plus(x[2], y[2]), plus(x[3], y[3]),
        plus(x[4], y[4]), plus(x[5], y[5]), plus(x[6], y[6]), plus(x[7], y[7]),
    )  # fmt: skip
    return x, ahead


@inlined
def multiply(in_pairs: bool, a: int, a_step: int, b: int, b_step: int, first: int, end: int, ahead: Any) -> Any:
    """The product of numbers as they are kept."""
    if in_pairs:
        return product_of_pairs(a, a_step, b, b_step, first, end, ahead)
    return product(a, a_step, b, b_step, first, end, ahead)


@inlined
def write_sums(x: Any, c: int, c_step: int) -> None:
    """To `ROWS` rows."""
    write_pair(x[0], x[1], c)
    write_pair(x[2], x[3], c + c_step)
    write_pair(x[4], x[5], c + 2 * c_step)
    write_pair(x[6], x[7], c + 3 * c_step)


@inlined
def write_pair(left: Any, right: Any, place: int) -> None:
    """Two vectors."""
    store(place, left)
    store(place + VECTOR, right)


@inlined
def add_sums(left: Any, right: Any, place: int, factor: np.float32) -> None:
    """What is there is multiplied by a factor, and the sums of a row are added."""
    f = splat(factor)
    store(place, fma(load(place), f, left))
    store(place + VECTOR, fma(load(place + VECTOR), f, right))
