"""Attention over a paged KV cache, and what goes with it: write, copy, gather, swap, merge.

The backend follows the device of the tensors (`triton` on a GPU, `numba` on the CPU, and `torch` where that is not
installed, which is said once) or is named. Semantics, odd cases and the order of masks are those of
`pagedkv.spec.attention`. (Kwon et al., SOSP 2023, §4.1 and §5.1; split along the keys: Dao et al., "Flash-Decoding",
2023.)
"""

from pagedkv.optimized.attention import ops  # registers torch.ops.pagedkv
from pagedkv.optimized.attention.adapters import flash_attn_varlen_func, flash_attn_with_kvcache
from pagedkv.optimized.attention.attend import SPLIT_SIZE, SplitSize, paged_attention, workspace_size
from pagedkv.optimized.attention.backends import Backend, BackendName, backend_for
from pagedkv.optimized.attention.csr import CompressedRows, PaddedTables, block_tables_of, csr_of
from pagedkv.optimized.attention.gathering import gather_kv
from pagedkv.optimized.attention.merging import merge_attention
from pagedkv.optimized.attention.moves import BlockCopier, copy_blocks, write_kv
from pagedkv.optimized.attention.prepared import PreparedAttention, prepare_attention
from pagedkv.optimized.attention.swapping import SwapSpace, Transfer

__all__ = [
    "SPLIT_SIZE",
    "Backend",
    "BackendName",
    "BlockCopier",
    "CompressedRows",
    "PaddedTables",
    "PreparedAttention",
    "SplitSize",
    "SwapSpace",
    "Transfer",
    "backend_for",
    "block_tables_of",
    "copy_blocks",
    "csr_of",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "gather_kv",
    "merge_attention",
    "ops",
    "paged_attention",
    "prepare_attention",
    "workspace_size",
    "write_kv",
]  # fmt: skip
