"""`merge_attention` on a device keeps the laws of merging."""

import pytest
from torch import Tensor

from pagedkv.optimized.attention import merge_attention
from tests.gpu.site import Site
from tests.optimized.merge_laws import LAWS


@pytest.mark.parametrize("law", LAWS)
def test_results_are_merged(site: Site, law: str) -> None:
    def merge(outs: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> None:
        merged, total = merge_attention(outs.to(site.device), lses.to(site.device))
        out.copy_(merged)
        lse.copy_(total)

    LAWS[law](merge)
