"""What is measured: batches of a model with 32 query heads, 8 KV heads and a head_dim of 128."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

NUM_Q_HEADS: Final = 32
NUM_KV_HEADS: Final = 8
HEAD_DIM: Final = 128


@dataclass(frozen=True)
class Shape:
    """A batch of requests of one length, in tokens."""

    dtype: str = "bfloat16"
    batch: int = 8
    context: int = 4096
    block_size: int = 32
    rows: int = 1
    """Query rows of each request."""
    shared: float = 0.0
    """The part of the context that is that of the first request, in its blocks."""

    def __str__(self) -> str:
        """For people: what differs from one shape to the next.

        >>> str(Shape()), str(Shape("float32", 1, 2048, 32, 2048)), str(Shape(shared=0.9))
        ('bfloat16, 8 x 4,096', 'float32, a prompt of 2,048', 'bfloat16, 8 x 4,096, 90 % shared')
        """
        what = f"{self.batch} x {self.context:,}" if self.rows == 1 else f"a prompt of {self.rows:,}"
        blocks = f", blocks of {self.block_size}" if self.block_size != 32 else ""
        return f"{self.dtype}, {what}{blocks}{f', {self.shared:.0%} shared'.replace('%', ' %') if self.shared else ''}"

    @property
    def kv_bytes(self) -> int:
        """Of the keys and values that are read, each once."""
        size: int = getattr(torch, self.dtype).itemsize
        common = self.shared_blocks * self.block_size
        return (common + self.batch * (self.context - common)) * NUM_KV_HEADS * HEAD_DIM * 2 * size

    @property
    def shared_blocks(self) -> int:
        """With which all tables begin."""
        return int(self.context // self.block_size * self.shared)


@dataclass(frozen=True)
class Inputs:
    """The tensors of a shape; blocks lie anywhere."""

    shape: Shape
    query: Tensor
    k_cache: Tensor
    v_cache: Tensor
    block_tables: Tensor
    seq_lens: Tensor
    cu_seqlens_q: Tensor | None

    def contiguous(self) -> tuple[Tensor, Tensor]:
        """Keys and values as (batch, num_kv_heads, context, head_dim)."""
        tables = self.block_tables.long()
        keys, values = (cache[tables].flatten(1, 2).transpose(1, 2) for cache in (self.k_cache, self.v_cache))
        return keys.contiguous(), values.contiguous()


def inputs(shape: Shape) -> Inputs:
    """Random ones, always the same."""
    torch.manual_seed(0)
    dtype, width = getattr(torch, shape.dtype), shape.context // shape.block_size
    blocks = shape.batch * width
    caches = [
        torch.randn(blocks, shape.block_size, NUM_KV_HEADS, HEAD_DIM, dtype=torch.float32).to(dtype) for _ in range(2)
    ]
    tables = torch.randperm(blocks).int().view(shape.batch, width)
    tables[:, : shape.shared_blocks] = tables[0, : shape.shared_blocks]
    query = torch.randn(shape.batch * shape.rows, NUM_Q_HEADS, HEAD_DIM).to(dtype)
    lengths = torch.full((shape.batch,), shape.context, dtype=torch.int32)
    ends = None if shape.rows == 1 else torch.arange(shape.batch + 1, dtype=torch.int32) * shape.rows
    return Inputs(shape, query, caches[0], caches[1], tables, lengths, ends)
