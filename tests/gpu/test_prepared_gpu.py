"""A call prepared once for all layers gives the bits of one that is not, also in a graph, also from odd addresses."""

import pytest
import torch
from torch import Tensor

from pagedkv.optimized.attention import paged_attention, workspace_size
from pagedkv.optimized.attention.prepared import prepare_attention
from tests.gpu.site import Site, same_bits
from tests.gpu.step import Buffers, buffers
from tests.gpu.test_graph_gpu import captured_call


def layers(site: Site, step: Buffers, rows: list[int] | None) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Query and caches of three layers; those of the last begin at an address that 16 does not divide."""
    found = []
    for seed in range(3):
        other = buffers(site, step.lengths.tolist(), rows, len(step.k_cache), seed=10 + seed)
        tensors = (other.query, other.k_cache, other.v_cache)
        found.append(tensors if seed < 2 else tuple(_moved(tensor) for tensor in tensors))
    return [(query, k, v) for query, k, v in found]


def _moved(tensor: Tensor) -> Tensor:
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)[1:].view(tensor.shape)
    return room.copy_(tensor)


@pytest.mark.parametrize("rows", [None, [1, 40, 3]], ids=["decode", "mixed"])
@pytest.mark.parametrize("options", [{}, {"window": 30, "softcap": 9.0}], ids=["plain", "options"])
def test_every_layer_gets_what_it_would_get_alone(
    site: Site, rows: list[int] | None, options: dict[str, object]
) -> None:
    step = buffers(site, [600, 90, 17], rows, 80, seed=0)
    given = {"cu_seqlens_q": step.starts, **options, "return_lse": True}
    tensors = (step.query, step.k_cache, step.v_cache, step.tables, step.lengths)
    elements = workspace_size(step.query, step.v_cache, step.tables, cu_seqlens_q=step.starts)
    workspace = torch.full((elements,), float("nan"), device=site.device)
    prepared = prepare_attention(*tensors, workspace=workspace, **given)  # type: ignore[arg-type]  # options of all kinds
    for _ in range(2):  # the second time by what was looked up the first time
        for query, k, v in layers(site, step, rows):
            expected = paged_attention(query, k, v, step.tables, step.lengths, **given)  # type: ignore[arg-type]  # as above
            got = prepared(query, k, v)
            assert all(same_bits(left, right) for left, right in zip(expected, got, strict=True))


@pytest.mark.parametrize("rows", [None, [1, 40, 3]], ids=["decode", "mixed"])
def test_a_captured_call_reads_lengths_and_tables_in_place(site: Site, rows: list[int] | None) -> None:
    step = buffers(site, [600, 90, 17], rows, 80, seed=0)
    inputs = (step.query, step.k_cache, step.v_cache)
    prepared = prepare_attention(*inputs, step.tables, step.lengths, cu_seqlens_q=step.starts)
    replay = captured_call(lambda: prepared(*inputs, out=step.out), site)
    for seed, lengths in enumerate(([600, 90, 17], [45, 300, 3])):
        other = buffers(site, lengths, rows, 80, seed=1 + seed, width=step.tables.shape[1])
        step.tables.copy_(other.tables)
        step.lengths.copy_(other.lengths)
        step.query.copy_(other.query)
        step.out.fill_(float("nan"))
        replay()
        expected = paged_attention(*inputs, step.tables, step.lengths, cu_seqlens_q=step.starts)
        assert isinstance(expected, Tensor)
        assert same_bits(step.out, expected)
