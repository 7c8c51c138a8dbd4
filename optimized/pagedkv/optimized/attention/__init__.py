"""Attention over a paged KV cache, and what goes with it: write, copy, gather, merge.

The backend follows the device of the tensors (`triton` on a GPU, `torch` on the CPU) or is named; it is never changed
silently. Semantics, odd cases and the order of masks are those of `pagedkv.spec.attention`. (Kwon et al., SOSP 2023,
§4.1 and §5.1; split along the keys: Dao et al., "Flash-Decoding", 2023.)
"""

from pagedkv.optimized.attention.attend import SPLIT_SIZE, paged_attention
from pagedkv.optimized.attention.backends import Backend, BackendName, backend_for
from pagedkv.optimized.attention.merging import merge_attention
from pagedkv.optimized.attention.moves import copy_blocks, gather_kv, write_kv

__all__ = [
    "SPLIT_SIZE", "Backend", "BackendName", "backend_for", "copy_blocks", "gather_kv", "merge_attention",
    "paged_attention", "write_kv",
]  # fmt: skip
