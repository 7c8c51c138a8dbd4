"""Attention of a tile of query rows over a span of positions: the loop that `decode` and `prefill` share.

The rows of a tile are consecutive query tokens of one request, times the group of query heads that share a KV head:
all of them read the same keys. A tile of keys has its own size, whatever the block size: each lane finds its block by
itself, or all at once where a tile lies in one block.

What rows see is a run of positions, and both its ends move forward with the row. So the positions of a span are of
three kinds: seen by some rows (masked), then by all (nothing to mask), then again by some (masked).

Softmax runs in base 2, online: `largest` is the largest logit so far, in a unit that `unit_of` turns into base 2,
`total` the sum of the weights relative to it, `acc` their products with the values. (Milakov and Gimelshein, 2018; Dao,
"FlashAttention-2", 2023, §3.)
"""

import triton
import triton.language as tl

from pagedkv.optimized.kernels.rows import unit_of

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def tanh(x):
    """By one exponential of a number <= 0, so that nothing overflows; near 0, where 1 - t cancels, by its series."""
    t = tl.exp2(-2.0 * tl.abs(x) * LOG2_E)
    y = (1.0 - t) / (1.0 + t)
    square = x * x
    series = x * (1.0 - square * (0.33333333 - 0.13333333 * square))
    return tl.where(tl.abs(x) < 0.05, series, tl.where(x < 0, -y, y))


