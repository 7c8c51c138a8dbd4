"""Prefetching what is needed next, while something else is computed.

Memory serves only so many requests at a time, and one too many waits. So prefetches are spread: whatever takes time
calls for a row or two now and then.
"""

from typing import Any, Final, NamedTuple

from pagedkv.optimized.cpu.compiler import inlined
from pagedkv.optimized.cpu.simd import load_int64, prefetch

LINE: Final = 64
"""Bytes that memory is read by."""


class Prefetch(NamedTuple):
    """Rows that are to be prefetched."""

    next: int
    end: int
    """Where their addresses lie, int64."""
    size: int
    """Bytes of a row."""
    pace: int
    """Rows in one go."""


@inlined
def prefetch_some(ahead: Any) -> Any:
    """The next few rows; returns what is left."""
    stop = min(ahead.next + 8 * ahead.pace, ahead.end)
    for place in range(ahead.next, stop, 8):
        row = load_int64(place)
        for line in range(row & -LINE, row + ahead.size, LINE):
            prefetch(line)
    return Prefetch(stop, ahead.end, ahead.size, ahead.pace)
