"""The launches that we ship: what they cost on every target, and how far their offsets reach."""

import mmap
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton exists for Linux only")

from pagedkv.conformance.attention import Configuration as Held, run as hold
from pagedkv.optimized.attention.move_launches import copy_groups, copy_launch, write_launch
from pagedkv.optimized.attention.shipped import ATTENDING, Configuration, launch_for, pairwise
from pagedkv.optimized.attention.subject import InterpretedTritonAttention
from pagedkv.optimized.audit.aot import KernelAudit, audit_launch
from pagedkv.optimized.audit.audit_table import compare, load
from pagedkv.optimized.audit.machine_code import MATRIX
from pagedkv.optimized.audit.targets import TARGETS

APART = 2**30 + 64
"""Elements between heads: 32 bits hold it, and not twice as many."""


@pytest.fixture(scope="module")
def audits(attention_audits: list[KernelAudit]) -> list[KernelAudit]:
    """The pairwise set, compiled."""
    return attention_audits


def test_every_compiled_configuration_is_fit_to_ship(audits: list[KernelAudit]) -> None:
    problems = {f"{each.configuration} on {each.target}": each.problems() for each in audits}
    assert {name: found for name, found in problems.items() if found} == {}


def test_nothing_changed_that_is_not_in_the_committed_table(
    audits: list[KernelAudit], pool_audits: list[KernelAudit]
) -> None:
    """The table has the device pool's kernels, too."""
    assert compare([*audits, *pool_audits], load()).violations == []


def test_an_audit_is_of_what_the_configuration_says(audits: list[KernelAudit]) -> None:
    work = pairwise()
    assert [(each.target, each.configuration) for each in audits] == [(t, str(each)) for t, each in work]
    kernels = {"decode", "prefill", "merge", "write_kv", "copy_blocks", "gather", "merge_attention"}
    assert {each.kernel for each in audits} == kernels
    for each, (_, configuration) in zip(audits, work, strict=True):
        reads = configuration.kernel in ATTENDING or configuration.kernel in ("copy_blocks", "gather")
        assert (each.kv_load_bits is not None) == each.kv_aligned == reads
        assert 0 < each.occupancy <= 1
        assert each.threads % TARGETS[each.target].warp_size == 0


def test_products_are_matrix_instructions_unless_float32_has_none(audits: list[KernelAudit]) -> None:
    for each, (target, configuration) in zip(audits, pairwise(), strict=True):
        exists = configuration.dtype != "float32" or target == "gfx942"
        assert bool(each.matrix) == (exists and configuration.kernel in ATTENDING), each
        assert all(MATRIX.match(name) for name in each.matrix)


@pytest.mark.parametrize(("target", "instruction"), [("sm_80", "HMMA"), ("sm_90", "HGMMA"), ("sm_100", "UTCHMMA")])
def test_prefill_uses_the_matrix_instruction_of_its_target(target: str, instruction: str) -> None:
    found = audit_launch(launch_for(Configuration("prefill", "bfloat16", (128, 128), 8, 16, "causal"), target), target)
    assert {name.split(".")[0] for name in found.matrix} == {instruction}


def test_inner_loops_are_found_and_every_instruction_has_a_class(audits: list[KernelAudit]) -> None:
    for each, (target, configuration) in zip(audits, pairwise(), strict=True):
        loops = configuration.kernel in ATTENDING and TARGETS[target].backend == "cuda"
        assert bool(each.inner_loop) == loops, each
        assert "other" not in each.inner_loop
        if loops:
            assert each.inner_loop["global memory"] > 0
            assert each.inner_loop["special"] > 0  # the exponentials of the softmax
            assert ("matrix" in each.inner_loop) == bool(each.matrix)
            assert sum(each.inner_loop.values()) < each.instructions


def test_too_large_a_tile_is_found_to_spill() -> None:
    launch = launch_for(Configuration("decode", "float32", (128, 128), 4, 16, "causal"), "sm_90")
    larger = replace(launch, kwargs={**launch.kwargs, "TILE": 128, "num_warps": 4})
    assert "spills" in audit_launch(larger, "sm_90").problems()[0]


def test_loads_that_are_narrow_for_want_of_alignment_are_found_and_forgiven_only_if_the_layout_asks_for_it() -> None:
    launch = launch_for(Configuration("decode", "float16", (128, 128), 4, 16, "causal"), "sm_90")
    launch = replace(launch, kwargs={**launch.kwargs, "WORD": 1})  # nothing is known of the strides
    key_cache = launch.args[1]
    token = launch.kernel.arg_names.index("key_stride_token")
    assert launch.args[token] == key_cache.stride(1)
    found = audit_launch(replace(launch, args=odd(launch.args, {token: 257})), "sm_90")
    assert found.kv_load_bits == (16, 128)
    assert "loads KV 16 bits a thread where the layout allows 128" in found.problems()
    rows = torch.zeros(2 * 16 * 257, dtype=torch.float16).as_strided(key_cache.shape, (16 * 257, 257, 128, 1))
    forgiven = audit_launch(replace(launch, args=odd(launch.args, {token: 257, 1: rows})), "sm_90")
    assert forgiven.kv_load_bits == (16, 128)
    assert forgiven.problems() == []


def odd(args: tuple[Any, ...], changes: dict[int, Any]) -> tuple[Any, ...]:
    return tuple(changes.get(i, value) for i, value in enumerate(args))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_the_formats_that_ship_keep_every_law(dtype: str) -> None:
    subject = InterpretedTritonAttention(upcast=False)
    report = hold(subject, seed=5, size="tiny", only=[Held(dtype, ("causal_prefill", "sinks"))])
    assert report.ok, "\n".join(report.lines())


def far_heads() -> Tensor:
    """A pool (2, 2, 3, 16) of zeros whose heads lie so far apart that 32-bit offsets overflow; it takes no memory."""
    before = 2**32  # an offset that wraps around lands inside, on zeros
    elements = before + 3 * APART
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0x4000 if sys.platform == "linux" else 0)  # MAP_NORESERVE
    memory = mmap.mmap(-1, 2 * elements, flags)
    strides = tuple(2 * stride for stride in (32, 16, APART, 1))
    return torch.from_numpy(np.ndarray((2, 2, 3, 16), np.float16, memory, 2 * before, strides))


def write(pool: Tensor) -> None:
    rows = torch.arange(96, dtype=torch.float16).view(2, 3, 16)
    write_launch((rows, rows), (pool, pool), torch.tensor([3, 0])).interpret()


def copy(pool: Tensor) -> None:
    pool[1] = torch.arange(96, dtype=torch.float16).view(2, 3, 16)
    copy_launch(copy_groups([pool], [pool])[0], torch.tensor([[1, 0]])).interpret()


@pytest.mark.parametrize("use", [write, copy])
def test_heads_far_apart_are_found(use: Callable[[Tensor], None]) -> None:
    near = torch.zeros(2, 2, 3, 16, dtype=torch.float16)
    far = far_heads()
    use(near)
    use(far)
    assert near.any()
    assert torch.equal(far, near)