@triton.jit
def add_nonfinite(
    acc, tile, stop, first, end, table, values, value_stride_block, value_stride_token,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_DIM_PADDED: tl.constexpr,
):  # fmt: skip
    """Add the values that are not finite, one position at a time, to the rows that see it, and to no others.

    In a product of the whole tile a row that does not see one would get it too: 0 * NaN is no 0. The weight of a value
    that is not finite does not matter.
    """
    value_dims = tl.arange(0, VALUE_DIM_PADDED)
    for position in tl.range(tile, tl.minimum(tile + TILE, stop), num_stages=1):
        sees = (position >= first) & (position < end)
        is_seen = tl.max(sees.to(tl.int32), 0) > 0
        block = tl.load(table + position // BLOCK_SIZE, mask=is_seen, other=0).to(tl.int64)
        token = block * 0 + position % BLOCK_SIZE  # 64-bit
        at = block * value_stride_block + token * value_stride_token
        v = tl.load(values + at + value_dims, mask=(value_dims < VALUE_DIM) & is_seen, other=0.0).to(tl.float32)
        is_nonfinite = (v - v) != 0.0
        acc = tl.where(sees[:, None] & is_nonfinite[None, :], acc + v[None, :], acc)
    return acc


@triton.jit
def attend_tiles(
    acc,  # (ROWS, VALUE_DIM_PADDED) float32
    largest,  # (ROWS,) float32
    total,  # (ROWS,) float32
    q,  # (ROWS, HEAD_DIM_PADDED)
    begin,  # a multiple of TILE
    stop,
    low,  # no row sees a position before it
    position,  # (ROWS,) of the rows
    first,  # (ROWS,) what they see: first..end-1
    end,  # (ROWS,)
    table,  # of the request
    keys,  # of the KV head
    values,
    slopes,  # (ROWS,) float32
    scale,
    softcap,
    key_stride_block,
    key_stride_token,
    value_stride_block,
    value_stride_token,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_DIM_PADDED: tl.constexpr,
    TILE: tl.constexpr,
    PLAIN_LOGITS: tl.constexpr,  # products times a positive scale, and no more
    HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr,
    MASKED: tl.constexpr,  # some row may not see some position
    MULTI_TOKEN: tl.constexpr,  # rows of several tokens, which see different positions
    UPCAST: tl.constexpr,  # operands to float32 before a product: the interpreter's bfloat16 products are wrong
):
    """The state of the softmax after the positions begin..stop-1."""
    unit = unit_of(scale, PLAIN_LOGITS)
    lanes = tl.arange(0, TILE)
    dims = tl.arange(0, HEAD_DIM_PADDED)
    value_dims = tl.arange(0, VALUE_DIM_PADDED)
    # Few tiles are seen by some rows only, and each needs registers for its masks: there nothing is loaded ahead.
    for tile in tl.range(begin, stop, TILE, num_stages=1 if MASKED and MULTI_TOKEN else None):
        positions = tile + lanes
        loaded = (positions >= low) & (positions < stop)
        # What is the same in every tile stands apart, so that it is computed once: the place of a lane in its block.
        if BLOCK_SIZE % TILE == 0:  # the tile lies in one block
            block = tl.load(table + tile // BLOCK_SIZE).to(tl.int64)
            start = block * 0 + tile % BLOCK_SIZE  # 64-bit
            token = lanes.to(tl.int64)
        elif TILE % BLOCK_SIZE == 0:  # the tile consists of whole blocks
            block = tl.load(table + tile // BLOCK_SIZE + lanes // BLOCK_SIZE, mask=loaded, other=0).to(tl.int64)
            start = 0
            token = (lanes % BLOCK_SIZE).to(tl.int64)
        else:
            block = tl.load(table + positions // BLOCK_SIZE, mask=loaded, other=0).to(tl.int64)
            start = 0
            token = (positions % BLOCK_SIZE).to(tl.int64)

        is_key = dims[:, None] < HEAD_DIM
        is_value = value_dims[None, :] < VALUE_DIM
        if MASKED:
            is_key = is_key & loaded[None, :]
            is_value = is_value & loaded[:, None]

        key_blocks = keys + (block * key_stride_block + start * key_stride_token)
        value_blocks = values + (block * value_stride_block + start * value_stride_token)
        if BLOCK_SIZE % TILE != 0:
            key_blocks = key_blocks[None, :]
            value_blocks = value_blocks[:, None]

        key_at = (token * key_stride_token)[None, :] + dims[:, None]
        k = tl.load(key_blocks + key_at, mask=is_key, other=0.0)
        if UPCAST:
            k = k.to(tl.float32)
        s = tl.dot(q, k, input_precision="ieee")
        if not PLAIN_LOGITS:
            s = s * scale
            if HAS_SOFTCAP:
                s = softcap * tanh(s / softcap)
            if HAS_ALIBI:
                s = tl.fma(slopes[:, None], (positions[None, :] - position[:, None]).to(tl.float32), s)
        if MASKED:
            s = tl.where((positions[None, :] >= first[:, None]) & (positions[None, :] < end[:, None]), s, float("-inf"))

        # The largest is subtracted before the logits are scaled: that is exact for those near it, however large. And no
        # product is left to the compiler to fuse with a sum, which it would do in one kind of tile and not in another.
        new_largest = tl.maximum(largest, tl.max(s, 1))
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)  # nothing seen yet: no -inf - -inf
        shrink = tl.exp2((largest - shift) * unit)
        p = tl.exp2((s - shift[:, None]) * unit)
        total = tl.fma(total, shrink, tl.sum(p, 1))
        acc = acc * shrink[:, None]
        largest = new_largest

        value_at = (token * value_stride_token)[:, None] + value_dims[None, :]
        v = tl.load(value_blocks + value_at, mask=is_value, other=0.0)
        if UPCAST:
            v = v.to(tl.float32)
        if MASKED and MULTI_TOKEN:
            is_nonfinite = (v - v) != 0.0
            some_nonfinite = tl.max(tl.max(is_nonfinite.to(tl.int32), 1), 0) > 0
            v = tl.where(is_nonfinite, 0.0, v).to(v.dtype)
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
        if MASKED and MULTI_TOKEN:
            if some_nonfinite:
                acc = add_nonfinite(
                    acc, tile, stop, first, end, table, values, value_stride_block, value_stride_token,
                    BLOCK_SIZE, TILE, VALUE_DIM, VALUE_DIM_PADDED,
                )  # fmt: skip
    return acc, largest, total


@triton.jit
def attend_span(
    q, begin, stop, low, all_first, all_end, position, first, end, table, keys, values, slopes, scale, softcap,
    key_stride_block, key_stride_token, value_stride_block, value_stride_token,
    BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_DIM_PADDED: tl.constexpr, VALUE_DIM: tl.constexpr,
    VALUE_DIM_PADDED: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, HAS_WINDOW: tl.constexpr,
    PLAIN_LOGITS: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_ALIBI: tl.constexpr, MULTI_TOKEN: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """(acc, largest, total) over the positions begin..stop-1, of which all rows see all_first..all_end-1.

    `begin` is a multiple of TILE. Else as `attend_tiles`. Rows of one token see the same. They wait for memory rather
    than for masks, so they have one loop instead of three.
    """
    acc = tl.zeros((ROWS, VALUE_DIM_PADDED), tl.float32)
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    begin_all = begin
    if HAS_WINDOW:
        begin_all = tl.minimum(tl.maximum((all_first + TILE - 1) // TILE * TILE, begin), stop)
    stop_all = tl.maximum(tl.minimum(all_end, stop) // TILE * TILE, begin_all)
    reached = begin
    for kind in tl.static_range(3):  # seen by some rows, by all, by some
        until = stop
        if MULTI_TOKEN and kind == 0:
            until = begin_all
        if MULTI_TOKEN and kind == 1:
            until = stop_all
        if kind == 2 or (MULTI_TOKEN and (HAS_WINDOW or kind == 1)):
            acc, largest, total = attend_tiles(
                acc, largest, total, q, reached, until, low, position, first, end, table, keys, values, slopes,
                scale, softcap, key_stride_block, key_stride_token, value_stride_block, value_stride_token,
                BLOCK_SIZE, HEAD_DIM, HEAD_DIM_PADDED, VALUE_DIM, VALUE_DIM_PADDED, TILE, PLAIN_LOGITS, HAS_SOFTCAP,
                HAS_ALIBI, kind != 1, MULTI_TOKEN, UPCAST,
            )  # fmt: skip
            reached = until
    return acc, largest, total
