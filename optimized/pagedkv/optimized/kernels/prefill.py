"""Attention of requests with many query rows: chunked and whole prefill.

Program (block of rows, kv_head) reads all keys that its rows see. The grid has as many blocks as there can be at most,
whatever the requests are. With n = cu_seqlens_q[r], the first block of request r is number n // TOKENS plus the most
requests before it that can have more rows than DECODE_ROWS: so a request that has more gets enough blocks, one that has
not may get none, and a search finds the request of a block. The last blocks of a prompt see most, so they begin.
"""

import triton
import triton.language as tl

from pagedkv.optimized.kernels.rows import (
    NOT_SPECIALIZED, in_words, load_queries, rows_in_tile, rows_of, span_of_tile, store_result, unit_of,
)  # fmt: skip
from pagedkv.optimized.kernels.tiles import attend_span


@triton.jit
def first_block(request, start, TOKENS: tl.constexpr, DECODE_ROWS: tl.constexpr):
    """The number of the first block of a request, whose first row is `start`."""
    return start // TOKENS + tl.minimum(request, start // (DECODE_ROWS + 1))


@triton.jit
def request_of(block, cu_seqlens_q, num_requests, TOKENS: tl.constexpr, DECODE_ROWS: tl.constexpr):
    """The last request r, `num_requests` for the rows past the last, whose first block is not past `block`."""
    low = 0
    high = num_requests
    while low < high:
        middle = (low + high + 1) // 2
        first = first_block(middle, tl.load(cu_seqlens_q + middle), TOKENS, DECODE_ROWS)
        low = tl.where(first <= block, middle, low)
        high = tl.where(first <= block, high, middle - 1)
    return low


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def prefill_kernel(
    query,  # (total_q, num_q_heads, HEAD_DIM)
    key_cache,  # (num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM)
    value_cache,  # (num_blocks, BLOCK_SIZE, num_kv_heads, VALUE_DIM)
    block_tables,  # (num_requests, max_blocks) int32
    seq_lens,  # (num_requests,) int32
    cu_seqlens_q,  # (num_requests + 1,) int32
    alibi_slopes,  # (num_q_heads,) float32, or anything if not HAS_ALIBI
    sinks,  # (num_q_heads,) float32, or anything if not HAS_SINKS
    out,  # (total_q, num_q_heads, VALUE_DIM)
    lse,  # (total_q, num_q_heads) float32
    num_requests,
    total_q,
    window,
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
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_DIM_PADDED: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    VALUE_DIM_PADDED: tl.constexpr,
    ROWS: tl.constexpr,  # of the tile, a power of two
    TOKENS: tl.constexpr,  # query tokens in it: ROWS // GROUP
    DECODE_ROWS: tl.constexpr,  # query rows that a request must exceed; one that does not is left to `decode`
    TILE: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    PLAIN_LOGITS: tl.constexpr,  # products times a positive scale, and no more
    HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    WORD: tl.constexpr,  # elements of which all strides of the caches are multiples
    ROW_WORD: tl.constexpr,  # likewise of query and output
    UPCAST: tl.constexpr,
):
    """Attend with one block of rows."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    found = request_of(block, cu_seqlens_q, num_requests, TOKENS, DECODE_ROWS)
    request = found.to(tl.int64)
    start, num_rows, length = rows_of(request, seq_lens, cu_seqlens_q, num_requests, total_q, True)
    token = (block - first_block(found, start, TOKENS, DECODE_ROWS)) * TOKENS  # the first of the block
    if (token >= num_rows) | (num_rows <= DECODE_ROWS):
        return
    kv_head = tl.program_id(1).to(tl.int64)
    is_row, rows, heads, position, first, end = rows_in_tile(
        token, start, num_rows, length, kv_head, window, ROWS, TOKENS, GROUP, CAUSAL, HAS_WINDOW
    )
    low, high, all_first, all_end = span_of_tile(token, num_rows, length, window, TOKENS, CAUSAL, HAS_WINDOW)
    query_stride_row = in_words(query_stride_row, ROW_WORD)
    query_stride_head = in_words(query_stride_head, ROW_WORD)
    out_stride_row = in_words(out_stride_row, ROW_WORD)
    out_stride_head = in_words(out_stride_head, ROW_WORD)
    key_stride_block = in_words(key_stride_block, WORD)
    key_stride_token = in_words(key_stride_token, WORD)
    value_stride_block = in_words(value_stride_block, WORD)
    value_stride_token = in_words(value_stride_token, WORD)
    q = load_queries(query, rows, heads, is_row, query_stride_row, query_stride_head, HEAD_DIM, HEAD_DIM_PADDED, UPCAST)
    slopes = tl.zeros((ROWS,), tl.float32)
    if HAS_ALIBI:
        slopes = tl.load(alibi_slopes + heads, mask=is_row, other=0.0)
    table = block_tables + request * table_stride
    keys = key_cache + kv_head * in_words(key_stride_head, WORD)
    values = value_cache + kv_head * in_words(value_stride_head, WORD)
    num_q_heads = tl.num_programs(1) * GROUP
    acc, largest, total = attend_span(
        q, low // TILE * TILE, high, low, all_first, all_end, position, first, end, table, keys, values, slopes, scale,
        softcap, key_stride_block, key_stride_token, value_stride_block, value_stride_token, BLOCK_SIZE, HEAD_DIM,
        HEAD_DIM_PADDED, VALUE_DIM, VALUE_DIM_PADDED, ROWS, TILE, HAS_WINDOW, PLAIN_LOGITS, HAS_SOFTCAP, HAS_ALIBI,
        TOKENS > 1, UPCAST,
    )  # fmt: skip
    store_result(
        acc, largest, total, out, lse, sinks, rows, heads, is_row, end > first, num_q_heads, out_stride_row,
        out_stride_head, unit_of(scale, PLAIN_LOGITS), VALUE_DIM, VALUE_DIM_PADDED, HAS_SINKS,
    )  # fmt: skip
