"""`merge_attention`: every law through every backend, mutants of the kernel, and what it compiles to."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton", reason="Triton exists for Linux only")

from pagedkv.optimized.attention.merge_launches import merge_attention_launch
from pagedkv.optimized.attention.torch_backend import TorchBackend
from pagedkv.optimized.audit.aot import audit_launch, compiled_kernel
from pagedkv.optimized.audit.interpret import ordered, recording, shuffled
from pagedkv.optimized.audit.targets import TARGETS
from pagedkv.optimized.cpu.backend import CpuBackend
from pagedkv.optimized.kernels.merge_attention import merge_attention_kernel
from pagedkv.optimized.launch import Launch
from tests.conformance.move_kernel_mutants import MERGE_MUTANTS
from tests.conformance.mutants.mutation import Mutant
from tests.optimized.gather_laws import broken, same_bits
from tests.optimized.merge_laws import LAWS, Merge, excess, parts, run


def interpreted(outs: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> None:
    merge_attention_launch(outs, lses, out, lse).interpret()


@pytest.mark.parametrize(
    "merge", [TorchBackend().merge, CpuBackend().merge, interpreted], ids=["torch", "numba", "triton"]
)
@pytest.mark.parametrize("law", LAWS)
def test_the_laws_hold(law: str, merge: Merge) -> None:
    LAWS[law](merge)


@pytest.mark.parametrize("mutant", MERGE_MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_of_the_kernel_is_caught_by_a_law_that_names_it(mutant: Mutant) -> None:
    launch = mutant.load()
    assert any(broken(LAWS[law], lambda *arguments: launch(*arguments).interpret()) for law in mutant.breaks.split())


@given(st.lists(st.floats(-1e5, 1e5, width=32) | st.just(-torch.inf), min_size=1, max_size=6))
def test_any_sums_are_merged(sums: list[float]) -> None:
    outs, _ = parts((len(sums), 1, 1, 8))
    lses = torch.tensor(sums).view(-1, 1, 1)
    for merge in (TorchBackend().merge, CpuBackend().merge, interpreted):
        assert excess(outs, lses, *run(merge, outs, lses)) <= 1


def test_the_order_of_programs_changes_no_bit_and_each_part_is_read_once() -> None:
    outs, lses = parts((3, 70, 3, 40))
    expected = run(interpreted, outs, lses)
    for seed in range(3):
        with ordered(shuffled(seed)), recording() as log:
            found = run(interpreted, outs, lses)
        (access,) = log.launches
        assert len(access.programs) > 1
        assert log.conflicts() == []
        assert all(same_bits(a, b) for a, b in zip(found, expected, strict=True))
        assert access.bytes_touched("load") == outs.nbytes + lses.nbytes


def launch_of(total_q: int, heads: int = 8, dim: int = 128) -> Launch:
    outs, lses = torch.zeros(2, total_q, heads, dim, dtype=torch.bfloat16), torch.zeros(2, total_q, heads)
    return merge_attention_launch(outs, lses, outs[0], lses[0])


@pytest.mark.parametrize("target", TARGETS)
def test_values_move_16_bytes_at_a_time_and_nothing_spills(target: str) -> None:
    assert audit_launch(launch_of(5), target).problems() == []
    asm = compiled_kernel(launch_of(5), target).asm
    if "ptx" in asm:
        found = re.findall(r"\b(?:ld|st)\.global(?:\.\w+)*?((?:\.v\d)?\.\w+)", asm["ptx"])
    else:
        found = re.findall(r"\b(?:global|buffer)_(?:load|store)_(\w+)", asm["amdgcn"])
    assert set(found) == ({".b32", ".v4.b32"} if "ptx" in asm else {"dword", "dwordx4"})  # a sum, and eight values


def test_what_changes_from_step_to_step_is_not_compiled_in() -> None:
    names = merge_attention_kernel.arg_names
    fixed = {name for name in names if name not in merge_attention_kernel.do_not_specialize and name.islower()}
    assert fixed == {"outs", "out", "lse"}
    assert launch_of(1).kwargs == launch_of(7).kwargs
