"""Attention of a tile of query rows over a span of positions: the loop that `decode` and `prefill` share.

The rows of a tile are consecutive query tokens of one request, times the group of query heads that share a KV head:
all of them read the same keys. A tile of keys has its own size, whatever the block size: each lane finds its block by
itself, or all at once where a tile lies in one block.

What rows see is a run of positions, and both its ends move forward with the row. So the positions of a span are of
three kinds: seen by some rows (masked), then by all (nothing to mask), then again by some (masked).

Softmax runs in base 2, online: `largest` is the largest logit so far, `total` the sum of the weights relative to it,
`acc` their products with the values. (Milakov and Gimelshein, 2018; Dao, "FlashAttention-2", 2023, §3.)
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def rows_of(request, seq_lens, cu_seqlens_q, num_requests, total_q, HAS_CU: tl.constexpr):
    """(first row, number of rows, length) of a request. Rows past the last request are one more, of length 0."""
    if HAS_CU:
        known = request < num_requests
        start = tl.load(cu_seqlens_q + request)
        end = tl.load(cu_seqlens_q + request + 1, mask=known, other=0)
        end = tl.where(known, end, total_q)
        length = tl.load(seq_lens + request, mask=known, other=0)
    else:
        start = request.to(tl.int32)
        end = start + 1
        length = tl.load(seq_lens + request)
    return start, end - start, length


@triton.jit
def first_seen(position, window, HAS_WINDOW: tl.constexpr):
    """The first position that a row sees."""
    first = position * 0
    if HAS_WINDOW:
        first = tl.maximum(position - window + 1, 0)
    return first


@triton.jit
def end_seen(position, length, window, CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr):
    """Past the last position that a row sees; not past `first_seen` if it sees nothing."""
    end = position * 0 + length
    if CAUSAL:
        end = tl.minimum(position + 1, end)
    elif HAS_WINDOW:
        end = tl.minimum(position + window, end)
    return end


@triton.jit
def rows_in_tile(
    token, start, num_rows, length, kv_head, window, ROWS: tl.constexpr, TOKENS: tl.constexpr, GROUP: tl.constexpr,
    CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr,
):  # fmt: skip
    """The rows of a tile, query token by token, each with its group of heads; `token` is the first.

    (is_row, row of the query 64-bit, query head 64-bit, position, first, end), (ROWS,) each.
    """
    lane = tl.arange(0, ROWS)
    tokens = token + lane // GROUP
    position = length - num_rows + tokens
    first = first_seen(position, window, HAS_WINDOW)
    end = end_seen(position, length, window, CAUSAL, HAS_WINDOW)
    is_row = (lane // GROUP < TOKENS) & (tokens < num_rows)
    return is_row, start.to(tl.int64) + tokens, kv_head * GROUP + lane % GROUP, position, first, end


@triton.jit
def span_of_tile(token, num_rows, length, window, TOKENS: tl.constexpr, CAUSAL: tl.constexpr, HAS_WINDOW: tl.constexpr):
    """(low, high, all_first, all_end): some row sees low..high-1, and each sees all_first..all_end-1."""
    earliest = length - num_rows + token
    latest = length - num_rows + tl.minimum(token + TOKENS, num_rows) - 1
    low = first_seen(earliest, window, HAS_WINDOW)
    high = tl.maximum(end_seen(latest, length, window, CAUSAL, HAS_WINDOW), low)
    all_end = end_seen(earliest, length, window, CAUSAL, HAS_WINDOW)
    return low, high, first_seen(latest, window, HAS_WINDOW), all_end


@triton.jit
def load_queries(
    query, rows, heads, is_row, stride_row, stride_head,
    HEAD_DIM: tl.constexpr, HEAD_DIM_PADDED: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """(ROWS, HEAD_DIM_PADDED), 0 where there is none."""
    dims = tl.arange(0, HEAD_DIM_PADDED)
    at = rows[:, None] * stride_row + heads[:, None] * stride_head + dims[None, :]
    q = tl.load(query + at, mask=is_row[:, None] & (dims < HEAD_DIM)[None, :], other=0.0)
    if UPCAST:
        q = q.to(tl.float32)
    return q


@triton.jit
def tanh(x):
    """By one exponential of a number <= 0, so that nothing overflows."""
    t = tl.exp2(-2.0 * tl.abs(x) * LOG2_E)
    y = (1.0 - t) / (1.0 + t)
    return tl.where(x < 0, -y, y)


@triton.jit
def add_odd(
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
        is_odd = (v - v) != 0.0
        acc = tl.where(sees[:, None] & is_odd[None, :], acc + v[None, :], acc)
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
    BENT: tl.constexpr,  # logits are not plain products times a positive scale
    HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr,
    MASKED: tl.constexpr,  # some row may not see some position
    SEVERAL: tl.constexpr,  # rows of several tokens, which see different positions
    UPCAST: tl.constexpr,  # operands to float32 before a product: the interpreter's bfloat16 products are wrong
):
    """The state of the softmax after the positions begin..stop-1."""
    lanes = tl.arange(0, TILE)
    dims = tl.arange(0, HEAD_DIM_PADDED)
    value_dims = tl.arange(0, VALUE_DIM_PADDED)
    # Few tiles are seen by some rows only, and each needs registers for its masks: there nothing is loaded ahead.
    for tile in tl.range(begin, stop, TILE, num_stages=1 if MASKED and SEVERAL else None):
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
        if BENT:
            s = s * scale
            if HAS_SOFTCAP:
                s = softcap * tanh(s / softcap)
            if HAS_ALIBI:
                s += slopes[:, None] * (positions[None, :] - position[:, None]).to(tl.float32)
            to_base_2 = LOG2_E
        else:
            to_base_2 = scale * LOG2_E
        if MASKED:
            s = tl.where((positions[None, :] >= first[:, None]) & (positions[None, :] < end[:, None]), s, float("-inf"))

        # The product is fused by name: left to the compiler, it would be in one kind of tile and not in the other, and
        # the bits of a row would depend on the rows beside it.
        new_largest = tl.maximum(largest, tl.max(s, 1) * to_base_2)
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)  # nothing seen yet: no -inf - -inf
        shrink = tl.exp2(largest - shift)
        p = tl.exp2(tl.fma(s, to_base_2, -shift[:, None]))
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        largest = new_largest

        value_at = (token * value_stride_token)[:, None] + value_dims[None, :]
        v = tl.load(value_blocks + value_at, mask=is_value, other=0.0)
        if UPCAST:
            v = v.to(tl.float32)
        if MASKED and SEVERAL:
            is_odd = (v - v) != 0.0
            some_odd = tl.max(tl.max(is_odd.to(tl.int32), 1), 0) > 0
            v = tl.where(is_odd, 0.0, v).to(v.dtype)
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
        if MASKED and SEVERAL:
            if some_odd:
                acc = add_odd(
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
    BENT: tl.constexpr, HAS_SOFTCAP: tl.constexpr, HAS_ALIBI: tl.constexpr, SEVERAL: tl.constexpr,
    UPCAST: tl.constexpr,
):  # fmt: skip
    """(acc, largest, total) over the positions begin..stop-1, of which all rows see all_first..all_end-1.

    `begin` is a multiple of TILE. Else as `attend_tiles`. Rows of one token see the same, and masking costs them
    nothing: they are spared the second and third loop.
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
        if SEVERAL and kind == 0:
            until = begin_all
        if SEVERAL and kind == 1:
            until = stop_all
        if kind == 2 or (SEVERAL and (HAS_WINDOW or kind == 1)):
            acc, largest, total = attend_tiles(
                acc, largest, total, q, reached, until, low, position, first, end, table, keys, values, slopes,
                scale, softcap, key_stride_block, key_stride_token, value_stride_block, value_stride_token,
                BLOCK_SIZE, HEAD_DIM, HEAD_DIM_PADDED, VALUE_DIM, VALUE_DIM_PADDED, TILE, BENT, HAS_SOFTCAP,
                HAS_ALIBI, kind != 1, SEVERAL, UPCAST,
            )  # fmt: skip
            reached = until
    return acc, largest, total


