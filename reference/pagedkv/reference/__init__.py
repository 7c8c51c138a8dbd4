"""The reference implementation: plain and complete, in Python and NumPy, written to be read.

`BlockManager` is the block manager with every operation of the specification; `ContiguousReservation` is what it is
compared with.
"""

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
    "Usage",
    "table_usage",
    "waste_of_paging",
    "waste_of_reservation",
]
