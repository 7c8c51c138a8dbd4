"""Arguments for the operators of attention: every feature, dtype and layout at least once."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

Sample = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional arguments and options of one call."""

FORMATS = (torch.float32, torch.float16, torch.bfloat16)
FEATURES: dict[str, dict[str, Any]] = {
    "decode": {},
    "scale": {"scale": 0.5},
    "window": {"window": 3},
    "softcap": {"softcap": 20.0},
    "alibi": {"alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 0.0625])},
    "sinks": {"sinks": torch.tensor([0.0, 1.0, -1.0, 2.0])},
    "split_size": {"split_size": 16},
    "backend": {"backend": "torch"},
    "mixed": {"cu_seqlens_q": torch.tensor([0, 3, 4], dtype=torch.int32)},
    "not causal": {"cu_seqlens_q": torch.tensor([0, 1, 3], dtype=torch.int32), "causal": False},
}
FEATURES["all"] = {k: v for options in FEATURES.values() for k, v in options.items()}


def caches(dtype: torch.dtype = torch.float32, *, head_major: bool = False) -> tuple[Tensor, Tensor]:
    """Keys and values as views of one tensor (num_blocks 8, block_size 4, 2 heads, dim 8)."""
    generator = torch.Generator().manual_seed(1)
    if head_major:
        both = torch.randn(8, 2, 2, 4, 8, generator=generator).to(dtype).transpose(2, 3)
    else:
        both = torch.randn(8, 2, 4, 2, 8, generator=generator).to(dtype)
    return both[:, 0], both[:, 1]


def attention_sample(
    options: dict[str, Any], dtype: torch.dtype = torch.float32, *, head_major: bool = False
) -> Sample:
    """Two requests of 5 and 9 positions, four query heads; as many rows as the options ask for."""
    rows = int(options["cu_seqlens_q"][-1]) if "cu_seqlens_q" in options else 2
    query = torch.randn(rows, 4, 8, generator=torch.Generator().manual_seed(2)).to(dtype)
    tables, seq_lens = torch.arange(8, dtype=torch.int32).view(2, 4), torch.tensor([5, 9], dtype=torch.int32)
    return (query, *caches(dtype, head_major=head_major), tables, seq_lens), dict(options)


def attention_samples() -> Iterator[tuple[str, Sample]]:
    """Each feature in float32, and all of them in every dtype and layout."""
    for name, options in FEATURES.items():
        yield name, attention_sample(options)
    for dtype in FORMATS:
        for head_major in (False, True):
            name = f"{str(dtype).removeprefix('torch.')}, {'head' if head_major else 'token'}-major"
            yield name, attention_sample(FEATURES["all"], dtype, head_major=head_major)
    (query, k_cache, v_cache, *rest), options = attention_sample(FEATURES["mixed"])
    yield "narrow values", ((query, k_cache, v_cache[..., :6], *rest), options)


def write_sample(dtype: torch.dtype = torch.float32, *, head_major: bool = False) -> Sample:
    """Three rows, one of them skipped; rows in float32 whatever the cache holds."""
    key, value = torch.randn(2, 3, 2, 8, generator=torch.Generator().manual_seed(3)).unbind()
    return (key, value, *caches(dtype, head_major=head_major), torch.tensor([5, -1, 30])), {}


def gather_sample(cache: Tensor) -> Sample:
    """Rows 2..6 of one request, 0..1 of another, and a row of padding."""
    tables, counts = torch.tensor([[3, 1], [5, 2]], dtype=torch.int32), torch.tensor([0, 5, 7], dtype=torch.int32)
    return (cache, tables, counts), {"starts": torch.tensor([2, 0], dtype=torch.int32), "total": 8}


def other_samples() -> Iterator[tuple[str, str, Sample]]:
    """Operator, what is special, and arguments, of all operators but attention."""
    for dtype in FORMATS:
        for head_major in (False, True):
            kind = f"{str(dtype).removeprefix('torch.')}, {'head' if head_major else 'token'}-major"
            pair = caches(dtype, head_major=head_major)
            yield "write_kv", kind, write_sample(dtype, head_major=head_major)
            yield "copy_blocks", kind, ((list(pair), torch.tensor([[0, 2], [-1, 0], [1, 3]])), {})
            yield "gather_kv", kind, gather_sample(pair[0])
        outs = torch.randn(3, 2, 4, 8, generator=torch.Generator().manual_seed(4)).to(dtype)
        yield (
            "merge_attention",
            str(dtype),
            ((outs, torch.tensor([0.0, -torch.inf, 1.0]).expand(2, 4, 3).contiguous().permute(2, 0, 1)), {}),
        )
    yield "copy_blocks", "none", (([], torch.zeros(0, 2, dtype=torch.int64)), {})
    (cache, tables, counts), _ = gather_sample(caches()[0])
    yield "gather_kv", "nothing", ((cache, tables, torch.zeros_like(counts)), {"total": 0})
