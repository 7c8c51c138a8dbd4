"""The tensors of a launch: random contents, blocks in random order, as many copies as no cache of the device holds."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pagedkv.optimized.attention.subject import array_of
from pagedkv.spec.attention_subject import Problem
from pagedkv.spec.words import ceil_div
from tests.benchmarks.gpu.shapes import Shape

ROUNDS_OF_L2 = 4
"""Calls in a row touch at least so many times what the L2 cache holds before a block is read again."""
MOST_COPIES = 128


@dataclass(frozen=True)
class Inputs:
    """What every contender is given. The copies are equal launches on blocks of their own: `tables` has one each."""

    shape: Shape
    query: Tensor
    """(total_q, num_q_heads, head_dim)."""
    k_cache: Tensor
    """(num_blocks, block_size, num_kv_heads, head_dim), and so is `v_cache`."""
    v_cache: Tensor
    tables: tuple[Tensor, ...]
    """(num_requests, max_blocks) int32, no block twice."""
    seq_lens: Tensor
    """(num_requests,) int32."""
    cu_seqlens_q: Tensor
    """(num_requests + 1,) int32."""

    @property
    def scale(self) -> float:
        return float(self.shape.head_dim**-0.5)

    def contiguous(self, copy: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one copy side by side, (positions of all requests, num_kv_heads, head_dim) each."""
        table, size = self.tables[copy], self.shape.block_size
        blocks = [ceil_div(length, size) for length in self.shape.lengths]
        parts: list[list[Tensor]] = [[], []]
        for request, (count, length) in enumerate(zip(blocks, self.shape.lengths, strict=True)):
            for part, cache in zip(parts, (self.k_cache, self.v_cache), strict=True):
                part.append(cache[table[request, :count].long()].flatten(0, 1)[:length])
        return torch.cat(parts[0]), torch.cat(parts[1])

    def problem(self) -> Problem:
        """The first copy as the specification takes it."""
        query, keys, values = (array_of(tensor) for tensor in (self.query, self.k_cache, self.v_cache))
        rows = self.cu_seqlens_q.diff().cpu().numpy()
        table, lengths = self.tables[0].cpu().numpy(), self.seq_lens.cpu().numpy()
        return Problem(query, keys, values, table, lengths, rows, scale=self.scale, dtype=self.shape.dtype)


def copies_for(shape: Shape, cache_bytes: int, free_bytes: int) -> int:
    """How many copies keep a call from finding its blocks in a cache of `cache_bytes`, at least one."""
    wanted = ceil_div(ROUNDS_OF_L2 * cache_bytes, shape.cache_bytes)
    return max(1, min(wanted, MOST_COPIES, free_bytes // 2 // shape.cache_bytes))


def make(shape: Shape, device: torch.device, copies: int = 1, seed: int = 0) -> Inputs:
    """Random contents, drawn on the device. No zeros: they would move as fast, and multiply faster."""
    generator = torch.Generator(device).manual_seed(seed)
    kind = getattr(torch, shape.dtype)

    def drawn(*size: int) -> Tensor:
        return torch.randn(size, dtype=kind, device=device, generator=generator)

    pool = (copies * shape.num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
    order = torch.randperm(pool[0], dtype=torch.int32, device=device, generator=generator)
    starts = torch.tensor([0, *shape.rows], dtype=torch.int32)
    counts = [ceil_div(length, shape.block_size) for length in shape.lengths]
    return Inputs(
        shape,
        drawn(shape.total_rows, shape.num_q_heads, shape.head_dim),
        drawn(*pool),
        drawn(*pool),
        tuple(_table(counts, part) for part in order.view(copies, -1)),
        torch.tensor(shape.lengths, dtype=torch.int32, device=device),
        starts.cumsum(0, dtype=torch.int32).to(device),
    )


def _table(counts: list[int], blocks: Tensor) -> Tensor:
    """(num_requests, max_blocks): each request's share of `blocks`, then zeros."""
    shares = list(torch.split(blocks, counts))
    return torch.nn.utils.rnn.pad_sequence(shares, batch_first=True)
