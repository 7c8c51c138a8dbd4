"""Attention over a paged cache on the processor: compiled loops that read each page once, nearly as fast
as memory gives it.

The extra `cpu` brings numba, which compiles them. `warmup` does that before it matters.
"""

from pagedkv.optimized.cpu.support import missing
from pagedkv.optimized.cpu.warming import warmup

__all__ = ["missing", "warmup"]
