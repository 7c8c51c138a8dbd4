"""The order in which programs run cannot be seen: shuffled orders give the same bits, and no program touches what
another one writes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import AttentionCall, Mask
from pagedkv.optimized.audit.interpret import ordered, recording, shuffled
from pagedkv.optimized.launch import Launch
from pagedkv.optimized.attention.attend_launches import attention_launches
from pagedkv.optimized.attention.cutting import Overrides
from pagedkv.optimized.attention.tuned import Tiling
from pagedkv.optimized.attention.move_launches import copy_groups, copy_launch, write_launch

Prepared = tuple[list[Launch], list[Tensor]]
"""The launches of one call, and the tensors that they write."""


def decode() -> Prepared:
    """Two requests, three query rows, GQA, several splits, a window, sinks; then the merge."""
    generator = torch.Generator().manual_seed(1)
    caches = torch.randn(2, 12, 4, 2, 16, generator=generator)
    query = torch.randn(3, 6, 16, generator=generator)
    tables = torch.randperm(12, generator=generator).to(torch.int32).view(1, 12).repeat(2, 1)
    seq_lens = torch.tensor([35, 18], dtype=torch.int32)
    cu_seqlens = torch.tensor([0, 2, 3], dtype=torch.int32)
    mask = Mask(0.25, True, 30, 20.0, torch.linspace(0, 1, 6), torch.linspace(-1, 1, 6))
    out, lse = torch.zeros(3, 6, 16), torch.zeros(3, 6)
    call = AttentionCall(query, caches[0], caches[1], tables, seq_lens, cu_seqlens, mask, out, lse, 16)
    launches = attention_launches(call, Overrides(Tiling(16, 16, 4, 1), upcast=True))
    assert [launch.name for launch in launches] == ["decode", "merge"]
    return launches, [out, lse]


def mixed() -> Prepared:
    """A decode, a prompt of several blocks of rows, and a row past the last request: all three kernels."""
    generator = torch.Generator().manual_seed(4)
    caches = torch.randn(2, 12, 4, 2, 16, generator=generator)
    query = torch.randn(22, 4, 16, generator=generator)
    tables = torch.randperm(12, generator=generator).to(torch.int32).view(1, 12).repeat(2, 1)
    lengths, starts = torch.tensor([33, 40], dtype=torch.int32), torch.tensor([0, 1, 21], dtype=torch.int32)
    out, lse = torch.zeros(22, 4, 16), torch.zeros(22, 4)
    mask = Mask(0.25, True, None, 0.0, None, None)
    call = AttentionCall(query, caches[0], caches[1], tables, lengths, starts, mask, out, lse, 16)
    launches = attention_launches(call, Overrides(Tiling(16, 16, 4, 1), upcast=True))
    assert [launch.name for launch in launches] == ["decode", "merge", "prefill"]
    return launches, [out, lse]


def write() -> Prepared:
    """Five tokens, one of them skipped."""
    caches = torch.zeros(2, 3, 4, 2, 8)
    new = torch.randn(2, 5, 2, 8, generator=torch.Generator().manual_seed(2))
    launch = write_launch((new[0], new[1]), (caches[0], caches[1]), torch.tensor([3, 0, -1, 11, 6]))
    return [launch], [caches]


def copy() -> Prepared:
    """Three pairs, one source for two of them, one skipped."""
    cache = torch.randn(6, 4, 2, 8, generator=torch.Generator().manual_seed(3))
    return copies(cache, torch.tensor([[0, 3], [0, 4], [-1, -1]])), [cache]


def copies(cache: Tensor, pairs: Tensor) -> list[Launch]:
    """Within one cache."""
    return [copy_launch(group, pairs) for group in copy_groups([cache], [cache])]


def run(launches: list[Launch]) -> None:
    """In the interpreter."""
    for launch in launches:
        launch.interpret()


@pytest.mark.parametrize("prepare", [decode, mixed, write, copy])
def test_the_order_of_programs_changes_no_bit(prepare: Callable[[], Prepared]) -> None:
    launches, expected = prepare()
    run(launches)
    for seed in range(4):
        again, written = prepare_again(prepare, expected)
        with ordered(shuffled(seed)):
            run(again)
        assert all(torch.equal(a, b) for a, b in zip(expected, written, strict=True))


def prepare_again(prepare: Callable[[], Prepared], expected: list[Tensor]) -> Prepared:
    """The same launches on fresh tensors, which do not hold the result yet."""
    launches, written = prepare()
    assert not all(torch.equal(a, b) for a, b in zip(expected, written, strict=True))
    return launches, written


@pytest.mark.parametrize("prepare", [decode, mixed, write, copy])
def test_no_program_touches_what_another_one_writes(prepare: Callable[[], Prepared]) -> None:
    launches, _ = prepare()
    with recording() as log:
        run(launches)
    assert log.conflicts() == []


def test_a_copy_into_a_source_is_such_a_conflict() -> None:
    cache = torch.randn(3, 4, 2, 8)
    with recording() as log:
        run(copies(cache, torch.tensor([[0, 1], [1, 2]])))
    assert log.conflicts() != []
