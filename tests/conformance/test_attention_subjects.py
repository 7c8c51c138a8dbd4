"""Our own implementations, held against the specification by the attention kit."""

import pytest

from pagedkv.conformance.attention import run
from pagedkv.conformance.attention.plan import LAWS, Size
from pagedkv.reference.attention import ReferenceAttention


@pytest.mark.parametrize(("size", "seed"), [("tiny", 1), ("tiny", 2), ("full", 0)])
def test_the_reference_keeps_every_law(size: Size, seed: int) -> None:
    report = run(ReferenceAttention(), seed=seed, size=size)
    assert report.ok, "\n".join(report.lines())
    assert set(report.laws) == set(LAWS)
    assert report.not_exercised == ()
    assert all(each.worst_rho <= 1 for each in report.configurations)
