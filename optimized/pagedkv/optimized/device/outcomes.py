"""What an operation of the device pool says of each row, and where it counts it."""

from enum import IntEnum
from typing import Final


class RowOutcome(IntEnum):
    """The answer for one row, int32 on the device: to be read later, or never.

    A row that is not `OK` is as it was. Where several hold, the first in this order is given.
    """

    OK = 0
    SKIPPED = 1
    """The row is < 0 or its `where` is False: padding, or a request that has ended. Of rows=None, also a row that is
    not in use."""
    DUPLICATE = 2
    """The row stands earlier in this call, and is not skipped there."""
    WRONG_ROW = 3
    """The row is past the end of the pool, or it is not in use; for `admit` and the child of a fork: it is in use."""
    BAD_LENGTH = 4
    """A count or length < 0 or past 2**30; one that, with those before it, is past `total`; for `truncate` one past
    the end."""
    RELEASED = 5
    """A truncate would bring back positions that the sliding window has released."""
    UNSERVABLE = 6
    """The row would hold more blocks than there are: it never fits."""
    TABLE_FULL = 7
    """The row's table has no room for so many blocks, of which those that a window has released are some."""
    CAPACITY = 8
    """More blocks are needed than are free."""
    BAD_TABLE = 9
    """Of `import_`: a block that there is not, or that the pool has already; or more holes than there can be."""


NUM_FREE: Final = 0
"""Of the counters (int64): how many blocks are on the free list."""
COUNTED: Final = 1
"""Of the counters: here and behind it, how often each outcome was given."""
NUM_COUNTERS: Final = COUNTED + len(RowOutcome)
