"""Results on their way: for a query row over some of its positions, sums and what they are relative to.

A record is a line of float32: the weighted sum of values, `whole_columns(value_dim)` numbers; in each lane of a vector
a part of the sum of weights exp(logit - largest); the largest logit. Records over disjoint positions merge. (Milakov
and Gimelshein, "Online normalizer calculation for softmax", 2018.)
"""

from math import log
from typing import Any, Final

import numpy as np

from pagedkv.optimized.cpu.compiler import compiled
from pagedkv.optimized.cpu.products import whole_columns
from pagedkv.optimized.cpu.simd import (
    VECTOR, WIDTH, exp2, first_of, fma, load, load_number, over, splat, store, store_number,
    times, total,
)  # fmt: skip
from pagedkv.optimized.cpu.storage import item_size, write_vector

LOG2_E: Final = np.float32(1.4426950408889634)
NOTHING: Final = np.float32(-np.inf)


@compiled
def record_size(value_dim: int) -> int:
    """Bytes, a multiple of a vector's: vectors that lie across two cache lines take longer to read and to write."""
    return 4 * whole_columns(value_dim) + 2 * VECTOR


@compiled
def clear(record: int, columns: int) -> None:
    """A record of no positions."""
    for d in range(0, columns, WIDTH):
        store(record + 4 * d, splat(np.float32(0)))
    store(record + 4 * columns, splat(np.float32(0)))
    store_number(record + 4 * columns + VECTOR, NOTHING)


@compiled
def power_of_2(x: np.float32) -> np.float32:
    """2**x for x <= 0, as vectors have it."""
    return first_of(exp2(splat(x)))


@compiled
def shift_of(largest: np.float32) -> np.float32:
    """What logits are taken relative to: their largest, unless all are -inf."""
    return np.float32(0) if largest == NOTHING else largest


@compiled
def add_scaled(record: int, columns: int, factor: np.float32, source: int, weight: np.float32) -> None:
    """record = record * factor + source * weight, of so many columns."""
    a, b = splat(factor), splat(weight)
    for d in range(0, 4 * columns, 4 * WIDTH):
        store(record + d, fma(load(record + d), a, times(load(source + d), b)))


@compiled
def merge(target: int, first: int, count: int, step: int, columns: int) -> None:
    """Records at first, first + step, … become one, in that order."""
    largest = NOTHING
    for part in range(count):
        largest = max(largest, load_number(first + part * step + 4 * columns + VECTOR))
    clear(target, columns)
    shift = shift_of(largest)
    for part in range(count):
        record = first + part * step
        factor = power_of_2((load_number(record + 4 * columns + VECTOR) - shift) * LOG2_E)
        add_scaled(target, columns + WIDTH, np.float32(1), record, factor)  # by 0, too: what is no number stays none
    store_number(target + 4 * columns + VECTOR, largest)


@compiled
def finish(work: Any, record: int, token: int, head: int) -> None:
    """The record of all positions that a row sees becomes its output and log-sum-exp; a sink joins it now."""
    columns = whole_columns(work.value_dim)
    largest, weights = load_number(record + 4 * columns + VECTOR), total(load(record + 4 * columns))
    shift, factor = shift_of(largest), np.float32(1)
    if work.sinks != 0:
        sink = load_number(work.sinks + 4 * head)
        if sink > largest:
            factor = power_of_2((largest - sink) * LOG2_E)
            weights, shift = weights * factor + np.float32(1), sink
        else:
            weights += power_of_2((sink - shift) * LOG2_E)
    divisor = np.float32(1) if weights == 0 else weights
    out = work.out + token * work.out_token + head * work.out_head
    for d in range(0, work.value_dim, WIDTH):
        x = over(times(load(record + 4 * d), splat(factor)), splat(divisor))
        write_vector(work.kind, out + d * item_size(work.kind), x, work.value_dim - d)
    lse = NOTHING if weights == 0 else shift + np.float32(log(weights))
    store_number(work.lse + token * work.lse_token + head * work.lse_head, lse)


@compiled
def finish_nothing(work: Any, token: int, head: int) -> None:
    """A row that sees nothing: output 0, log-sum-exp -inf."""
    out = work.out + token * work.out_token + head * work.out_head
    for d in range(0, work.value_dim, WIDTH):
        write_vector(work.kind, out + d * item_size(work.kind), splat(np.float32(0)), work.value_dim - d)
    store_number(work.lse + token * work.lse_token + head * work.lse_head, NOTHING)
