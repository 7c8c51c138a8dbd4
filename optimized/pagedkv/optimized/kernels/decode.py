"""Attention of requests with few query rows, split along the keys: decode, and the verification of drafted tokens.

Program (block of rows, kv_head, turn) takes the splits turn, turn + turns, … of its rows. A split covers the positions
split * size and on, whoever takes it, and the size follows from the request alone: its bits do not depend on what else
is in the batch. How many turns there are decides how many programs run at once, and no bit.

Only splits that some row of the block sees are computed and written; `merge` knows which they are. (Flash-Decoding:
Dao et al., 2023.)
"""

import triton
import triton.language as tl

from pagedkv.optimized.kernels.rows import (
    NOT_SPECIALIZED, in_words, load_queries, rows_in_tile, rows_of, span_of_tile, split_size_of, store_result,
    unit_of,
)  # fmt: skip
from pagedkv.optimized.kernels.tiles import attend_span


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def decode_kernel(
    query,  # (total_q, num_q_heads, HEAD_DIM)
    key_cache,  # (num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM)
    value_cache,  # (num_blocks, BLOCK_SIZE, num_kv_heads, VALUE_DIM)
    block_tables,  # (num_requests, max_blocks) int32
    seq_lens,  # (num_requests,) int32
    cu_seqlens_q,  # (num_requests + 1,) int32, or anything if not HAS_CU
    alibi_slopes,  # (num_q_heads,) float32, or anything if not HAS_ALIBI
    sinks,  # (num_q_heads,) float32, or anything if not HAS_SINKS
    out,  # (total_q, num_q_heads, VALUE_DIM), the result if there is one split
    lse,  # (total_q, num_q_heads) float32, likewise
    part_out,  # (rows, num_q_heads, num_splits, VALUE_DIM) float32, unnormalised; rows of the query if by_row
    part_max,  # (rows, num_q_heads, num_splits) float32, see `unit_of`
    part_sum,  # likewise
    num_requests,
    total_q,
    num_splits,
    split_size,  # the least, a multiple of TILE
    by_row,  # else there are MAX_ROWS rows a request
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
    TOKENS: tl.constexpr,  # query tokens in it: ROWS // GROUP, or fewer
    MAX_ROWS: tl.constexpr,  # query rows of a request at the most; one that has more is left to `prefill`
    TILE: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_CU: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    PLAIN_LOGITS: tl.constexpr,  # products times a positive scale, and no more
    HAS_SOFTCAP: tl.constexpr,
    HAS_ALIBI: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    ONE_SPLIT: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    WORD: tl.constexpr,  # elements of which all strides of the caches are multiples
    ROW_WORD: tl.constexpr,  # likewise of query and output
    UPCAST: tl.constexpr,
):
    """Attend with one block of rows to the splits of one turn."""
    blocks: tl.constexpr = (MAX_ROWS + TOKENS - 1) // TOKENS
    request = tl.program_id(0).to(tl.int64) // blocks
    token = (tl.program_id(0) % blocks).to(tl.int32) * TOKENS  # the first of the block
    start, num_rows, length = rows_of(request, seq_lens, cu_seqlens_q, num_requests, total_q, HAS_CU)
    if (token >= num_rows) | (num_rows > MAX_ROWS):
        return
    low, high, all_first, all_end = span_of_tile(token, num_rows, length, window, TOKENS, CAUSAL, HAS_WINDOW)
    size = split_size_of(length, split_size, MAX_SPLITS)
    splits = tl.minimum((high + size - 1) // size, num_splits)  # a length that the table cannot hold ends here
    if not ONE_SPLIT:  # a wide table has many programs without work, which end before they load anything
        if low // size + tl.program_id(2) >= splits:
            return
    kv_head = tl.program_id(1).to(tl.int64)
    is_row, rows, heads, position, first, end = rows_in_tile(
        token, start, num_rows, length, kv_head, window, ROWS, TOKENS, GROUP, CAUSAL, HAS_WINDOW
    )
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

    if ONE_SPLIT:
        acc, largest, total = attend_span(
            q, low // TILE * TILE, high, low, all_first, all_end, position, first, end, table, keys, values, slopes,
            scale, softcap, key_stride_block, key_stride_token, value_stride_block, value_stride_token, BLOCK_SIZE,
            HEAD_DIM, HEAD_DIM_PADDED, VALUE_DIM, VALUE_DIM_PADDED, ROWS, TILE, HAS_WINDOW, PLAIN_LOGITS,
            HAS_SOFTCAP, HAS_ALIBI, TOKENS > 1, UPCAST,
        )  # fmt: skip
        store_result(
            acc, largest, total, out, lse, sinks, rows, heads, is_row, end > first, num_q_heads, out_stride_row,
            out_stride_head, unit_of(scale, PLAIN_LOGITS), VALUE_DIM, VALUE_DIM_PADDED, HAS_SINKS,
        )  # fmt: skip
    else:
        value_dims = tl.arange(0, VALUE_DIM_PADDED)
        row = tl.where(by_row != 0, rows, request * MAX_ROWS + (rows - start))
        part = (row * num_q_heads + heads) * num_splits
        for split in range(low // size + tl.program_id(2), splits, tl.num_programs(2)):
            begin = tl.maximum(split * size, low // TILE * TILE)
            stop = tl.minimum((split + 1) * size, high)
            acc, largest, total = attend_span(
                q, begin, stop, low, all_first, all_end, position, first, end, table, keys, values, slopes, scale,
                softcap, key_stride_block, key_stride_token, value_stride_block, value_stride_token, BLOCK_SIZE,
                HEAD_DIM, HEAD_DIM_PADDED, VALUE_DIM, VALUE_DIM_PADDED, ROWS, TILE, HAS_WINDOW, PLAIN_LOGITS,
                HAS_SOFTCAP, HAS_ALIBI, TOKENS > 1, UPCAST,
            )  # fmt: skip
            at = (part + split)[:, None] * VALUE_DIM + value_dims[None, :]
            tl.store(part_out + at, acc, mask=is_row[:, None] & (value_dims < VALUE_DIM)[None, :])
            tl.store(part_max + part + split, largest, mask=is_row)
            tl.store(part_sum + part + split, total, mask=is_row)
