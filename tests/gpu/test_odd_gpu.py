"""What no allocator produces on purpose and every engine does: nothing to do, padding, tables much wider than used."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pagedkv.conformance.attention import Case
from pagedkv.conformance.attention.cases import contents
from pagedkv.conformance.attention.placement import place
from pagedkv.optimized.attention import paged_attention
from pagedkv.spec.attention_subject import Problem
from pagedkv.spec.bound import paged_bound, rho
from tests.gpu.site import Site

DECODE = Case("bfloat16", 16, lengths=(700, 0, 33), query_lens=(1, 1, 1), group=4, head_dim=64)
MIXED = Case("bfloat16", 16, lengths=(700, 0, 33, 90), query_lens=(1, 0, 33, 20), group=4, head_dim=64)


def problem_of(site: Site, case: Case) -> Problem:
    sized = site.sized(case)
    return place(sized, contents(sized))


@pytest.mark.parametrize("case", [DECODE, MIXED], ids=["decode", "mixed"])
@pytest.mark.parametrize("times", [2, 9])
def test_the_width_of_the_table_changes_no_bit(site: Site, case: Case, times: int) -> None:
    """More splits are launched, and the further ones find nothing."""
    problem = problem_of(site, case)
    wide = np.full((len(problem.block_tables), problem.block_tables.shape[1] * times), 2**31 - 1, np.int32)
    wide[:, : problem.block_tables.shape[1]] = problem.block_tables
    narrow, other = site.subject.attend(problem), site.subject.attend(replace(problem, block_tables=wide))
    assert narrow[0].tobytes() == other[0].tobytes()
    assert narrow[1].tobytes() == other[1].tobytes()


@pytest.mark.parametrize("padding", [1, 40])
def test_rows_past_the_last_request_see_nothing(site: Site, padding: int) -> None:
    """They hold NaN, as scratch may; the rows before them keep their bits, and stay within the bound."""
    problem = problem_of(site, MIXED)
    rows = len(problem.query)
    garbage = np.full((padding, *problem.query.shape[1:]), np.nan, problem.query.dtype)
    out, lse = site.subject.attend(replace(problem, query=np.concatenate([problem.query, garbage])))
    plain = site.subject.attend(problem)
    assert out[:rows].tobytes() == plain[0].tobytes()
    assert lse[:rows].tobytes() == plain[1].tobytes()
    assert not out[rows:].any()
    assert np.isneginf(lse[rows:]).all()
    expected = paged_bound(problem, site.subject.rounding(problem))
    assert rho(out[:rows], expected.out, expected.out_bound).max() <= 1


@pytest.mark.parametrize("rows", [0, 5])
@pytest.mark.parametrize("width", [0, 3])
def test_without_requests_every_row_is_padding(site: Site, rows: int, width: int) -> None:
    device = site.device
    query = torch.full((rows, 4, 64), float("nan"), device=device, dtype=torch.float16)
    cache = torch.full((3, 16, 2, 64), float("nan"), device=device, dtype=torch.float16)
    none = torch.zeros(0, dtype=torch.int32, device=device)
    starts = torch.zeros(1, dtype=torch.int32, device=device)
    result = paged_attention(query, cache, cache, none.view(0, width), none, cu_seqlens_q=starts, return_lse=True)
    assert isinstance(result, tuple)
    assert not result[0].any()
    assert torch.isneginf(result[1]).all()


@pytest.mark.parametrize("rows", [1, 3])
def test_length_zero_sees_nothing(site: Site, rows: int) -> None:
    """Whatever the tables hold, and with a sink too."""
    device, requests = site.device, 3
    query = torch.randn(requests * rows, 4, 64, device=device, dtype=torch.bfloat16)
    cache = torch.full((3, 16, 2, 64), float("nan"), device=device, dtype=torch.bfloat16)
    tables = torch.full((requests, 70), -1, dtype=torch.int32, device=device)
    lengths = torch.zeros(requests, dtype=torch.int32, device=device)
    starts = torch.arange(0, requests * rows + 1, rows, dtype=torch.int32, device=device)
    sinks = torch.ones(4, device=device)
    options = {"cu_seqlens_q": None if rows == 1 else starts, "sinks": sinks}
    result = paged_attention(query, cache, cache, tables, lengths, return_lse=True, **options)  # type: ignore[arg-type]  # one of each
    assert isinstance(result, tuple)
    assert not result[0].any()
    assert torch.isneginf(result[1]).all()
