"""The query rows that a program serves: where they stand, what they see, and what becomes of them.

A request of length n brings the queries of its last m positions. Rows past the last request are one more request, of
length 0, so that a step may be padded. What a row sees is a run of positions, `first_seen`..`end_seen` - 1.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)

NOT_SPECIALIZED = (
    "num_requests", "total_q", "num_splits", "split_size", "by_row", "window", "table_stride", "seq_lens",
    "cu_seqlens_q", "alibi_slopes", "sinks", "part_max", "part_sum",
)  # fmt: skip
"""Arguments that vary with the batch, or whose alignment does not matter: no kernel is compiled anew for them."""


@triton.jit
def rows_of(request, seq_lens, cu_seqlens_q, num_requests, total_q, HAS_CU: tl.constexpr):
    """(first row, number of rows, length) of a request. Rows past the last request are one more, of length 0."""
    if HAS_CU:
        known = request < num_requests
        start = tl.load(cu_seqlens_q + request)
        end = tl.load(cu_seqlens_q + request + 1, mask=known, other=0)
        end = tl.where(known, tl.minimum(end, total_q), total_q)  # nothing is written past the rows that there are
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
def split_size_of(length, split_size, MAX_SPLITS: tl.constexpr):
    """Positions in one split of a request: a multiple of `split_size` that makes at most MAX_SPLITS of them."""
    splits = (length + split_size - 1) // split_size
    return split_size * tl.maximum((splits + MAX_SPLITS - 1) // MAX_SPLITS, 1)


@triton.jit
def in_words(stride, WORD: tl.constexpr):
    """A stride as a multiple of WORD, which it is: so that the compiler knows, and loads whole words."""
    return stride // WORD * WORD


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
def unit_of(scale, PLAIN_LOGITS: tl.constexpr):
    """What turns a logit, or without softcap and bias its product before scaling, into base 2."""
    unit = scale * LOG2_E
    if not PLAIN_LOGITS:
        unit = tl.full((), LOG2_E, tl.float32)
    return unit


@triton.jit
def with_sink(largest, total, sink):
    """(largest, total, shrink) with one more logit that adds no value; `acc` is to be multiplied by `shrink`.

    Both `largest` are in base 2, the sink is not.
    """
    sink = sink * LOG2_E
    new_largest = tl.maximum(largest, sink)
    shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
    shrink = tl.exp2(largest - shift)
    return new_largest, total * shrink + tl.exp2(sink - shift), shrink


@triton.jit
def lse_of(largest, total):
    """The natural log-sum-exp, the largest in base 2; -inf if nothing was seen."""
    nothing = total == 0.0
    return tl.where(nothing, float("-inf"), (largest + tl.log2(tl.where(nothing, 1.0, total))) * LN_2)


@triton.jit
def store_result(
    acc, largest, total, out, lse, sinks, rows, heads, is_row, sees, num_q_heads, stride_row, stride_head, unit,
    VALUE_DIM: tl.constexpr, VALUE_DIM_PADDED: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """Output and log-sum-exp of rows whose softmax is complete but for the sink: 0 and -inf where nothing is seen."""
    largest = largest * unit
    if HAS_SINKS:
        sink = tl.load(sinks + heads, mask=is_row & sees, other=float("-inf"))
        largest, total, shrink = with_sink(largest, total, sink)
        acc = acc * shrink[:, None]
    value_dims = tl.arange(0, VALUE_DIM_PADDED)
    result = acc * tl.div_rn(1.0, tl.where(total == 0.0, 1.0, total))[:, None]
    at = rows[:, None] * stride_row + heads[:, None] * stride_head + value_dims[None, :]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=is_row[:, None] & (value_dims < VALUE_DIM)[None, :])
    tl.store(lse + rows * num_q_heads + heads, lse_of(largest, total), mask=is_row)
