"""Padded block tables to compressed rows and back: the two ways in which kernels are told where KV lies.

FlashInfer's form: the blocks of request r are indices[indptr[r] : indptr[r + 1]], and the last of them holds
last_page_len[r] positions. (Ye et al., MLSys 2025, §3.1; its documentation of the KV layout.)
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import check_integer, check_integers, check_tensors, require
from pagedkv.optimized.attention.tracing import is_traced


class CompressedRows(NamedTuple):
    """Block tables one after the other; int32."""

    indptr: Tensor
    """(num_requests + 1,)."""
    indices: Tensor
    """Block ids; what lies past indptr[-1] means nothing."""
    last_page_len: Tensor
    """(num_requests,), positions in the last block; 0 for a request of no positions."""


class PaddedTables(NamedTuple):
    """Block tables as `paged_attention` takes them; int32."""

    block_tables: Tensor
    """(num_requests, max_blocks)."""
    seq_lens: Tensor
    """(num_requests,)."""


def csr_of(block_tables: Tensor, seq_lens: Tensor, block_size: int) -> CompressedRows:
    """Compressed rows of padded tables (num_requests, max_blocks) int32 and lengths (num_requests,) int32.

    `indices` is as long as the table has entries, (num_requests * max_blocks,), so that no device is waited for; its
    end is 0. Lengths fit their tables: on the CPU that is checked, elsewhere nobody looks. Raises `Misuse`.
    """
    check_integer("block_size", block_size, 1, "an integer >= 1")
    check_tensors(block_tables=block_tables)
    require(block_tables.dim() == 2, "block_tables.shape", tuple(block_tables.shape), "(num_requests, max_blocks)")
    num_requests, width = block_tables.shape
    check_integers("block_tables", block_tables, (num_requests, width), block_tables.device)
    check_integers("seq_lens", seq_lens, (num_requests,), block_tables.device)
    if can_be_read(seq_lens):
        fit = bool(((seq_lens >= 0) & (seq_lens <= width * block_size)).all())
        require(fit, "seq_lens", seq_lens.tolist(), f"0..{width * block_size}, what block_tables hold")
    counts = (seq_lens + (block_size - 1)) // block_size
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0, dtype=torch.int32)])
    column = torch.arange(width, device=counts.device)
    beyond = num_requests * width  # where entries past the end of a row go
    target = torch.where(column < counts[:, None], indptr[:-1, None] + column, beyond)
    indices = block_tables.new_zeros(beyond + 1).scatter_(0, target.flatten(), block_tables.flatten())
    return CompressedRows(indptr, indices[:beyond], seq_lens - (counts - 1).clamp(min=0) * block_size)


def block_tables_of(
    indptr: Tensor, indices: Tensor, last_page_len: Tensor, block_size: int, *, max_blocks: int | None = None
) -> PaddedTables:
    """Padded tables and lengths of compressed rows: `indptr` (num_requests + 1,), `indices` (at least indptr[-1],),
    `last_page_len` (num_requests,), all int32.

    A request whose indptr does not grow has no positions, whatever its last_page_len. `max_blocks`: the width of the
    table, no less than the longest row; without it the longest row is asked for, which waits for a GPU. Entries past
    the end of a row are 0. That rows are ordered and full is checked on the CPU, elsewhere nobody looks. Raises
    `Misuse`.
    """
    check_integer("block_size", block_size, 1, "an integer >= 1")
    check_tensors(indptr=indptr, indices=indices, last_page_len=last_page_len)
    for name, tensor in (("indptr", indptr), ("indices", indices)):
        require(tensor.dim() == 1, f"{name}.shape", tuple(tensor.shape), "one dimension")
        check_integers(name, tensor, tuple(tensor.shape), last_page_len.device)
    require(len(indptr) > 0, "indptr.shape", tuple(indptr.shape), "(num_requests + 1,)")
    check_integers("last_page_len", last_page_len, (len(indptr) - 1,), indptr.device)
    counts = indptr.diff()
    if max_blocks is None:
        max_blocks = int(counts.max()) if len(counts) else 0
    check_integer("max_blocks", max_blocks, 0, "an integer >= 0")
    if can_be_read(indptr):
        _check_rows(indptr, counts, len(indices), max_blocks)
        fit = bool(((counts == 0) | ((last_page_len >= 1) & (last_page_len <= block_size))).all())
        require(fit, "last_page_len", last_page_len.tolist(), f"1..{block_size} for requests that have blocks")
    column = torch.arange(max_blocks, device=counts.device)
    source = torch.where(column < counts[:, None], indptr[:-1, None] + column, len(indices))
    block_tables = torch.cat([indices, indices.new_zeros(1)])[source]  # what is absent reads the 0 at the end
    seq_lens = torch.where(counts > 0, (counts - 1) * block_size + last_page_len, 0)
    return PaddedTables(block_tables, seq_lens)


def can_be_read(tensor: Tensor) -> bool:
    """Whether looking at its values costs no waiting, and there are values."""
    return tensor.device.type == "cpu" and not is_traced(tensor)


def _check_rows(indptr: Tensor, counts: Tensor, num_indices: int, max_blocks: int) -> None:
    """Rows begin at 0, follow each other, and lie within the indices and the table."""
    ordered = int(indptr[0]) == 0 and bool((counts >= 0).all()) and int(indptr[-1]) <= num_indices
    require(ordered, "indptr", indptr.tolist(), f"from 0 to at most {num_indices}, never falling")
    longest = int(counts.max()) if len(counts) else 0
    require(longest <= max_blocks, "max_blocks", max_blocks, f"at least {longest}, the longest row")
