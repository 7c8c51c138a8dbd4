"""One step of an engine on buffers of fixed size: write the new KV, attend, merge. What a CUDA graph would hold."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pagedkv.optimized.attention import merge_attention, paged_attention, write_kv
from tests.gpu.site import Site

SIZE, HEADS, GROUP, DIM = 16, 2, 4, 64


@dataclass
class Buffers:
    """Inputs and outputs. Requests past the last have length 0, tokens past the last go to slot -1."""

    query: Tensor
    """(num_tokens, num_q_heads, head_dim)."""
    key: Tensor
    """(num_tokens, num_kv_heads, head_dim), and so is `value`."""
    value: Tensor
    slots: Tensor
    tables: Tensor
    lengths: Tensor
    starts: Tensor | None
    """cu_seqlens_q; None in decode."""
    k_cache: Tensor
    v_cache: Tensor
    out: Tensor
    lse: Tensor
    merged: Tensor
    """The result merged with itself."""

    def run(self) -> None:
        """The step."""
        write_kv(self.key, self.value, self.k_cache, self.v_cache, self.slots)
        result = paged_attention(
            self.query, self.k_cache, self.v_cache, self.tables, self.lengths, cu_seqlens_q=self.starts, return_lse=True
        )
        assert isinstance(result, tuple)
        self.out.copy_(result[0])
        self.lse.copy_(result[1])
        self.merged.copy_(merge_attention(self.out.expand(2, -1, -1, -1), self.lse.expand(2, -1, -1))[0])

    def load(self, other: "Buffers") -> None:
        """Take over the inputs of a smaller step, and its caches; pad the rest with what a step must not look at."""
        for name in ("query", "key", "value"):
            getattr(self, name).fill_(float("nan"))
        self.slots.fill_(-1)
        self.tables.fill_(-1)
        self.lengths.fill_(0)
        for name in ("query", "key", "value", "slots", "lengths"):
            mine, theirs = getattr(self, name), getattr(other, name)
            mine[: len(theirs)] = theirs
        self.tables[: len(other.tables), : other.tables.shape[1]] = other.tables
        if self.starts is not None and other.starts is not None:
            self.starts.fill_(int(other.starts[-1]))
            self.starts[: len(other.starts)] = other.starts
        self.k_cache.copy_(other.k_cache)
        self.v_cache.copy_(other.v_cache)


def buffers(site: Site, lengths: list[int], rows: list[int] | None, blocks: int, seed: int, width: int = 0) -> Buffers:
    """A step of these requests on blocks of their own, in random order; `rows` None: decode."""
    device, counts = site.device, [1] * len(lengths) if rows is None else rows
    generator = torch.Generator(device).manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator).to(torch.bfloat16)

    order, taken = torch.randperm(blocks, device=device, generator=generator), 0
    needed = [-(-length // SIZE) for length in lengths]
    tables = torch.full((len(lengths), max(*needed, width)), -1, dtype=torch.int32, device=device)
    slots = []
    for request, (length, count, own) in enumerate(zip(lengths, counts, needed, strict=True)):
        tables[request, :own] = order[taken : taken + own]
        taken += own
        new = torch.arange(length - count, length, device=device)
        slots.append(tables[request, new // SIZE].long() * SIZE + new % SIZE)
    total = sum(counts)
    return Buffers(
        query=drawn(total, HEADS * GROUP, DIM),
        key=drawn(total, HEADS, DIM),
        value=drawn(total, HEADS, DIM),
        slots=torch.cat(slots),
        tables=tables,
        lengths=torch.tensor(lengths, dtype=torch.int32, device=device),
        starts=None if rows is None else torch.tensor([0, *rows], device=device).cumsum(0).to(torch.int32),
        k_cache=drawn(blocks, SIZE, HEADS, DIM),
        v_cache=drawn(blocks, SIZE, HEADS, DIM),
        out=torch.empty(total, HEADS * GROUP, DIM, dtype=torch.bfloat16, device=device),
        lse=torch.empty(total, HEADS * GROUP, device=device),
        merged=torch.empty(total, HEADS * GROUP, DIM, dtype=torch.bfloat16, device=device),
    )
