"""How many bytes a kernel moves, counted from what it touches in the interpreter, beside the least that could do.

Attention over a cache is bound by memory: each key and value it sees has to be read once, the query once, the output
written once. A program's distinct bytes are what it moves if it keeps them while it runs; what two programs touch
counts twice. So `moved / least` says how far the indexing alone is from the roofline; how fast the bytes come, only a
GPU can say.

    python -m pagedkv.optimized.audit.roofline docs/kernels/roofline.md
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import AttentionCall, Mask
from pagedkv.optimized.attention.attend_launches import attention_launches
from pagedkv.optimized.attention.cutting import Overrides
from pagedkv.optimized.attention.merge_launches import merge_attention_launch
from pagedkv.optimized.attention.move_launches import copy_groups, copy_launch, write_launch
from pagedkv.optimized.audit.access_log import LaunchAccess, merge_spans
from pagedkv.optimized.audit.interpret import recording
from pagedkv.optimized.launch import Launch
from pagedkv.spec.words import ceil_div

ARCHITECTURE: Final = "sm_90"
"""Whose tiles are used."""


class Work(NamedTuple):
    """Launches, and the least bytes that what they do can move."""

    name: str
    launches: Sequence[Launch]
    least: int


@dataclass(frozen=True)
class Moved:
    """What one kernel of some work moved, in bytes."""

    work: str
    kernel: str
    loaded: int
    stored: int
    scratch: int
    """Of both, what went to partial results and came back."""
    least: int
    """Of the whole work, all its kernels together."""


def moved(work: Work) -> list[Moved]:
    """Interpret the launches and count. Raises `ImportError` without Triton."""
    found = []
    with recording() as log:
        for launch in work.launches:
            launch.interpret()
    for access in log.launches:
        loaded, stored = bytes_of(access, "load"), bytes_of(access, "store")
        scratch = sum(count for part in (loaded, stored) for name, count in part.items() if name.startswith("part_"))
        found.append(Moved(work.name, access.kernel, sum(loaded.values()), sum(stored.values()), scratch, work.least))
    return found


def bytes_of(access: LaunchAccess, kind: str) -> dict[str, int]:
    """Bytes by tensor argument: the distinct ones of each program, summed over programs."""
    counts: dict[str, int] = {}
    for program in access.programs:
        for first, end in merge_spans(program.spans("load" if kind == "load" else "store")).tolist():
            extent = next(each for each in access.extents if each.first <= first < each.end)
            counts[extent.argument] = counts.get(extent.argument, 0) + end - first
    return counts


def attention_work(
    name: str, lengths: Sequence[int], rows: Sequence[int], block_size: int, group: int, *, window: int | None = None
) -> Work:
    """Attention in bfloat16 with head_dim 128 and one KV head, in the tiles of `ARCHITECTURE`."""
    width = ceil_div(max(lengths), block_size)
    caches = torch.zeros(2, width * len(lengths), block_size, 1, 128, dtype=torch.bfloat16)
    tables = torch.randperm(width * len(lengths)).to(torch.int32).view(len(lengths), width)
    query = torch.zeros(sum(rows), group, 128, dtype=torch.bfloat16)
    cu_seqlens = torch.tensor([0, *rows]).cumsum(0).to(torch.int32) if set(rows) != {1} else None
    call = AttentionCall(
        query, caches[0], caches[1], tables, torch.tensor(lengths, dtype=torch.int32), cu_seqlens,
        Mask(0.1, True, window, 0.0, None, None), torch.zeros_like(query), torch.zeros(sum(rows), group), 512,
    )  # fmt: skip
    seen = sum(
        length - (0 if window is None else max(0, length - count - window + 1))
        for length, count in zip(lengths, rows, strict=True)
    )
    least = seen * 2 * 128 * 2 + 2 * _size(query) + 4 * query.shape[0] * group  # K and V, query and output, lse
    return Work(name, attention_launches(call, Overrides(upcast=True), ARCHITECTURE), least)


def write_work(tokens: int = 64) -> Work:
    """Writing new rows: each is read and stored once, and its slot read."""
    key, value = torch.zeros(2, tokens, 2, 128, dtype=torch.bfloat16)
    cache, slots = torch.zeros(2, tokens, 16, 2, 128, dtype=torch.bfloat16), torch.randperm(16 * tokens)[:tokens]
    launch = write_launch((key, value), (cache[0], cache[1]), slots)
    return Work(f"write {tokens} tokens", [launch], 4 * _size(key) + 8 * tokens)


def copy_work(pairs: int = 4) -> Work:
    """Copying blocks: each is read and stored once."""
    cache = torch.zeros(2 * pairs, 16, 2, 128, dtype=torch.bfloat16)
    both = torch.arange(2 * pairs).view(2, pairs).T.contiguous()
    launches = [copy_launch(group, both) for group in copy_groups([cache], [cache])]
    return Work(f"copy {pairs} blocks", launches, 2 * pairs * _size(cache[0]) + 16 * pairs)


def merge_work(tokens: int = 32) -> Work:
    """Merging two results of a decode: each part is read once, and one stored, outputs and sums."""
    outs, lses = torch.zeros(2, tokens, 8, 128, dtype=torch.bfloat16), torch.zeros(2, tokens, 8)
    launch = merge_attention_launch(outs, lses, outs[0].clone(), lses[0].clone())
    return Work(f"merge two results of {tokens} tokens", [launch], 3 * (_size(outs[0]) + _size(lses[0])))


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.itemsize


WORKS: Final[tuple[Callable[[], Work], ...]] = (
    lambda: attention_work("decode, context 4096, group 4, block 16", [4096], [1], 16, 4),
    lambda: attention_work("decode, context 4096, group 4, block 1", [4096], [1], 1, 4),
    lambda: attention_work("decode, context 4096, group 1, block 64", [4096], [1], 64, 1),
    lambda: attention_work("decode, context 4096, group 8, block 128", [4096], [1], 128, 8),
    lambda: attention_work("decode, contexts 4096 and 100, group 4, block 16", [4096, 100], [1, 1], 16, 4),
    lambda: attention_work("decode, context 4096, window 1024, group 4, block 16", [4096], [1], 16, 4, window=1024),
    lambda: attention_work("verify 4 drafted tokens, context 2048, group 4, block 16", [2048], [5], 16, 4),
    lambda: attention_work("prefill 256 tokens, group 4, block 16", [256], [256], 16, 4),
    lambda: attention_work("chunk of 64 tokens, context 2048, group 4, block 16", [2048], [64], 16, 4),
    write_work,
    copy_work,
    merge_work,
)
"""What the page shows."""

HEAD = """# What the kernels move

Bytes that each kernel loads and stores, counted from its own indexing by interpreting it, beside the least that its
work can move: each key and value that is seen once, query and output once. A prefill, and a verification of more
tokens than a tile has rows for, reads its keys once for each block of query rows; these run side by side, so that later
readings can come out of the cache of the GPU, which is not counted here.
The column "scratch" is what `decode` leaves for `merge`, in both directions. bfloat16, head_dim 128, one KV head, tiles
of {architecture}. Made by `make pages`, and held to it by a test.

| work | kernel | loaded | stored | of which scratch | least of the work | all kernels / least |
|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The page, as Markdown."""
    torch.manual_seed(0)
    lines = []
    for make in WORKS:
        parts = moved(make())
        ratio = sum(part.loaded + part.stored for part in parts) / parts[0].least
        for part in parts:
            last = f"{ratio:.3f}" if part is parts[0] else ""
            counts = " | ".join(f"{n:,}" for n in (part.loaded, part.stored, part.scratch, part.least))
            lines.append(f"| {part.work} | {part.kernel.removesuffix('_kernel')} | {counts} | {last} |")
    return HEAD.format(architecture=ARCHITECTURE) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
