"""The reference implementation: plain and complete, in Python and NumPy, written to be read.

`BlockManager` is the block manager with every operation of the specification. Read it from the bottom up: `index`
(which block holds which token path), `pool` (which blocks are used, idle, free, held), `base` (requests and
refusals), then the operations in `residency`, `growth` and `prefixes`, and `manager`, which joins them.

`paged_attention`, `write_kv`, `copy_blocks` and `gather_kv` work on the blocks' contents; `ReferenceAttention` is
them as a subject. `ContiguousReservation` is the baseline that paging is compared with.
"""

from pagedkv.reference.attention import ReferenceAttention, copy_blocks, gather_kv, paged_attention, write_kv
from pagedkv.reference.baseline import (
    ContiguousReservation,
    Usage,
    table_usage,
    waste_of_paging,
    waste_of_reservation,
)
from pagedkv.reference.manager import BlockManager
from pagedkv.reference.pool import BlockPool

__all__ = [
    "BlockManager",
    "BlockPool",
    "ContiguousReservation",
    "ReferenceAttention",
    "Usage",
    "copy_blocks",
    "gather_kv",
    "paged_attention",
    "table_usage",
    "waste_of_paging",
    "waste_of_reservation",
    "write_kv",
]
