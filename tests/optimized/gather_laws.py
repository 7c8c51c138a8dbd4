"""The laws of gathering, for any function that fills an output: a broken one raises `AssertionError` or worse.

They hold of bytes: caches are filled with random bits, NaN of every kind among them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

Gather: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor], None]
"""(cache, block_tables, cu_seqlens, starts, out)."""

GARBAGE = (-1, 2**31 - 1, -(2**31), 10**6)
"""What stands in a table where nobody looks."""


@dataclass(frozen=True)
class Case:
    """What to gather, and from what. `counts`: rows of each request; `starts`: the position of the first of them."""

    counts: tuple[int, ...]
    starts: tuple[int, ...] | None = None
    size: int = 4
    heads: int = 2
    dim: int = 8
    dtype: torch.dtype = torch.float16
    spare: int = 0
    """Rows of the output past the last request."""
    layout: str = "plain"
    """Of the cache and the output: "plain", "heads first" or "padded"."""
    seed: int = 0
    tables: Tensor = field(init=False)
    cache: Tensor = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        starts = self.starts or (0,) * len(self.counts)
        needed = [
            -(-(start + count) // self.size) if count else 0 for start, count in zip(starts, self.counts, strict=True)
        ]
        blocks = torch.randperm(sum(needed) + 3, generator=generator).tolist()
        width = max(needed, default=0) + 1
        rows = [[GARBAGE[(r + j) % len(GARBAGE)] for j in range(width)] for r in range(len(self.counts))]
        for row, start, count, last in zip(rows, starts, self.counts, needed, strict=True):
            first = start // self.size if count else last
            row[first:last] = [blocks.pop() for _ in range(last - first)]
        object.__setattr__(self, "tables", torch.tensor(rows, dtype=torch.int32).view(len(rows), width))
        shape = (sum(needed) + 3, self.size, self.heads, self.dim)
        object.__setattr__(self, "cache", laid_out(random_bits(shape, self.dtype, generator), self.layout))

    @property
    def cu_seqlens(self) -> Tensor:
        return torch.tensor([0, *self.counts], dtype=torch.int32).cumsum(0).int()

    def expected(self) -> Tensor:
        """Position by position."""
        rows = []
        for r, (count, start) in enumerate(zip(self.counts, self.starts or (0,) * len(self.counts), strict=True)):
            for position in range(start, start + count):
                rows.append(self.cache[int(self.tables[r, position // self.size]), position % self.size])
        shape = (self.spare, self.heads, self.dim)
        return torch.cat([torch.stack(rows), torch.zeros(shape, dtype=self.dtype)]) if rows else torch.zeros(shape)

    def run(self, gather: Gather) -> Tensor:
        """What an output full of NaN becomes."""
        shape = (sum(self.counts) + self.spare, self.heads, self.dim)
        out = laid_out(torch.full(shape, float("nan"), dtype=self.dtype), self.layout)
        starts = None if self.starts is None else torch.tensor(self.starts, dtype=torch.int32)
        gather(self.cache, self.tables, self.cu_seqlens, starts, out)
        return out


def random_bits(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Every pattern of bits may occur."""
    last = shape[-1] * dtype.itemsize // 2
    bits = torch.randint(-(2**15), 2**15, (*shape[:-1], last), dtype=torch.int16, generator=generator)
    return bits.view(dtype)


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """The same values with other strides; the last dimension stays contiguous."""
    if layout == "heads first":
        return tensor.transpose(-3, -2).contiguous().transpose(-3, -2)
    if layout == "padded":
        wider = torch.full((*tensor.shape[:-1], tensor.shape[-1] + 3), 7.0, dtype=tensor.dtype)
        return wider[..., : tensor.shape[-1]].copy_(tensor)
    return tensor.contiguous()


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Byte for byte, so that a NaN equals itself."""
    return a.shape == b.shape and torch.equal(a.contiguous().view(torch.int16), b.contiguous().view(torch.int16))


MIXED = Case((5, 0, 1, 8, 3, 0))


def order(gather: Gather) -> None:
    """Row cu_seqlens[r] + i is position i of request r, wherever its block lies."""
    for seed in range(3):
        case = replace(MIXED, seed=seed)
        assert same_bits(case.run(gather), case.expected())


def starts(gather: Gather) -> None:
    """With starts, it is position starts[r] + i."""
    for case in (Case((5, 2, 0, 4), (3, 4, 9, 7)), Case((1, 6), (11, 0), size=3), Case((4,), (5,), size=1)):
        assert same_bits(case.run(gather), case.expected())


def tail(gather: Gather) -> None:
    """Rows past the last request are zeros; so are all rows where there is none."""
    for counts in ((3, 2), (0, 0), (1,), ()):
        out = replace(MIXED, counts=counts, spare=70).run(gather)
        assert not out[sum(counts) :].any()
        assert not out[sum(counts) :].isnan().any()


def batch(gather: Gather) -> None:
    """A request's rows do not depend on its batch."""
    whole, ends = MIXED.run(gather), MIXED.cu_seqlens
    for r in range(len(MIXED.counts)):
        begin, end = int(ends[r]), int(ends[r + 1])
        alone = torch.full_like(whole[begin:end], float("nan"))
        cu_seqlens = torch.tensor([0, end - begin], dtype=torch.int32)
        gather(MIXED.cache, MIXED.tables[r : r + 1], cu_seqlens, None, alone)
        assert same_bits(alone, whole[begin:end])


def shapes(gather: Gather) -> None:
    """Any block size, number of heads, dim and dtype."""
    for size, heads, dim in ((1, 1, 1), (3, 5, 24), (16, 1, 80), (7, 3, 112), (256, 2, 96), (5, 9, 33)):
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            case = Case((4, 0, 9), None, size, heads, dim, dtype, spare=2)
            assert same_bits(case.run(gather), case.expected())


def layouts(gather: Gather) -> None:
    """Any strides with a contiguous last dimension; what lies between the elements of the output stays."""
    for layout in ("heads first", "padded"):
        case = replace(MIXED, layout=layout, spare=1, heads=3)
        out = case.run(gather)
        assert same_bits(out, case.expected())
        if layout == "padded":
            between = out.as_strided((*out.shape[:2], 3), out.stride(), out.storage_offset() + case.dim)
            assert bool((between == 7).all())


LAWS: Mapping[str, Callable[[Gather], None]] = {
    law.__name__: law for law in (order, starts, tail, batch, shapes, layouts)
}


def broken(law: Callable[[Any], None], function: Any) -> bool:
    """Whether a function breaks a law, of these or of others."""
    try:
        law(function)
    except Exception:  # an access out of bounds, say
        return True
    return False
