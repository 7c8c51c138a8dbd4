"""The configurations of attention that the audit compiles: all of them, and the few that have every pair of values."""

from dataclasses import replace
from functools import lru_cache
from itertools import cycle, product
from typing import Final, NamedTuple

import torch

from pagedkv.optimized.attention.arguments import AttentionCall, Mask
from pagedkv.optimized.attention.attend_launches import attention_launches
from pagedkv.optimized.attention.merge_launches import merge_attention_launch
from pagedkv.optimized.attention.move_launches import copy_groups, copy_launch, gather_launch, write_launch
from pagedkv.optimized.audit.pairwise import covering_on_targets
from pagedkv.optimized.launch import Launch

DTYPES: Final = ("bfloat16", "float16", "float32")
DIMS: Final = ((32, 32), (64, 64), (72, 72), (80, 80), (96, 96), (112, 112), (128, 128), (192, 128), (256, 256))
"""head_dim of K and of V."""
GROUPS: Final = (1, 4, 5, 7, 8, 64)
"""Query heads a KV head."""
PAGES: Final = (1, 16, 24, 64)
"""Block sizes: the least, the usual, one that is no power of two, and one that holds a whole tile."""
MASKS: Final = ("causal", "full", "window", "softcap", "alibi", "sinks", "all")
"""`full` is not causal; all others are, and `all` has every feature."""
ATTENDING: Final = ("decode", "decode in splits", "decode in a mixed batch", "prefill")
"""One query row a request, in one split and in several; requests with several rows in splits, beside others with many;
and those others."""
MERGING: Final = ("merge", "merge in a mixed batch")
"""Of the second and the third."""
MOVING: Final = ("write", "write float32", "copy_blocks", "gather")
COMBINING: Final = "merge_attention"
"""Of results that the caller has; its dims are those of the values."""
NUM_KV_HEADS: Final = 2
NUM_REQUESTS: Final = 2
POSITIONS: Final = 1024
"""What a row of the block tables holds, at the least."""


class Configuration(NamedTuple):
    """One way in which a kernel is compiled; None for what does not matter to it."""

    kernel: str
    """One of `ATTENDING`, `MERGING` or `MOVING`, or `COMBINING`."""
    dtype: str
    """Of the caches."""
    dims: tuple[int, int]
    group: int | None
    page: int | None
    mask: str | None

    def __str__(self) -> str:
        """
        >>> str(Configuration("write", "float16", (192, 128), None, 16, None))
        'write float16 head_dim=192/128 block_size=16'
        """
        dim = f"{self.dims[0]}" if self.dims[0] == self.dims[1] else "{}/{}".format(*self.dims)
        parts = [self.kernel, self.dtype, f"head_dim={dim}"]
        parts += [f"group={self.group}"] if self.group is not None else []
        parts += [f"block_size={self.page}"] if self.page is not None else []
        return " ".join([*parts, *([self.mask] if self.mask is not None else [])])


USUAL: Final = tuple(
    Configuration(kernel, "bfloat16", (128, 128), group, 16, mask)
    for kernel, group, mask in product(ATTENDING[1:], (4, 8), ("causal", "all"))
)
"""What most models run. The pull-request lane always compiles it for `USUAL_TARGET`."""
USUAL_TARGET: Final = "sm_90"


def configurations() -> list[Configuration]:
    """All of them: every kernel with every dtype, dim, group and page, the masks taken in turn, and the usual ones.

    There are seven masks, which no other number of values divides, so each meets every pair of other values.
    """
    masks = cycle(MASKS)
    found = [Configuration(*shape, next(masks)) for shape in product(ATTENDING, DTYPES, DIMS, GROUPS, PAGES)]
    for kernel, dtype, dims, mask in product(MERGING, DTYPES, DIMS, MASKS):
        found.append(Configuration(kernel, dtype, dims, None, None, mask))
    for kernel, dtype, dims, page in product(MOVING, DTYPES, DIMS, PAGES):
        if (kernel, dtype) != ("write float32", "float32"):  # the same as "write"
            found.append(Configuration(kernel, dtype, dims, None, page, None))
    for dtype, (_, dim) in product(DTYPES, DIMS):
        found.append(Configuration(COMBINING, dtype, (dim, dim), None, None, None))
    return list(dict.fromkeys([*found, *USUAL]))


