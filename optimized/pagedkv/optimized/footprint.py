"""What a manager itself costs, and what the blocks cost that hold less than they could."""

import sys
from dataclasses import dataclass

from pagedkv.optimized.state import ManagerState
from pagedkv.optimized.stats import written_slots


@dataclass(frozen=True)
class Footprint:
    """Host memory in bytes, as allocated: pages that were never written are not resident, and count here all the
    same. And slots of the pool."""

    tables_bytes: int
    """Block tables, and the copies that plans hand out."""
    tokens_bytes: int
    """Tokens of the requests."""
    index_bytes: int
    """Paths, entries, and what finds them."""
    bookkeeping_bytes: int
    """The rest: numbers of the requests, references, free list, queues, swap space."""
    empty_slots: int
    """Slots of used blocks that hold no computed KV: the rest of last blocks, and what is reserved ahead."""

    @property
    def total_bytes(self) -> int:
        """All host memory."""
        return self.tables_bytes + self.tokens_bytes + self.index_bytes + self.bookkeeping_bytes


def footprint_of(state: ManagerState) -> Footprint:
    """Add it all up."""
    rows, used_slots = state.rows, state.pool.used * state.config.block_size
    tables, tokens = rows.tables.nbytes + state.buffers.num_bytes, rows.tokens.nbytes
    everything = sum(_bytes_of(part) for part in (state, rows, *state.pool.parts()))
    return Footprint(
        tables_bytes=tables,
        tokens_bytes=tokens,
        index_bytes=_bytes_of(state.paths) + _bytes_of(state.index),
        bookkeeping_bytes=everything - rows.tables.nbytes - tokens,
        empty_slots=used_slots - written_slots(state),
    )


def _bytes_of(part: object) -> int:
    """The arrays, lists and dictionaries that hang on a part, each once; views count with what they look at."""
    held = {id(value): value for value in vars(part).values()}
    containers = [v for v in held.values() if isinstance(v, (list, dict))]
    arrays = {id(v): v for v in held.values() if hasattr(v, "nbytes") and v.base is None}
    owners = {id(v.base): v.base for v in held.values() if hasattr(v, "nbytes") and v.base is not None}
    return sum(int(a.nbytes) for a in {**arrays, **owners}.values()) + sum(map(sys.getsizeof, containers))
