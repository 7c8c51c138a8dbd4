"""The laws of this folder run twice: small on the CPU, which shows that the tests work, and in full on a GPU."""

import pytest
import torch

from tests.gpu.site import CPU, CUDA, Site

torch.set_num_threads(1)  # what the CPU has to do here is small, and `make gpu` loads no other conftest

NO_DEVICE = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")


@pytest.fixture(params=[pytest.param(CPU, id="cpu"), pytest.param(CUDA, id="cuda", marks=[pytest.mark.gpu, NO_DEVICE])])
def site(request: pytest.FixtureRequest) -> Site:
    """Where a test runs, and how large it may be."""
    found: Site = request.param
    return found
