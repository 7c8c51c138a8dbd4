"""The launch of `merge_attention`, as a value: run on a GPU, interpreted by the tests, or compiled for the audit."""

from typing import Final

from torch import Tensor

from pagedkv.optimized.attention.cutting import word_of
from pagedkv.optimized.attention.tuned import power_of_two
from pagedkv.optimized.kernels.merge_attention import merge_attention_kernel
from pagedkv.optimized.launch import Launch
from pagedkv.spec.words import ceil_div

PIECE: Final = 512
"""Elements of the output that a program makes about, which is one warp: so a decode of few tokens has many programs."""


def merge_attention_launch(outs: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> Launch:
    """`merge_attention_kernel` over all rows; `out` and `lse` are contiguous."""
    if outs.stride(-1) != 1:
        outs = outs.contiguous()
    num_parts, total_q, num_q_heads, value_dim = outs.shape
    padded = max(16, power_of_two(value_dim))
    rows = max(1, PIECE // padded)
    strides = (*outs.stride()[:3], *lses.stride())
    constants = {
        "VALUE_DIM": value_dim,
        "VALUE_DIM_PADDED": padded,
        "ROWS": rows,
        "WORD": word_of(outs),
        "num_warps": 1,
    }
    return Launch(
        "merge_attention",
        f"{str(outs.dtype).removeprefix('torch.')} value_dim={value_dim}",
        merge_attention_kernel,
        (ceil_div(total_q, rows), num_q_heads),
        (outs, lses, out, lse, num_parts, total_q, *strides),
        constants,
    )
