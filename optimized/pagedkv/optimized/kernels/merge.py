"""Merging the splits of `decode`: program (request, query head, turn), in a fixed order of the splits.

A request has few rows, mostly one; turn t of n takes the rows t, t + n, …. The splits of a row are those that it sees;
`decode` has written these and no others. A sink is one more logit of the whole row, so it joins here, once.
"""

import triton
import triton.language as tl

from pagedkv.optimized.kernels.rows import (
    NOT_SPECIALIZED, end_seen, first_seen, lse_of, rows_of, split_size_of, unit_of, with_sink,
)  # fmt: skip


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def merge_kernel(
    part_out,  # (rows, num_q_heads, num_splits, VALUE_DIM) float32, unnormalised
    part_max,  # (rows, num_q_heads, num_splits) float32, see `unit_of`
    part_sum,  # likewise
    seq_lens,  # (num_requests,) int32
    cu_seqlens_q,  # (num_requests + 1,) int32, or anything if not HAS_CU
    sinks,  # (num_q_heads,) float32, or anything if not HAS_SINKS
    out,  # (total_q, num_q_heads, VALUE_DIM)
    lse,  # (total_q, num_q_heads) float32
    num_requests,
    total_q,
    num_splits,
    split_size,
    by_row,
    window,
    scale,
    out_stride_row,
    out_stride_head,
    VALUE_DIM: tl.constexpr,
    VALUE_DIM_PADDED: tl.constexpr,
    MAX_ROWS: tl.constexpr,  # as in `decode`
    SPLITS: tl.constexpr,  # merged in one go
    CAUSAL: tl.constexpr,
    HAS_CU: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    PLAIN_LOGITS: tl.constexpr,  # as in `decode`
    HAS_SINKS: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
):
    """Merge the splits of some rows of one request, for one query head."""
    request = tl.program_id(0).to(tl.int64)
    start, num_rows, length = rows_of(request, seq_lens, cu_seqlens_q, num_requests, total_q, HAS_CU)
    if num_rows > MAX_ROWS:
        return
    head = tl.program_id(1).to(tl.int64)
    num_q_heads = tl.num_programs(1)
    size = split_size_of(length, split_size, MAX_SPLITS)
    unit = unit_of(scale, PLAIN_LOGITS)
    value_dims = tl.arange(0, VALUE_DIM_PADDED)
    is_dim = value_dims < VALUE_DIM

    for token in range(tl.program_id(2), num_rows, tl.num_programs(2)):
        position = length - num_rows + token
        first = first_seen(position, window, HAS_WINDOW)
        end = end_seen(position, length, window, CAUSAL, HAS_WINDOW)
        splits_end = tl.where(end > first, tl.minimum((end + size - 1) // size, num_splits), 0)
        row = start.to(tl.int64) + token
        part = tl.where(by_row != 0, row, request * MAX_ROWS + token)
        base = (part * num_q_heads + head) * num_splits

        largest = float("-inf")
        total = 0.0
        acc = tl.zeros((VALUE_DIM_PADDED,), tl.float32)
        for split in range(first // size, splits_end, SPLITS):
            splits = split + tl.arange(0, SPLITS)
            is_split = splits < splits_end
            split_max = tl.load(part_max + base + splits, mask=is_split, other=float("-inf"))
            split_sum = tl.load(part_sum + base + splits, mask=is_split, other=0.0)
            part_at = (base + splits)[:, None] * VALUE_DIM + value_dims[None, :]
            split_acc = tl.load(part_out + part_at, mask=is_split[:, None] & is_dim[None, :], other=0.0)
            new_largest = tl.maximum(largest, tl.max(split_max, 0))
            shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
            shrink = tl.exp2((largest - shift) * unit)
            weight = tl.exp2((split_max - shift) * unit)
            total = total * shrink + tl.sum(split_sum * weight, 0)
            acc = acc * shrink + tl.sum(split_acc * weight[:, None], 0)
            largest = new_largest

        largest = largest * unit
        if HAS_SINKS:
            sink = tl.load(sinks + head, mask=end > first, other=float("-inf"))
            largest, total, shrink = with_sink(largest, total, sink)
            acc = acc * shrink
        result = acc * tl.div_rn(1.0, tl.where(total == 0.0, 1.0, total))
        out_at = row * out_stride_row + head * out_stride_head + value_dims
        tl.store(out + out_at, result.to(out.dtype.element_ty), mask=is_dim)
        tl.store(lse + row * num_q_heads + head, lse_of(largest, total))
