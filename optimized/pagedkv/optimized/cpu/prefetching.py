"""Asking memory for what is needed next, while something else is computed.

Memory answers only so many questions at a time, and a question too many waits. So they are asked evenly: whatever takes
time asks for a row or two now and then.
"""

from typing import Any, Final, NamedTuple

from pagedkv.optimized.cpu.compiler import inlined
from pagedkv.optimized.cpu.simd import load_int64, prefetch

LINE: Final = 64
"""Bytes that memory is read by."""


class Prefetch(NamedTuple):
    """Rows to be asked for."""

    next: int
    end: int
    """Where their addresses lie, int64."""
    size: int
    """Bytes of a row."""
    pace: int
    """Rows in one go."""


@inlined
def prefetch_some(ahead: Any) -> Any:
    """Ask for the next few rows; returns what is left."""
    stop = min(ahead.next + 8 * ahead.pace, ahead.end)
    for place in range(ahead.next, stop, 8):
        row = load_int64(place)
        for line in range(row & -LINE, row + ahead.size, LINE):
            prefetch(line)
    return Prefetch(stop, ahead.end, ahead.size, ahead.pace)
