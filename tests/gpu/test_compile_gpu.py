"""A small module with everything in it compiles into one graph, and gives the bits that it gives without.

On a GPU by torch's own compiler, on the CPU traced as far as the operators (`aot_eager`). What surrounds the operators
is exact in any order: transposes, and products with powers of two.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from pagedkv.optimized.attention import merge_attention, paged_attention, write_kv
from tests.gpu.site import Site, same_bits
from tests.gpu.step import Buffers, buffers


class Layer(nn.Module):
    """Write, attend, attend again to the end of a window, merge."""

    def forward(self, step: tuple[Tensor, ...], starts: Tensor | None) -> tuple[Tensor, Tensor]:
        query, key, value, slots, tables, lengths, k_cache, v_cache = step
        write_kv(key * 0.5, value * 2.0, k_cache, v_cache, slots)
        tensors = (query.transpose(0, 1).contiguous().transpose(0, 1), k_cache, v_cache, tables, lengths)
        whole, lse = paged_attention(*tensors, cu_seqlens_q=starts, return_lse=True)
        near, near_lse = paged_attention(*tensors, cu_seqlens_q=starts, window=20, softcap=8.0, return_lse=True)
        out, total = merge_attention(torch.stack((whole, near)), torch.stack((lse, near_lse)))
        return out * 4.0, total


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def tensors_of(step: Buffers) -> tuple[Tensor, ...]:
    """Caches last, and copies of them: a call writes to them."""
    inputs = (step.query, step.key, step.value, step.slots, step.tables, step.lengths)
    return (*inputs, step.k_cache.clone(), step.v_cache.clone())


@pytest.mark.parametrize("rows", [None, [1, 40, 3]], ids=["decode", "mixed"])
def test_compiled_and_plain_are_one(site: Site, rows: list[int] | None) -> None:
    layer = Layer()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager" if site.name == "cpu" else "inductor")
    for seed, lengths in enumerate(([600, 90, 17], [45, 41, 3])):
        step = buffers(site, lengths, rows, 80, seed)
        plain, other = tensors_of(step), tensors_of(step)
        expected, got = layer(plain, step.starts), compiled(other, step.starts)
        assert all(same_bits(left, right) for left, right in zip(expected, got, strict=True))
        assert all(same_bits(left, right) for left, right in zip(plain, other, strict=True))
        assert torch.isfinite(got[0]).all()
