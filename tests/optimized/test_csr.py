"""Padded tables and compressed rows say the same, and either is refused where it says nothing."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.optimized.attention.csr import CompressedRows, PaddedTables, block_tables_of, csr_of
from pagedkv.spec import Misuse
from pagedkv.spec.words import ceil_div


@st.composite
def padded(draw: st.DrawFn) -> tuple[PaddedTables, int]:
    """Tables of up to five requests, and the block size; entries past a row's end are garbage."""
    size, width, count = draw(st.integers(1, 5)), draw(st.integers(0, 4)), draw(st.integers(0, 5))
    lengths = draw(st.lists(st.integers(0, width * size), min_size=count, max_size=count))
    ids = st.integers(-(2**31), 2**31 - 1)
    rows = [[draw(ids) for _ in range(width)] for _ in range(count)]
    tables = torch.tensor(rows, dtype=torch.int32).view(count, width)
    return PaddedTables(tables, torch.tensor(lengths, dtype=torch.int32)), size


@given(padded())
def test_compressed_rows_hold_each_row_and_its_length(case: tuple[PaddedTables, int]) -> None:
    tables, size = case
    csr = csr_of(*tables, size)
    assert {part.dtype for part in csr} == {torch.int32}
    assert csr.indices.numel() == tables.block_tables.numel()
    assert int(csr.indptr[0]) == 0
    for r, (begin, end) in enumerate(pairwise(csr.indptr.tolist())):
        length = int(tables.seq_lens[r])
        assert csr.indices[begin:end].tolist() == tables.block_tables[r, : ceil_div(length, size)].tolist()
        assert max(0, end - begin - 1) * size + int(csr.last_page_len[r]) == length
    assert not csr.indices[int(csr.indptr[-1]) :].any()


@given(padded(), st.integers(0, 3))
def test_there_and_back_says_the_same(case: tuple[PaddedTables, int], extra: int) -> None:
    tables, size = case
    csr = csr_of(*tables, size)
    back = block_tables_of(*csr, size)
    counts = [ceil_div(length, size) for length in tables.seq_lens.tolist()]
    assert back.block_tables.dtype == back.seq_lens.dtype == torch.int32
    assert back.block_tables.shape == (len(counts), max(counts, default=0))
    assert torch.equal(back.seq_lens, tables.seq_lens)
    for r, count in enumerate(counts):
        assert torch.equal(back.block_tables[r, :count], tables.block_tables[r, :count])
        assert not back.block_tables[r, count:].any()
    wider = block_tables_of(*csr, size, max_blocks=back.block_tables.shape[1] + extra)
    assert torch.equal(wider.block_tables[:, : back.block_tables.shape[1]], back.block_tables)
    assert not wider.block_tables[:, back.block_tables.shape[1] :].any()
    for part, again in zip(csr, csr_of(*back, size), strict=True):
        assert torch.equal(part[: len(again)], again)


@given(st.integers(-5, 20))
def test_a_request_without_blocks_is_empty_whatever_its_last_page_says(last: int) -> None:
    csr = CompressedRows(*(torch.tensor(part, dtype=torch.int32) for part in ([0, 1, 1], [7], [2, last])))
    assert block_tables_of(*csr, 4).seq_lens.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("argument", "indptr", "indices", "last", "options"),
    [
        ("indptr", [0, 2, 1], [1, 2], [1, 1], {}),
        ("indptr", [1, 2, 2], [1, 2], [1, 1], {}),
        ("indptr", [0, 1, 3], [1, 2], [1, 1], {}),
        ("last_page_len", [0, 1, 2], [1, 2], [1, 5], {}),
        ("last_page_len", [0, 1, 2], [1, 2], [0, 1], {}),
        ("last_page_len.shape", [0, 1, 2], [1, 2], [1], {}),
        ("indptr.shape", [], [1, 2], [], {}),
        ("max_blocks", [0, 2, 2], [1, 2], [1, 1], {"max_blocks": 1}),
        ("max_blocks", [0, 2, 2], [1, 2], [1, 1], {"max_blocks": -1}),
        ("block_size", [0, 2, 2], [1, 2], [1, 1], {"block_size": 0}),
    ],
)
def test_odd_rows_are_named(argument: str, indptr: Any, indices: Any, last: Any, options: dict[str, int]) -> None:
    rows = [torch.tensor(part, dtype=torch.int32) for part in (indptr, indices, last)]
    chosen: dict[str, Any] = {"block_size": 4, **options}
    with pytest.raises(Misuse) as caught:
        block_tables_of(rows[0], rows[1], rows[2], **chosen)
    assert caught.value.argument == argument


@pytest.mark.parametrize("length", [-1, 9])
def test_a_length_that_the_table_cannot_hold_is_named(length: int) -> None:
    with pytest.raises(Misuse, match="seq_lens"):
        csr_of(torch.zeros(1, 2, dtype=torch.int32), torch.tensor([length], dtype=torch.int32), 4)


def test_neither_way_looks_at_a_device() -> None:
    """On meta nothing can be looked at, and no step that needs values succeeds."""
    tables = torch.empty(3, 4, dtype=torch.int32, device="meta")
    csr = csr_of(tables, torch.empty(3, dtype=torch.int32, device="meta"), 16)
    back = block_tables_of(*csr, 16, max_blocks=4)
    assert [tuple(part.shape) for part in (*csr, *back)] == [(4,), (12,), (3,), (3, 4), (3,)]