@lru_cache(maxsize=1)
def pairwise() -> tuple[tuple[str, Configuration], ...]:
    """Few targets and configurations that have every pair of values that all of them have, and the usual ones."""
    return covering_on_targets(configurations(), [(USUAL_TARGET, each) for each in USUAL])


def launch_for(configuration: Configuration, target: str) -> Launch:
    """The launch of a configuration on a target: tensors on the CPU, for their types and shapes only."""
    if configuration.kernel in MOVING:
        launch = _moving(configuration)
    elif configuration.kernel == COMBINING:
        launch = _combining(configuration)
    else:
        launches = _attending(configuration, target)
        launch = next(each for each in launches if each.name == configuration.kernel.split()[0])
    return replace(launch, configuration=str(configuration))


def _attending(configuration: Configuration, target: str) -> list[Launch]:
    """What a call launches. Strides fit 32 bits, so that a product that should have 64 is seen to have them."""
    kernel, dtype, (head_dim, value_dim), group, page, mask = configuration
    page, heads = page or 16, NUM_KV_HEADS * (group or 4)
    tokens = 64 if kernel == "prefill" or "mixed" in kernel else 1
    total_q, kind = NUM_REQUESTS * tokens, getattr(torch, dtype)
    call = AttentionCall(
        query=torch.zeros(total_q, heads, head_dim, dtype=kind),
        k_cache=torch.zeros(2, page, NUM_KV_HEADS, head_dim, dtype=kind),
        v_cache=torch.zeros(2, page, NUM_KV_HEADS, value_dim, dtype=kind),
        block_tables=torch.zeros(NUM_REQUESTS, POSITIONS // page + 1, dtype=torch.int32),
        seq_lens=torch.ones(NUM_REQUESTS, dtype=torch.int32),
        cu_seqlens_q=torch.arange(0, total_q + 1, tokens, dtype=torch.int32) if tokens > 1 else None,
        mask=_mask(mask or "causal", heads),
        out=torch.zeros(total_q, heads, value_dim, dtype=kind),
        lse=torch.zeros(total_q, heads),
        split_size=2 * POSITIONS if kernel in ("decode", "prefill") else 256,
    )
    return attention_launches(call, architecture=target)


def _combining(configuration: Configuration) -> Launch:
    outs = torch.zeros(2, 3, NUM_KV_HEADS, configuration.dims[1], dtype=getattr(torch, configuration.dtype))
    lses = torch.zeros(outs.shape[:3])
    return merge_attention_launch(outs, lses, outs[0], lses[0])


def _mask(name: str, heads: int) -> Mask:
    def has(feature: str) -> bool:
        return name in (feature, "all")

    each = torch.zeros(heads)
    return Mask(
        0.125, name != "full", 4096 if has("window") else None, 30.0 if has("softcap") else 0.0,
        each if has("alibi") else None, each if has("sinks") else None,
    )  # fmt: skip


def _moving(configuration: Configuration) -> Launch:
    kernel, dtype, dims, _, page, _ = configuration
    caches = [torch.zeros(2, page or 16, NUM_KV_HEADS, dim, dtype=getattr(torch, dtype)) for dim in dims]
    if kernel == "copy_blocks":
        return copy_launch(copy_groups(caches[:1], caches[:1])[0], torch.zeros(3, 2, dtype=torch.int64))
    if kernel == "gather":
        tables, bounds = torch.zeros(NUM_REQUESTS, 9, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
        return gather_launch(caches[0], tables, bounds, None, torch.zeros_like(caches[0]).flatten(0, 1))
    kind = torch.float32 if "float32" in kernel else caches[0].dtype
    key, value = (torch.zeros(3, NUM_KV_HEADS, dim, dtype=kind) for dim in dims)
    return write_launch((key, value), (caches[0], caches[1]), torch.zeros(3, dtype=torch.int64))
