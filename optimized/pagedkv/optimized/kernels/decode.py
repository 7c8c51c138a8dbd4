"""Attention of one query row over a paged cache, split along the keys.

Program (row, kv_head, split) serves the whole group of query heads that share a KV head: they read the same keys, so
they are packed as the rows of one tile (at least 16, what tensor cores want). A split covers the positions
split * SPLIT_SIZE and on; the size is fixed, so that the bits of a request do not depend on what else is in the batch.
Tiles have their own size, whatever the block size: each lane finds its block by itself.

Softmax runs in base 2, online. A split that sees nothing leaves (0, -inf, 0), and the merge gives it no weight.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def visible_span(row_request, row_position, seq_lens, row, WINDOW: tl.constexpr, CAUSAL: tl.constexpr):
    """(request, position, first, end) of a row: it sees the positions first..end-1. Rows without a request see none."""
    request = tl.load(row_request + row).to(tl.int64)
    position = tl.load(row_position + row)
    known = request >= 0
    end = tl.load(seq_lens + request, mask=known, other=0)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(position - WINDOW + 1, 0)
        end = tl.minimum(end, position + WINDOW)
    if CAUSAL:
        end = tl.minimum(end, position + 1)
    return request, position, first, end


@triton.jit
def tanh(x):
    """By one exponential of a number <= 0, so that nothing overflows."""
    t = tl.exp2(-2.0 * tl.abs(x) * LOG2_E)
    y = (1.0 - t) / (1.0 + t)
    return tl.where(x < 0, -y, y)


@triton.jit
def decode_kernel(
    query,  # (num_rows, num_q_heads, HEAD_DIM)
    key_cache,  # (num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM)
    value_cache,  # (num_blocks, BLOCK_SIZE, num_kv_heads, VALUE_DIM)
    block_tables,  # (num_requests, max_blocks) int32
    seq_lens,  # (num_requests,) int32
    row_request,  # (num_rows,) int32: the request of a row, < 0: none
    row_position,  # (num_rows,) int32
    alibi_slopes,  # (num_q_heads,) float32, or anything if not HAS_ALIBI
    sinks,  # (num_q_heads,) float32, or anything if not HAS_SINKS
    out,  # (num_rows, num_q_heads, VALUE_DIM), the result if there is one split
    lse,  # (num_rows, num_q_heads) float32, likewise
    part_out,  # (num_rows, num_q_heads, num_splits, VALUE_DIM) float32, unnormalised
    part_max,  # (num_rows, num_q_heads, num_splits) float32, base 2
    part_sum,  # (num_rows, num_q_heads, num_splits) float32
    scale,
    softcap,
    query_stride_row,
    query_stride_head,
    key_stride_block,
    key_stride_token,
    key_stride_head,
    value_stride_block,
    value_stride_token,
    value_stride_head,
    table_stride,
    out_stride_row,
    out_stride_head,
    num_splits,
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PADDED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_DIM_PADDED: tl.constexpr,
    TILE: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    ONE_SPLIT: tl.constexpr,
    UPCAST: tl.constexpr,  # operands to float32 before a product: the interpreter's bfloat16 products are wrong
):
    """Attend with one row and one group of query heads to the positions of one split."""
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    request, position, first, end = visible_span(row_request, row_position, seq_lens, row, WINDOW, CAUSAL)

    in_group = tl.arange(0, GROUP_PADDED)
    heads = kv_head * GROUP + in_group
    is_head = in_group < GROUP
    dims = tl.arange(0, HEAD_DIM_PADDED)
    value_dims = tl.arange(0, VALUE_DIM_PADDED)
    is_dim = dims < HEAD_DIM
    is_value_dim = value_dims < VALUE_DIM

    query_at = row * query_stride_row + heads[:, None] * query_stride_head + dims[None, :]
    q = tl.load(query + query_at, mask=is_head[:, None] & is_dim[None, :], other=0.0)
    if UPCAST:
        q = q.to(tl.float32)
    if HAS_ALIBI:
        slopes = tl.load(alibi_slopes + heads, mask=is_head, other=0.0)

    largest = tl.full((GROUP_PADDED,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP_PADDED,), tl.float32)
    acc = tl.zeros((GROUP_PADDED, VALUE_DIM_PADDED), tl.float32)

    begin = tl.maximum(split * SPLIT_SIZE, first // TILE * TILE)
    stop = tl.minimum((split + 1) * SPLIT_SIZE, end)
    for tile in range(begin, stop, TILE):
        positions = tile + tl.arange(0, TILE)
        is_seen = (positions >= first) & (positions < stop)
        block = tl.load(block_tables + request * table_stride + positions // BLOCK_SIZE, mask=is_seen, other=0)
        block = block.to(tl.int64)
        token = (positions % BLOCK_SIZE).to(tl.int64)

        key_at = block * key_stride_block + token * key_stride_token + kv_head * key_stride_head
        k = tl.load(key_cache + key_at[None, :] + dims[:, None], mask=is_seen[None, :] & is_dim[:, None], other=0.0)
        if UPCAST:
            k = k.to(tl.float32)
        s = tl.dot(q, k, input_precision="ieee") * scale
        if HAS_SOFTCAP:
            s = softcap * tanh(s / softcap)
        if HAS_ALIBI:
            s += slopes[:, None] * (positions - position)[None, :].to(tl.float32)
        s = tl.where(is_seen[None, :], s * LOG2_E, float("-inf"))

        new_largest = tl.maximum(largest, tl.max(s, 1))
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)  # nothing seen yet: no -inf - -inf
        shrink = tl.exp2(largest - shift)
        p = tl.exp2(s - shift[:, None])
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]

        value_at = block * value_stride_block + token * value_stride_token + kv_head * value_stride_head
        is_value = is_seen[:, None] & is_value_dim[None, :]
        v = tl.load(value_cache + value_at[:, None] + value_dims[None, :], mask=is_value, other=0.0)
        if UPCAST:
            acc += tl.dot(p, v.to(tl.float32), input_precision="ieee")
        else:
            acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")
        largest = new_largest

    # A sink is one more logit with no value. It joins the first split, and no row that sees nothing.
    if HAS_SINKS:
        if (split == 0) & (end > first):
            sink = tl.load(sinks + heads, mask=is_head, other=0.0) * LOG2_E
            new_largest = tl.maximum(largest, sink)
            shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
            shrink = tl.exp2(largest - shift)
            total = total * shrink + tl.exp2(sink - shift)
            acc = acc * shrink[:, None]
            largest = new_largest

    is_out = is_head[:, None] & is_value_dim[None, :]
    if ONE_SPLIT:
        nothing = total == 0.0
        result = acc / tl.where(nothing, 1.0, total)[:, None]
        out_at = row * out_stride_row + heads[:, None] * out_stride_head + value_dims[None, :]
        tl.store(out + out_at, result.to(out.dtype.element_ty), mask=is_out)
        log_total = tl.log2(tl.where(nothing, 1.0, total))
        row_lse = tl.where(nothing, float("-inf"), (largest + log_total) * LN_2)
        tl.store(lse + row * (tl.num_programs(1) * GROUP) + heads, row_lse, mask=is_head)
    else:
        part = (row * (tl.num_programs(1) * GROUP) + heads) * num_splits + split
        tl.store(part_out + part[:, None] * VALUE_DIM + value_dims[None, :], acc, mask=is_out)
        tl.store(part_max + part, largest, mask=is_head)
        tl.store(part_sum + part, total, mask=is_head)
