"""The attention kit on a device: the same laws as everywhere, through the compiled kernels."""

import pytest
import torch

from pagedkv.conformance.attention import run
from pagedkv.optimized.attention.subject import OptimizedAttention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device"),
]


def test_the_compiled_kernels_keep_every_law() -> None:
    report = run(OptimizedAttention("cuda"), seed=0, size="full")
    assert report.ok, "\n".join(report.lines())


def test_a_launch_does_not_wait_for_the_device() -> None:
    from pagedkv.optimized import paged_attention  # noqa: PLC0415  # collected on machines without a device, too

    caches = torch.randn(2, 64, 16, 2, 64, device="cuda", dtype=torch.float16)
    tables = torch.arange(64, device="cuda", dtype=torch.int32).view(2, 32)
    lengths = torch.tensor([500, 17], device="cuda", dtype=torch.int32)
    query = torch.randn(2, 8, 64, device="cuda", dtype=torch.float16)
    paged_attention(query, caches[0], caches[1], tables, lengths)  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        paged_attention(query, caches[0], caches[1], tables, lengths)
    finally:
        torch.cuda.set_sync_debug_mode("default")
