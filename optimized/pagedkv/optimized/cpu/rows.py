"""Query rows over a span of positions: tile after tile, each read once for all rows of its KV head.

The bits of a row depend on nothing but what it sees, and on where its spans begin: scores are sums over the head's
dimensions in order, and a tile's values are summed over the positions that the row sees, in order, before they join the
record. Neither the other rows, nor the other requests, nor what lies in unused slots takes part.
"""

from typing import Any

import numpy as np

from pagedkv.optimized.cpu.compiler import compiled
from pagedkv.optimized.cpu.records import LOG2_E, NOTHING, add_scaled, power_of_2, record_size, shift_of
from pagedkv.optimized.cpu.simd import (
    WIDTH, absolute, exp2, fma, keep, lane_numbers, load, load_int64, load_number, maximum, minus, over, plus, signed,
    splat, store, store_number, times, top, total, where_less,
)  # fmt: skip
from pagedkv.optimized.cpu.tiles import COLUMNS, ROWS, product, whole_columns
from pagedkv.optimized.cpu.work import TILE


@compiled
def tanh(x: Any) -> Any:
    """By an exponential, and near 0, where that cancels, by x - x**3 / 3 + 2 x**5 / 15."""
    one, size, square = splat(np.float32(1)), absolute(x), times(x, x)
    e = exp2(times(size, splat(np.float32(-2) * LOG2_E)))
    near = fma(square, fma(square, splat(np.float32(2 / 15)), splat(np.float32(-1 / 3))), one)
    return where_less(size, splat(np.float32(0.0625)), times(x, near), signed(over(minus(one, e), plus(one, e)), x))


@compiled
def bend(work: Any, x: Any, distance: np.float32, slope: np.float32) -> Any:
    """Scores of positions `distance`, `distance` + 1, … from the row's own, as logits."""
    x = times(x, splat(np.float32(work.scale)))
    if work.softcap != 0:
        cap = splat(np.float32(work.softcap))
        x = times(cap, tanh(over(x, cap)))
    if work.slopes != 0:
        x = plus(x, times(splat(slope), plus(splat(distance), lane_numbers())))
    return x


@compiled
def weigh(work: Any, desk: Any, row: int, base: int, first: int, end: int, head: int, state: int) -> None:
    """Scores of a row become weights, 0 outside first <= i < end; the desk gets what its sums are to be multiplied by.

    `state`: the last two numbers of the row's record, which follow.
    """
    scores, slope = desk.scores + 4 * TILE * (row % ROWS), np.float32(0)
    if work.slopes != 0:
        slope = load_number(work.slopes + 4 * (head * work.group + row % work.group))
    own = load_int64(desk.ranges + 24 * row + 16) - base
    vector = splat(NOTHING)
    for i in range(0, TILE, WIDTH):
        x = bend(work, load(scores + 4 * i), np.float32(i - own), slope)
        if first > 0 or end < TILE:
            x = keep(x, first - i, end - i)
        store(scores + 4 * i, x)
        vector = maximum(vector, x)
    before = load_number(state)
    largest = max(before, top(vector))
    shift, vector = shift_of(largest), splat(np.float32(0))
    for i in range(0, TILE, WIDTH):
        x = exp2(times(minus(load(scores + 4 * i), splat(shift)), splat(LOG2_E)))
        store(scores + 4 * i, x)
        vector = plus(vector, x)
    factor = np.float32(1) if before == largest else power_of_2((before - shift) * LOG2_E)
    store_number(state, largest)
    store_number(state + 4, load_number(state + 4) * factor + total(vector))
    store_number(desk.factors + 4 * (row % ROWS), factor)


@compiled
def range_of(desk: Any, row: int, base: int) -> tuple[int, int]:
    """What a row sees of the tile at `base`: the first place, and the one behind the last."""
    at = desk.ranges + 24 * row
    return max(0, load_int64(at) - base), min(TILE, load_int64(at + 8) - base)


@compiled
def attend_block(work: Any, desk: Any, row: int, base: int, query: int, record: int, head: int, pace: int) -> None:
    """`ROWS` rows of one KV head, from row `row` on, take in the tile that begins at position `base`.

    Rows that see the same places share the product with the values; others have their own. `query`, `record`: those of
    the first row; `pace`: of asking for the pieces on the desk.
    """
    columns, step, line = whole_columns(work.value_dim), record_size(work.value_dim), 4 * whole_columns(work.head_dim)
    pieces, dim, common, alike, seen = desk.pieces, work.head_dim, range_of(desk, row, base), True, False
    for r in range(ROWS):
        first, end = range_of(desk, row + r, base)
        alike &= (first, end) == common
        seen |= first < end
    if not seen:
        return
    for c in range(0, 4 * TILE, 4 * COLUMNS):
        pieces = product(query, line, desk.keys + c, 4 * TILE, 0, dim, desk.scores + c, 4 * TILE, pieces, pace)
    for r in range(ROWS):
        first, end = range_of(desk, row + r, base)
        if first < end:
            weigh(work, desk, row + r, base, first, end, head, record + step * r + 4 * columns)
    first, end = common
    if alike and first < end:
        for c in range(0, 4 * columns, 4 * COLUMNS):
            values, sums = desk.values + c, desk.sums + c
            pieces = product(
                desk.scores, 4 * TILE, values, 4 * columns, first, end, sums, 4 * columns, pieces, pace
            )  # fmt: skip
    for r in range(ROWS):
        first, end = range_of(desk, row + r, base)
        scores, sums = desk.scores + 4 * TILE * r, desk.sums + 4 * columns * r
        if first < end:
            for c in range(0, 0 if alike else 4 * columns, 4 * COLUMNS):
                product(scores, 0, desk.values + c, 4 * columns, first, end, sums + c, 0, pieces, 0)
            add_scaled(record + step * r, columns, load_number(desk.factors + 4 * r), sums, np.float32(1))
