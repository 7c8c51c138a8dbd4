"""Gathering the paged positions of requests side by side: program (rows of the output, piece of their heads).

The number of rows is known on the device only, so the grid covers an upper bound, and each row finds its request by
a binary search. Rows past the last request are zeros. Elements are moved in words of LANES; all strides but that of
the tables are in words.
"""

import triton
import triton.language as tl


@triton.jit(  # what changes from step to step is not compiled in
    do_not_specialize=[
        "block_tables", "cu_seqlens", "starts", "num_requests", "num_rows", "table_stride", "num_steps",
    ]
)  # fmt: skip
def gather_kernel(
    cache,  # (num_blocks, BLOCK_SIZE, NUM_HEADS, WORDS * LANES)
    block_tables,  # (num_requests, max_blocks) int32
    cu_seqlens,  # (num_requests + 1,) int32: where the rows of each request begin, and where the last ones end
    starts,  # (num_requests,) int32: the position of the first row of each request; or None: 0
    out,  # (num_rows, NUM_HEADS, WORDS * LANES)
    num_requests,
    num_rows,
    num_steps,  # of the search: num_requests < 2 ** num_steps
    table_stride,
    cache_stride_block,
    cache_stride_token,
    cache_stride_head,
    out_stride_row,
    out_stride_head,
    BLOCK_SIZE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    WORDS: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Gather PIECE words of the heads of ROWS rows."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    # The request of a row is the number of requests that end at or before it; it is in low..high.
    low = tl.zeros((ROWS,), tl.int32)
    high = low + num_requests
    for _ in range(num_steps):
        middle = (low + high) // 2
        is_open = low < high
        end = tl.load(cu_seqlens + middle + 1, mask=is_open, other=0)
        is_past = is_open & (end <= row)
        low, high = tl.where(is_past, middle + 1, low), tl.where(is_past, high, middle)
    request = low.to(tl.int64)
    is_row = row < num_rows
    is_held = is_row & (request < num_requests)

    position = row - tl.load(cu_seqlens + request, mask=is_held, other=0)
    if starts is not None:
        position += tl.load(starts + request, mask=is_held, other=0)
    entry = request * table_stride + position // BLOCK_SIZE
    block = tl.load(block_tables + entry, mask=is_held, other=0).to(tl.int64)

    at = tl.program_id(1).to(tl.int64) * PIECE + tl.arange(0, PIECE)  # 64-bit, and so are heads below
    head, word = at // WORDS, at % WORDS
    is_word = (head < NUM_HEADS)[None, :, None]
    lanes = tl.arange(0, LANES)[None, None, :]
    token_from = block * cache_stride_block + (position % BLOCK_SIZE) * cache_stride_token
    words_from = token_from[:, None, None] + (head * cache_stride_head + word)[None, :, None]
    elements = tl.load(cache + words_from * LANES + lanes, mask=is_held[:, None, None] & is_word, other=0.0)
    words_to = (row * out_stride_row)[:, None, None] + (head * out_stride_head + word)[None, :, None]
    tl.store(out + words_to * LANES + lanes, elements, mask=is_row[:, None, None] & is_word)
