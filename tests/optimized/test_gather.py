"""`gather_kv`: every law through every backend, the order of programs, and the public function around them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pagedkv.optimized import gather_kv, write_kv
from pagedkv.optimized.attention.move_launches import gather_launch
from pagedkv.optimized.attention.torch_backend import TorchBackend
from pagedkv.optimized.audit.interpret import ordered, recording, shuffled
from pagedkv.optimized.cpu.backend import CpuBackend
from pagedkv.spec import Misuse
from tests.conformance.move_kernel_mutants import GATHER_MUTANTS
from tests.conformance.mutants.mutation import Mutant
from tests.optimized.gather_laws import LAWS, MIXED, Case, Gather, broken, same_bits


def interpreted(cache: Tensor, tables: Tensor, cu_seqlens: Tensor, starts: Tensor | None, out: Tensor) -> None:
    gather_launch(cache, tables, cu_seqlens, starts, out).interpret()


@pytest.mark.parametrize(
    "gather", [TorchBackend().gather, CpuBackend().gather, interpreted], ids=["torch", "numba", "triton"]
)
@pytest.mark.parametrize("law", LAWS)
def test_the_laws_hold(law: str, gather: Gather) -> None:
    LAWS[law](gather)


@pytest.mark.parametrize("mutant", GATHER_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_of_the_kernel_is_caught_by_a_law_that_names_it(mutant: Mutant) -> None:
    launch = mutant.load()
    assert any(broken(LAWS[law], lambda *arguments: launch(*arguments).interpret()) for law in mutant.breaks.split())


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=4), st.integers(1, 5), st.integers(0, 3))
def test_any_batch_is_gathered(requests: list[tuple[int, int]], size: int, spare: int) -> None:
    counts, starts = tuple(count for count, _ in requests), tuple(start for _, start in requests)
    case = Case(counts, starts, size, spare=spare)
    for backend in (TorchBackend(), CpuBackend()):
        out = case.run(backend.gather)
        assert same_bits(out, case.expected().to(out.dtype))


def test_the_order_of_programs_changes_no_bit_and_none_touches_what_another_one_writes() -> None:
    case = Case((40, 0, 3, 30), (2, 0, 5, 1), heads=5, dim=24, spare=9)
    for seed in range(3):
        with ordered(shuffled(seed)), recording() as log:
            out = case.run(interpreted)
        assert len(log.launches[0].programs) > 1
        assert log.conflicts() == []
        assert same_bits(out, case.expected())


def test_what_was_written_is_gathered() -> None:
    cache, rows = torch.full((5, 4, 2, 8), float("nan")), torch.randn(9, 2, 8)
    tables = torch.tensor([[4, 1, -1], [0, 3, 99]], dtype=torch.int32)
    slots = torch.tensor([16, 17, 18, 19, 4, 0, 1, 2, 3])
    write_kv(rows, rows, cache, cache.clone(), slots)
    assert torch.equal(gather_kv(cache, tables, torch.tensor([0, 5, 9], dtype=torch.int32), total=9), rows)
    assert torch.equal(gather_kv(cache, tables[0], 5), rows[:5])
    first = torch.tensor([3, 1], dtype=torch.int32)
    some = gather_kv(cache, tables, torch.tensor([0, 2, 3], dtype=torch.int32), starts=first, total=3)
    assert torch.equal(some, rows[[3, 4, 6]])


def test_a_given_output_is_written_and_returned() -> None:
    out = torch.full((20, 2, 8), float("nan"), dtype=torch.float16)
    assert gather_kv(MIXED.cache, MIXED.tables, MIXED.cu_seqlens, out=out) is out
    made = gather_kv(MIXED.cache, MIXED.tables, MIXED.cu_seqlens, total=20)
    assert same_bits(out, made)
    alone = gather_kv(MIXED.cache, MIXED.tables[0], 5, out=torch.empty(5, 2, 8, dtype=torch.float16))
    assert same_bits(alone, out[:5])


def test_a_refused_call_leaves_the_output_alone() -> None:
    out = torch.full((17, 2, 8), 5.0, dtype=torch.float16)
    for cu_seqlens in ([0, 5, 5, 6, 14, 17, 99], [1, 5, 5, 6, 14, 17, 17], [0, 5, 4, 6, 14, 17, 17]):
        with pytest.raises(Misuse, match="cu_seqlens"):
            gather_kv(MIXED.cache, MIXED.tables, torch.tensor(cu_seqlens, dtype=torch.int32), out=out)
    assert bool((out == 5).all())
