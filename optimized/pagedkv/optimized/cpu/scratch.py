"""Where a thread has what it works with, one part behind the other."""

from typing import Any, NamedTuple

from pagedkv.optimized.cpu.compiler import compiled
from pagedkv.optimized.cpu.prefetching import LINE
from pagedkv.optimized.cpu.products import round_up, whole_columns
from pagedkv.optimized.cpu.records import record_size
from pagedkv.optimized.cpu.work import TILE


class Scratch(NamedTuple):
    """Addresses. Lines of pairs have half as many numbers, or there are half as many lines."""

    keys: int
    """One tile, transposed: `whole_columns(head_dim)` lines of `TILE`, of which `head_dim` count."""
    values: int
    """`TILE` lines of `whole_columns(value_dim)`."""
    scores: int
    """A line of `TILE` for each row of a head: its scores, then its weights."""
    queries: int
    """`whole_columns(head_dim)` for each row of each head."""
    records: int
    """One for each row of each head."""
    factors: int
    """What each row's sums are multiplied by."""
    places: int
    """Addresses, int64, of a tile's keys, then of its values; then the same of the next tile."""
    ranges: int
    """Of each row of a head the first position that it sees, the one behind the last, and its own, int64."""
    coming: int
    """Addresses, int64, of rows that are to be prefetched: `TILE` of keys, then of values."""


@compiled
def scratch_at(work: Any, place: int) -> Scratch:
    """From `place` on."""
    lines, columns, rows = whole_columns(work.head_dim), whole_columns(work.value_dim), work.rows
    values = place + 4 * TILE * lines
    scores = values + 4 * TILE * columns
    queries = scores + 4 * TILE * rows
    records = queries + 4 * lines * rows
    factors = records + record_size(work.value_dim) * rows
    places = factors + 4 * rows
    ranges = places + 8 * 4 * TILE
    return Scratch(place, values, scores, queries, records, factors, places, ranges, ranges + 8 * 3 * rows)


@compiled
def scratch_size(work: Any) -> int:
    """Bytes for one thread, in whole cache lines."""
    return round_up(scratch_at(work, 0).coming + 8 * 2 * TILE, LINE)
