"""Query rows over a span of positions: tile after tile, each read once for all rows of its KV head.

The bits of a row depend on nothing but what it sees, and on where its spans begin: scores are sums over the head's
dimensions in order, and a tile's values are summed over the positions that the row sees, in order, before they join the
record. Neither the other rows, nor the other requests, nor what lies in unused slots takes part.
"""

from typing import Any

import numpy as np

from pagedkv.optimized.cpu.compiler import inlined
from pagedkv.optimized.cpu.products import COLUMNS, ROWS, add_sums, multiply, whole_columns, write_sums
from pagedkv.optimized.cpu.records import LOG2_E, NOTHING, power_of_2, record_size, shift_of
from pagedkv.optimized.cpu.simd import (
    VECTOR, WIDTH, absolute, any_larger, exp2, fma, keep, lane_numbers, load, load_int64, load_number, maximum, minus,
    over, plus, signed, splat, store, store_weights, store_number, times, top, where_less,
)  # fmt: skip
from pagedkv.optimized.cpu.work import TILE


@inlined
def tanh(x: Any) -> Any:
    """By an exponential, and near 0, where that cancels, by x - x**3 / 3 + 2 x**5 / 15."""
    one, size, square = splat(np.float32(1)), absolute(x), times(x, x)
    e = exp2(times(size, splat(np.float32(-2) * LOG2_E)))
    near = fma(square, fma(square, splat(np.float32(2 / 15)), splat(np.float32(-1 / 3))), one)
    return where_less(size, splat(np.float32(0.0625)), times(x, near), signed(over(minus(one, e), plus(one, e)), x))


@inlined
def to_logits(work: Any, x: Any, distance: np.float32, slope: np.float32) -> Any:
    """Scores of positions `distance`, `distance` + 1, … from the row's own, as logits."""
    x = times(x, splat(np.float32(work.scale)))
    if work.softcap != 0:
        cap = splat(np.float32(work.softcap))
        x = times(cap, tanh(over(x, cap)))
    if work.slopes != 0:
        x = plus(x, times(splat(slope), plus(splat(distance), lane_numbers())))
    return x


@inlined
def update_softmax(work: Any, scratch: Any, row: int, base: int, first: int, end: int, head: int, state: int) -> None:
    """Scores of a row become weights, 0 outside first <= i < end; `factors` get what its sums are to be multiplied by.

    `state`: what of the row's record stands behind its sums, and follows.
    """
    scores, slope = scratch.scores + 4 * TILE * row, np.float32(0)
    if work.slopes != 0:
        slope = load_number(work.slopes + 4 * (head * work.group + row % work.group))
    own = load_int64(scratch.ranges + 24 * row + 16) - base
    most = splat(NOTHING)
    for i in range(0, TILE, WIDTH):
        x = to_logits(work, load(scores + 4 * i), np.float32(i - own), slope)
        if first > 0 or end < TILE:
            x = keep(x, first - i, end - i)
        store(scores + 4 * i, x)
        most = maximum(most, x)
    before, factor = load_number(state + VECTOR), np.float32(1)
    largest = before
    if any_larger(most, splat(before)):  # after the first few tiles it is rare
        largest = top(most)
        factor = power_of_2((before - largest) * LOG2_E)
        store_number(state + VECTOR, largest)
    shift, weights = shift_of(largest), splat(np.float32(0))
    for i in range(0, TILE, WIDTH):
        x = exp2(times(minus(load(scores + 4 * i), splat(shift)), splat(LOG2_E)))
        if work.in_pairs:
            store_weights(scores + 2 * i, x)
        else:
            store(scores + 4 * i, x)
        weights = plus(weights, x)
    store(state, fma(load(state), splat(factor), weights))
    store_number(scratch.factors + 4 * row, factor)


@inlined
def range_of(scratch: Any, row: int, base: int) -> tuple[int, int]:
    """What a row sees of the tile at `base`: the first place, and the one behind the last."""
    at = scratch.ranges + 24 * row
    return max(0, load_int64(at) - base), min(TILE, load_int64(at + 8) - base)


@inlined
def are_alike(scratch: Any, row: int, base: int) -> bool:
    """`ROWS` rows see the same places of a tile: the first and the last do, and later tokens see nothing earlier."""
    first, end = range_of(scratch, row, base)
    last = range_of(scratch, row + ROWS - 1, base)
    return bool(first == last[0] and end == last[1])


@inlined
def attend_tile(
    work: Any, scratch: Any, rows: int, base: int, queries: int, records: int, head: int, ahead: Any
) -> None:
    """All rows of one KV head attend the tile in scratch memory, which begins at position `base`.

    First the scores of all rows, then all weights, then all sums: what one step writes the next one reads, and while it
    is on its way others are computed. `queries`, `records`: those of the head's first row; prefetches what is `ahead`.
    """
    columns, step, line = whole_columns(work.value_dim), record_size(work.value_dim), 4 * whole_columns(work.head_dim)
    for row in range(0, rows, ROWS):
        at, scores = queries + line * row, scratch.scores + 4 * TILE * row
        for c in range(0, 4 * TILE, 4 * COLUMNS):
            sums, ahead = multiply(work.in_pairs, at, line, scratch.keys + c, 4 * TILE, 0, work.head_dim, ahead)
            write_sums(sums, scores + c, 4 * TILE)
    for row in range(rows):
        first, end = range_of(scratch, row, base)
        if first < end:
            update_softmax(work, scratch, row, base, first, end, head, records + step * row + 4 * columns)
    for row in range(0, rows, ROWS):
        ahead = sum_up(work, scratch, row, base, records + step * row, ahead)


@inlined
def sum_up(work: Any, scratch: Any, row: int, base: int, record: int, ahead: Any) -> Any:
    """Weights times values, added to the records of `ROWS` rows. Rows that see the same places share the product."""
    weights, factors = scratch.scores + 4 * TILE * row, scratch.factors + 4 * row
    line, step = 4 * whole_columns(work.value_dim), record_size(work.value_dim)
    alike = are_alike(scratch, row, base)
    for r in range(1 if alike else ROWS):
        first, end = range_of(scratch, row + r, base)
        for c in range(0, line if first < end else 0, 4 * COLUMNS):
            at, between = weights + 4 * TILE * r, 4 * TILE if alike else 0
            x, ahead = multiply(work.in_pairs, at, between, scratch.values + c, line, first, end, ahead)
            add_sums(x[0], x[1], record + step * r + c, load_number(factors + 4 * r))
            if alike:
                add_sums(x[2], x[3], record + step + c, load_number(factors + 4))
                add_sums(x[4], x[5], record + 2 * step + c, load_number(factors + 8))
                add_sums(x[6], x[7], record + 3 * step + c, load_number(factors + 12))
    return ahead