@triton.jit
def with_sink(largest, total, sink):
    """(largest, total, shrink) with one more logit that adds no value; `acc` is to be multiplied by `shrink`."""
    sink = sink * LOG2_E
    new_largest = tl.maximum(largest, sink)
    shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
    shrink = tl.exp2(largest - shift)
    return new_largest, total * shrink + tl.exp2(sink - shift), shrink


@triton.jit
def lse_of(largest, total):
    """The natural log-sum-exp; -inf if nothing was seen."""
    nothing = total == 0.0
    return tl.where(nothing, float("-inf"), (largest + tl.log2(tl.where(nothing, 1.0, total))) * LN_2)


@triton.jit
def store_result(
    acc, largest, total, out, lse, sinks, rows, heads, is_row, sees, num_q_heads, stride_row, stride_head,
    VALUE_DIM: tl.constexpr, VALUE_DIM_PADDED: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """Output and log-sum-exp of rows whose softmax is complete but for the sink: 0 and -inf where nothing is seen."""
    if HAS_SINKS:
        sink = tl.load(sinks + heads, mask=is_row & sees, other=float("-inf"))
        largest, total, shrink = with_sink(largest, total, sink)
        acc = acc * shrink[:, None]
    value_dims = tl.arange(0, VALUE_DIM_PADDED)
    result = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    at = rows[:, None] * stride_row + heads[:, None] * stride_head + value_dims[None, :]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=is_row[:, None] & (value_dims < VALUE_DIM)[None, :])
    tl.store(lse + rows * num_q_heads + heads, lse_of(largest, total), mask=is_row)
