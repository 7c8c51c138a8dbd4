"""Merging results over disjoint sets of keys, as the caller has them: program (rows, query head).

Parts are normalised and have their log-sum-exp, unlike the splits that `merge` joins. Their values are read once, in
order; the largest log-sum-exp is found first, so that nothing is rescaled.
"""

import triton
import triton.language as tl

from pagedkv.optimized.kernels.rows import LN_2, LOG2_E, in_words


@triton.jit
def sums_of(part, is_row):
    """The log-sum-exps of one part; -inf where it saw nothing, for which FlashAttention-2 answers +inf."""
    found = tl.load(part, mask=is_row, other=float("-inf"))
    return tl.where(found == float("inf"), float("-inf"), found)


@triton.jit(  # what changes from step to step is not compiled in
    do_not_specialize=[
        "lses", "num_parts", "total_q", "outs_stride_part", "outs_stride_row", "outs_stride_head",
        "lses_stride_part", "lses_stride_row", "lses_stride_head",
    ]
)  # fmt: skip
def merge_attention_kernel(
    outs,  # (num_parts, total_q, num_q_heads, VALUE_DIM)
    lses,  # (num_parts, total_q, num_q_heads) float32, natural
    out,  # (total_q, num_q_heads, VALUE_DIM), contiguous
    lse,  # (total_q, num_q_heads) float32, contiguous
    num_parts,
    total_q,
    outs_stride_part,
    outs_stride_row,
    outs_stride_head,
    lses_stride_part,
    lses_stride_row,
    lses_stride_head,
    VALUE_DIM: tl.constexpr,
    VALUE_DIM_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    WORD: tl.constexpr,  # elements of which the strides of outs are multiples
):
    """Merge ROWS rows of all parts, for one query head."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1).to(tl.int64)
    is_row = row < total_q
    value_dims = tl.arange(0, VALUE_DIM_PADDED)
    is_value = is_row[:, None] & (value_dims < VALUE_DIM)[None, :]
    sums = lses + row * lses_stride_row + head * lses_stride_head

    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    part_sums = sums
    for _ in range(num_parts):
        largest = tl.maximum(largest, sums_of(part_sums, is_row))
        part_sums += lses_stride_part
    shift = tl.where(largest == float("-inf"), 0.0, largest)

    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, VALUE_DIM_PADDED), tl.float32)
    row_at = row * in_words(outs_stride_row, WORD) + head * in_words(outs_stride_head, WORD)
    part_sums, part_outs = sums, outs + row_at[:, None] + value_dims[None, :]
    for _ in range(num_parts):
        weight = tl.exp2((sums_of(part_sums, is_row) - shift) * LOG2_E)
        values = tl.load(part_outs, mask=is_value, other=0.0).to(tl.float32)
        total += weight
        acc += tl.where(weight[:, None] == 0.0, 0.0, values * weight[:, None])  # whatever a part without weight holds
        part_sums += lses_stride_part
        part_outs += in_words(outs_stride_part, WORD)

    nothing = total == 0.0
    divisor = tl.where(nothing, 1.0, total)
    result = acc * tl.div_rn(1.0, divisor)[:, None]
    at = row * tl.num_programs(1) + head
    tl.store(out + at[:, None] * VALUE_DIM + value_dims[None, :], result.to(out.dtype.element_ty), mask=is_value)
    tl.store(lse + at, tl.where(nothing, float("-inf"), shift + tl.log2(divisor) * LN_2), mask=is_row)
