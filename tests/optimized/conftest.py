"""What tests of several files look at: the configurations that have every pair of values, compiled once a run."""

import pytest
from pagedkv.optimized.audit.aot import KernelAudit, audit


@pytest.fixture(scope="session")
def attention_audits() -> list[KernelAudit]:
    """Those of attention: about a minute."""
    from pagedkv.optimized.attention.shipped import pairwise  # noqa: PLC0415  # needs Triton
    from pagedkv.optimized.audit.shipped import shipped_launches  # noqa: PLC0415  # as above

    return audit(shipped_launches(pairwise()))


@pytest.fixture(scope="session")
def pool_audits() -> list[KernelAudit]:
    """Those of the device pool: about half a minute."""
    from pagedkv.optimized.audit.shipped import shipped_launches  # noqa: PLC0415  # needs Triton
    from pagedkv.optimized.device.shipped import pairwise  # noqa: PLC0415  # as above

    return audit(shipped_launches(pairwise()))
