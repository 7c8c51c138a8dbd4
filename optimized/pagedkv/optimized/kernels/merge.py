"""Merging the splits of `decode`: program (row, query head), in the order of the splits, so that bits do not vary.

Empty splits have the largest logit -inf and get no weight; how many of them there are changes no bit.
"""

import triton
import triton.language as tl

LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def merge_kernel(
    part_out,  # (num_rows, num_q_heads, num_splits, VALUE_DIM) float32, unnormalised
    part_max,  # (num_rows, num_q_heads, num_splits) float32, base 2
    part_sum,  # (num_rows, num_q_heads, num_splits) float32
    out,  # (num_rows, num_q_heads, VALUE_DIM)
    lse,  # (num_rows, num_q_heads) float32
    out_stride_row,
    out_stride_head,
    num_splits,
    VALUE_DIM: tl.constexpr,
    VALUE_DIM_PADDED: tl.constexpr,
):
    """Merge the splits of one row and one query head."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    pair = row * tl.num_programs(1) + head
    dims = tl.arange(0, VALUE_DIM_PADDED)
    is_dim = dims < VALUE_DIM

    largest = float("-inf")
    total = 0.0
    acc = tl.zeros((VALUE_DIM_PADDED,), tl.float32)
    for split in range(num_splits):
        part = pair * num_splits + split
        split_largest = tl.load(part_max + part)
        if split_largest > float("-inf"):
            new_largest = tl.maximum(largest, split_largest)
            shrink = tl.exp2(largest - new_largest)
            weight = tl.exp2(split_largest - new_largest)
            total = total * shrink + tl.load(part_sum + part) * weight
            acc = acc * shrink + tl.load(part_out + part * VALUE_DIM + dims, mask=is_dim, other=0.0) * weight
            largest = new_largest

    nothing = total == 0.0
    result = acc / tl.where(nothing, 1.0, total)
    out_at = row * out_stride_row + head * out_stride_head + dims
    tl.store(out + out_at, result.to(out.dtype.element_ty), mask=is_dim)
    row_lse = tl.where(nothing, float("-inf"), (largest + tl.log2(tl.where(nothing, 1.0, total))) * LN_2)
    tl.store(lse + pair, row_lse)
