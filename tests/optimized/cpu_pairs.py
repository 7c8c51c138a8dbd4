"""Pairs of bfloat16 where the processor has no instruction for them: slower, and the same laws."""

import torch


def pairs_anywhere(dtype: torch.dtype, head_dim: int) -> bool:
    """In place of `pagedkv.optimized.cpu.backend.in_pairs`."""
    return dtype is torch.bfloat16 and head_dim % 2 == 0
