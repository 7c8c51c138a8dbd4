"""The configurations that the audit compiles."""

from collections.abc import Iterator

import torch

from pagedkv.optimized.attention.arguments import AttentionCall, Mask
from pagedkv.optimized.attention.attend_launches import attention_launches
from pagedkv.optimized.attention.move_launches import copy_launch, write_launch
from pagedkv.optimized.launch import Launch

SHIPPED = (
    (torch.bfloat16, 64, 1, 16),
    (torch.bfloat16, 128, 4, 16),
    (torch.bfloat16, 128, 8, 64),
    (torch.float16, 128, 4, 1),
    (torch.float16, 256, 4, 16),
    (torch.bfloat16, 128, 64, 16),
    (torch.float32, 64, 1, 16),
    (torch.float32, 128, 4, 16),
)
"""What the audit compiles: dtype, head_dim, query heads a KV head, block size."""


def shipped_launches() -> Iterator[Launch]:
    """The launches that the audit compiles: tensors on the CPU, for their types and shapes only."""
    plain = Mask(1.0, True, None, 0.0, None, None)
    for dtype, head_dim, group, size in SHIPPED:
        yield _shipped(dtype, head_dim, group, size, plain)[0]
    heads = torch.zeros(8)
    yield from _shipped(torch.bfloat16, 128, 4, 16, Mask(1.0, True, 4096, 30.0, heads, heads))
    for dtype in (torch.bfloat16, torch.float32):
        new, cache = torch.zeros(2, 2, 128), torch.zeros(4, 16, 2, 128, dtype=dtype)
        yield write_launch((new.to(dtype), new.to(dtype)), (cache, cache), torch.zeros(2, dtype=torch.int64))
    yield copy_launch(cache, torch.zeros(1, 2, dtype=torch.int64))


def _shipped(dtype: torch.dtype, head_dim: int, group: int, size: int, mask: Mask) -> list[Launch]:
    heads = max(8, group)
    query, out = torch.zeros(2, 2, heads, head_dim, dtype=dtype).unbind()
    caches = torch.zeros(2, 4, size, heads // group, head_dim, dtype=dtype)
    tables, seq_lens = torch.zeros(2, 4096 // size, dtype=torch.int32), torch.ones(2, dtype=torch.int32)
    lse = torch.zeros(2, heads)
    return attention_launches(AttentionCall(query, caches[0], caches[1], tables, seq_lens, None, mask, out, lse, 512))
