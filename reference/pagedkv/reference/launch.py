"""One launch of attention, checked: what the loops of `attention` may rely on.

Everything that can be wrong with arguments is found here, before anything is computed. Block ids are checked when they
are read, for entries that no row sees may hold anything.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pagedkv.spec.words import Misuse, ceil_div

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Launch:
    """The arguments of `paged_attention`, which documents them."""

    query: Array
    key_cache: Array
    value_cache: Array
    block_tables: Array
    seq_lens: Array
    query_lens: Array
    scale: float
    causal: bool
    window: int | None
    softcap: float
    alibi_slopes: Array | None
    sinks: Array | None

    def __post_init__(self) -> None:
        self._check_arrays()
        self._check_lengths()
        if not np.isfinite(self.scale):
            raise Misuse("scale", self.scale, "a finite number")
        if self.window is not None and self.window < 1:
            raise Misuse("window", self.window, "an integer >= 1, or None for all positions")
        if not 0 <= self.softcap < np.inf:
            raise Misuse("softcap", self.softcap, "a finite number >= 0; 0 caps nothing")
        for name in ("alibi_slopes", "sinks"):
            each = getattr(self, name)
            if each is not None and np.shape(each) != (self.query.shape[1],):
                raise Misuse(f"{name}.shape", np.shape(each), f"({self.query.shape[1]},), one a query head, or None")

    def _check_arrays(self) -> None:
        for name, rank in (("query", 3), ("key_cache", 4), ("value_cache", 4)):
            array = getattr(self, name)
            if array.ndim != rank:
                raise Misuse(f"{name}.shape", array.shape, f"{rank} dimensions")
            if array.dtype not in (np.float32, np.float16):
                raise Misuse(f"{name}.dtype", str(array.dtype), "float32 (bfloat16 travels in it) or float16")
        if self.value_cache.shape[:3] != self.key_cache.shape[:3] or 0 in self.key_cache.shape[1:]:
            raise Misuse("value_cache.shape", self.value_cache.shape, f"({self.key_cache.shape[:3]}, any), none 0")
        heads, dim = self.key_cache.shape[2:]
        if self.query.shape[2] != dim:
            raise Misuse("query.shape", self.query.shape, f"a last dimension of {dim}, that of the keys")
        if self.query.shape[1] == 0 or self.query.shape[1] % heads:
            raise Misuse("query.shape", self.query.shape, f"a number of heads that is a multiple of {heads}")

    def _check_lengths(self) -> None:
        if self.block_tables.ndim != 2:
            raise Misuse("block_tables.shape", self.block_tables.shape, "2 dimensions")
        for name in ("block_tables", "seq_lens", "query_lens"):
            array = getattr(self, name)
            if not np.issubdtype(array.dtype, np.integer):
                raise Misuse(f"{name}.dtype", str(array.dtype), "integers")
            if len(array) != len(self.seq_lens):
                raise Misuse(f"{name}.shape", array.shape, f"{len(self.seq_lens)} requests, as in seq_lens")
        most = self.block_tables.shape[1] * self.block_size
        for name, limit in (("seq_lens", most), ("query_lens", len(self.query))):
            lengths = getattr(self, name).tolist()
            if not all(0 <= length <= limit for length in lengths):
                raise Misuse(name, lengths, f"lengths in 0..{limit}")
        if sum(self.query_lens.tolist()) > len(self.query):
            raise Misuse(
                "query_lens", self.query_lens.tolist(), f"in total at most {len(self.query)}, the rows of query"
            )

    @property
    def block_size(self) -> int:
        return int(self.key_cache.shape[1])

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """(row of the query, its request, its position), row by row."""
        row = 0
        for request, (length, count) in enumerate(zip(self.seq_lens.tolist(), self.query_lens.tolist(), strict=True)):
            for index in range(count):
                yield row, request, length - count + index
                row += 1

    def span(self, request: int, position: int) -> tuple[int, int]:
        """First and end of the positions that a row sees; it sees nothing where first >= end."""
        length = int(self.seq_lens[request])
        end = min(length, position + 1) if self.causal else length
        if self.window is None:
            return 0, end
        return max(0, position - self.window + 1), min(end, position + self.window)

    def block(self, request: int, logical: int) -> int:
        """The block at an index of a request's table. `logical` must lie below ceil(seq_len / block_size)."""
        assert logical < ceil_div(int(self.seq_lens[request]), self.block_size)
        block = int(self.block_tables[request, logical])
        if not 0 <= block < len(self.key_cache):
            raise Misuse(f"block_tables[{request}, {logical}]", block, f"a block in 0..{len(self.key_cache) - 1}")
        return block
