"""Moving KV: rows to slots, blocks to blocks, pages side by side; and the merging of results.

All but conversions is the copying of boxes: some lines of some runs of bytes, in whatever way they lie.
"""

from math import exp, log
from typing import Any, NamedTuple

import numpy as np

from pagedkv.optimized.cpu.compiler import compiled
from pagedkv.optimized.cpu.records import NOTHING, shift_of
from pagedkv.optimized.cpu.simd import (
    VECTOR, WIDTH, copy_bytes, fence, fma, load, load_int32, load_number, over, splat, store_number, stream,
    take_next,
)  # fmt: skip
from pagedkv.optimized.cpu.storage import FLOAT32, item_size, read_vector, write_vector


class Pages(NamedTuple):
    """A cache, as blocks, tokens and heads: where it lies, and steps in bytes."""

    place: int
    block: int
    token: int
    head: int
    block_size: int
    num_heads: int
    row_size: int
    """Bytes of one head of one token."""


class Rows(NamedTuple):
    """A tensor of tokens and heads."""

    place: int
    token: int
    head: int


class Written(NamedTuple):
    """Rows on their way to a cache."""

    pages: Pages
    rows: Rows
    kind: int
    """How the cache is stored."""
    rounding: bool
    """The rows are float32, and the cache is not."""


@compiled
def copy_box(
    target: int, target_token: int, target_head: int, source: int, source_token: int, source_head: int,
    tokens: int, heads: int, size: int, streaming: bool,
) -> None:  # fmt: skip
    """`size` bytes of each head of each token; what lies side by side on both sides is copied in one go."""
    if target_head == size and source_head == size:
        size, heads = size * heads, 1
    if heads == 1 and target_token == size and source_token == size:
        size, tokens = size * tokens, 1
    for t in range(tokens):
        for h in range(heads):
            to, at = target + t * target_token + h * target_head, source + t * source_token + h * source_head
            if streaming and to % VECTOR == 0 and size % VECTOR == 0:
                for i in range(0, size, VECTOR):
                    stream(to + i, load(at + i))
            else:
                copy_bytes(to, at, size)


@compiled
def are_distinct(slots: Any, taken: Any) -> bool:
    """Those >= 0 are below len(taken), and none is given twice; `taken` is all False, and is written."""
    for slot in slots:
        if slot >= len(taken) or (slot >= 0 and taken[slot]):
            return False
        if slot >= 0:
            taken[slot] = True
    return True


@compiled
def write_rows(keys: Any, values: Any, slots: Any, step: int, streaming: bool, counter: int) -> None:
    """Rows of keys and of values to slots >= 0, those of `step` tokens at a time."""
    n = take_next(counter)
    while n // 2 * step < len(slots):
        first, end = n // 2 * step, min((n // 2 + 1) * step, len(slots))
        write_some(keys if n % 2 == 0 else values, slots, first, end, streaming)
        n = take_next(counter)
    fence()


@compiled
def write_some(written: Any, slots: Any, first: int, end: int, streaming: bool) -> None:
    """Those of the tokens first to end - 1."""
    pages, rows = written.pages, written.rows
    for t in range(first, end):
        if slots[t] < 0:
            continue
        to = pages.place + slots[t] // pages.block_size * pages.block + slots[t] % pages.block_size * pages.token
        source = rows.place + t * rows.token
        if written.rounding:
            for h in range(pages.num_heads):
                round_row(written.kind, to + h * pages.head, source + h * rows.head, pages.row_size)
        else:
            copy_box(to, 0, pages.head, source, 0, rows.head, 1, pages.num_heads, pages.row_size, streaming)


@compiled
def round_row(kind: int, target: int, source: int, size: int) -> None:
    """Float32 to `size` bytes of another kind."""
    count = size // item_size(kind)
    for i in range(0, count, WIDTH):
        x = read_vector(FLOAT32, source + 4 * i, count - i)
        write_vector(kind, target + i * item_size(kind), x, count - i)


@compiled
def copy_pairs(sources: Any, targets: Any, pairs: Any, streaming: bool, counter: int) -> None:
    """Whole blocks, of pairs whose source is >= 0; one pair at a time."""
    n = take_next(counter)
    while n < len(pairs):
        if pairs[n, 0] >= 0:
            source, target = sources.place + pairs[n, 0] * sources.block, targets.place + pairs[n, 1] * targets.block
            copy_box(
                target, targets.token, targets.head, source, sources.token, sources.head,
                sources.block_size, sources.num_heads, sources.row_size, streaming,
            )  # fmt: skip
        n = take_next(counter)
    fence()


@compiled
def gather_rows(
    pages: Any, tables: int, row: int, ends: Any, starts: Any, out: Any, step: int, streaming: bool, counter: int
) -> None:
    """Positions of requests side by side, `step` of them at a time; what lies in one block in one go."""
    done = take_next(counter) * step
    while done < ends[-1]:
        stop, r = min(done + step, ends[-1]), 0
        while done < stop:
            while ends[r + 1] <= done:
                r += 1
            position = starts[r] + done - ends[r]
            offset = position % pages.block_size
            count = min(pages.block_size - offset, min(stop, ends[r + 1]) - done)
            block = load_int32(tables + r * row + 4 * (position // pages.block_size))
            source = pages.place + block * pages.block + offset * pages.token
            copy_box(
                out.place + done * out.token, out.token, out.head, source, pages.token, pages.head,
                count, pages.num_heads, pages.row_size, streaming,
            )  # fmt: skip
            done += count
        done = take_next(counter) * step
    fence()


@compiled
def merge_rows(outs: Any, lses: Any, out: int, lse: int, factors: int, shape: Any, counter: int) -> None:
    """Results over disjoint sets of keys become one, part after part; a part that saw nothing is not looked at.

    `outs`, `lses`: place and steps of parts, tokens and heads; `out` and `lse` are contiguous; `factors`: room for as
    many float32 as there are log-sum-exps.
    """
    parts, tokens, heads, dim, kind = shape
    t = take_next(counter)
    while t < tokens:
        for h in range(heads):
            row, largest, total = t * heads + h, NOTHING, np.float32(0)
            at, weights, mine = (
                outs[0] + t * outs[2] + h * outs[3],
                lses[0] + t * lses[2] + h * lses[3],
                row * parts * 4,
            )
            for part in range(parts):
                largest = max(largest, log_weight(weights + part * lses[1]))
            shift = shift_of(largest)
            for part in range(parts):
                factor = np.float32(exp(log_weight(weights + part * lses[1]) - shift))
                total += factor
                store_number(factors + mine + 4 * part, factor)
            divisor = splat(np.float32(1) if total == 0 else total)
            for d in range(0, dim, WIDTH):
                x = splat(np.float32(0))
                for part in range(parts):
                    factor = load_number(factors + mine + 4 * part)
                    if factor != 0:
                        place = at + part * outs[1] + d * item_size(kind)
                        x = fma(splat(factor), read_vector(kind, place, dim - d), x)
                write_vector(kind, out + (row * dim + d) * item_size(kind), over(x, divisor), dim - d)
            store_number(lse + 4 * row, NOTHING if total == 0 else shift + np.float32(log(total)))
        t = take_next(counter)


@compiled
def log_weight(place: int) -> np.float32:
    """A log-sum-exp; +inf stands for a row that saw nothing in FlashAttention-2, and so for -inf."""
    value = load_number(place)
    return NOTHING if value == np.inf else value
