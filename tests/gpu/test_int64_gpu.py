"""Caches with more than 2**31 elements: blocks past that border are read, written and copied like any others.

An offset that wraps around would read or write elsewhere in the same cache. So all else holds NaN, and is looked at
afterwards: nothing but what was written has changed.
"""

import pytest
import torch
from torch import Tensor

from pagedkv.optimized.attention import copy_blocks, gather_kv, paged_attention, write_kv
from tests.gpu.site import Site, same_bits

SIZE, HEADS, DIM = 16, 8, 128
BLOCK = SIZE * HEADS * DIM
BORDER = 2**31 // BLOCK
"""The block that begins with element 2**31."""
BLOCKS = BORDER + BORDER // 4
"""5 GiB a cache in bfloat16."""


def blocks_of(site: Site) -> tuple[int, int]:
    """(blocks of a cache, the border). On the CPU there is little room, and the border is just a number."""
    if site.name == "cpu":
        return 64, 48
    torch.cuda.empty_cache()
    needed, free = 2 * BLOCKS * BLOCK * 2 * 5 // 4, torch.cuda.mem_get_info()[0]
    if free < needed:
        pytest.skip(f"two caches past 2**31 elements need {needed / 2**30:.0f} GiB, {free / 2**30:.0f} GiB are free")
    return BLOCKS, BORDER


def caches_of(site: Site, blocks: int) -> list[Tensor]:
    return [
        torch.full((blocks, SIZE, HEADS, DIM), float("nan"), dtype=torch.bfloat16, device=site.device) for _ in "kv"
    ]


def not_nan(cache: Tensor) -> int:
    """Elements that were written, counted in pieces: a mask of the whole cache would take half of it again."""
    pieces = (cache[first : first + 4096] for first in range(0, len(cache), 4096))
    return sum(piece.numel() - int(piece.isnan().sum()) for piece in pieces)


def test_far_blocks_are_written_read_and_copied(site: Site) -> None:
    blocks, border = blocks_of(site)
    caches = caches_of(site, blocks)
    far = torch.tensor([border - 1, border, border + 1, 0, blocks - 1, blocks // 2], device=site.device)
    length = SIZE * len(far) - 5
    rows = torch.randn(2, length, HEADS, DIM, device=site.device).to(torch.bfloat16)
    positions = torch.arange(length, device=site.device)
    write_kv(rows[0], rows[1], caches[0], caches[1], far[positions // SIZE] * SIZE + positions % SIZE)
    assert [not_nan(cache) for cache in caches] == [rows[0].numel()] * 2
    table = far.to(torch.int32)
    for cache, wanted in zip(caches, rows, strict=True):
        assert same_bits(gather_kv(cache, table, length), wanted)

    small = caches_of(site, len(far))
    write_kv(rows[0], rows[1], small[0], small[1], positions)
    near = torch.arange(len(far), dtype=torch.int32, device=site.device)[None]
    same_attention(site, (caches, table[None]), (small, near), length)

    moved = torch.tensor([border + 2, border + 3, 1, 2, blocks - 2, 3], device=site.device)
    copy_blocks(caches, torch.stack([far, moved], 1))
    assert [not_nan(cache) for cache in caches] == [2 * rows[0].numel()] * 2
    same_attention(site, (caches, moved.to(torch.int32)[None]), (small, near), length)


def same_attention(
    site: Site, far: tuple[list[Tensor], Tensor], near: tuple[list[Tensor], Tensor], length: int
) -> None:
    """Decode, and several rows at once."""
    lengths = torch.tensor([length], dtype=torch.int32, device=site.device)
    for count in (1, 4, 40):
        query = torch.randn(count, 4 * HEADS, DIM, device=site.device).to(torch.bfloat16)
        starts = None if count == 1 else torch.tensor([0, count], dtype=torch.int32, device=site.device)
        results = [
            paged_attention(query, caches[0], caches[1], table, lengths, cu_seqlens_q=starts, return_lse=True)
            for caches, table in (far, near)
        ]
        assert all(same_bits(left, right) for left, right in zip(*results, strict=True))
        assert torch.isfinite(results[0][0]).all()
