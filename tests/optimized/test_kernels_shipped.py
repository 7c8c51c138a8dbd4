"""The launches that we ship: what they cost on every target, and how far their offsets reach."""

import mmap
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton exists for Linux only")

from pagedkv.conformance.attention import Configuration, run as hold
from pagedkv.optimized.audit.aot import TARGETS, audit_launch
from pagedkv.optimized.attention.subject import InterpretedTritonAttention
from pagedkv.optimized.audit.interpret import interpreted
from pagedkv.optimized.launch import Launch
from pagedkv.optimized.attention.attend_launches import MAX_TILE, TILE_BYTES, tile_and_warps
from pagedkv.optimized.attention.move_launches import copy_launch, write_launch
from pagedkv.optimized.attention.shipped import shipped_launches

HUNGRY = {
    launch.configuration: launch
    for launch in shipped_launches()
    if launch.name == "decode"
    and any(part in launch.configuration for part in ("float32 head_dim=128", "head_dim=256", "group=64", "sinks"))
}
"""Those nearest to the limits; `pagedkv verify` compiles all."""

APART = 2**30 + 64
"""Elements between heads: 32 bits hold it, and not twice as many."""


def test_the_launches_nearest_to_the_limits_are_among_those_audited() -> None:
    assert len(HUNGRY) == 4


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("launch", HUNGRY.values(), ids=HUNGRY.keys())
def test_no_launch_spills_or_takes_more_than_there_is(launch: Launch, target: str) -> None:
    assert audit_launch(launch, target).problems() == []


def test_a_larger_tile_would_spill() -> None:
    launch = next(launch for name, launch in HUNGRY.items() if "float32" in name)
    larger = replace(launch, kwargs={**launch.kwargs, "TILE": MAX_TILE, "num_warps": 4})
    assert audit_launch(larger, "sm_90").spill_bytes > 0


def test_tiles_are_powers_of_two_within_their_bytes() -> None:
    formats = (torch.float32, torch.float16, torch.bfloat16)
    for dtype, dim, group in product(formats, (16, 32, 64, 128, 256), (16, 32, 64, 128)):
        tile, warps = tile_and_warps(dtype, dim, group)
        assert tile in (16, 32, 64)
        assert warps in (4, 8)
        assert tile == 16 or tile * dim * dtype.itemsize <= TILE_BYTES


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_the_formats_that_ship_keep_every_law(dtype: str) -> None:
    subject = InterpretedTritonAttention(upcast=False)
    report = hold(subject, seed=5, size="tiny", only=[Configuration(dtype, ("causal_prefill", "sinks"))])
    assert report.ok, "\n".join(report.lines())


def far_heads() -> Tensor:
    """A pool (2, 2, 3, 16) of zeros whose heads lie so far apart that 32-bit offsets overflow; it takes no memory."""
    before = 2**32  # an offset that wraps around lands inside, on zeros
    elements = before + 3 * APART
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (0x4000 if sys.platform == "linux" else 0)  # MAP_NORESERVE
    memory = mmap.mmap(-1, 2 * elements, flags)
    strides = tuple(2 * stride for stride in (32, 16, APART, 1))
    return torch.from_numpy(np.ndarray((2, 2, 3, 16), np.float16, memory, 2 * before, strides))


def run(launch: Launch) -> None:
    replace(launch, kernel=interpreted(launch.kernel)).run()


def write(pool: Tensor) -> None:
    rows = torch.arange(96, dtype=torch.float16).view(2, 3, 16)
    run(write_launch((rows, rows), (pool, pool), torch.tensor([3, 0])))


def copy(pool: Tensor) -> None:
    pool[1] = torch.arange(96, dtype=torch.float16).view(2, 3, 16)
    run(copy_launch(pool, torch.tensor([[1, 0]])))


@pytest.mark.parametrize("use", [write, copy])
def test_heads_far_apart_are_found(use: Callable[[Tensor], None]) -> None:
    near = torch.zeros(2, 2, 3, 16, dtype=torch.float16)
    far = far_heads()
    use(near)
    use(far)
    assert near.any()
    assert torch.equal(far, near)
