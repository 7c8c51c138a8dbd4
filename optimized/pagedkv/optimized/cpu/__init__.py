"""Attention over a paged cache on the processor: compiled loops that read a page once for all rows of an item.

The extra `cpu` brings numba, which compiles them. `warmup` does that before it matters; `missing` says why they cannot
run here, if they cannot. docs/cpu.md has how it works, and the files in reading order.
"""

from pagedkv.optimized.cpu.support import missing
from pagedkv.optimized.cpu.warming import warmup

__all__ = ["missing", "warmup"]
