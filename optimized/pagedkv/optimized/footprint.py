"""What a manager itself costs, and what the blocks cost that hold less than they could."""

import sys
from dataclasses import dataclass

import numpy as np

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
    """The rest: numbers of the requests, references, chains of blocks, log, swap space."""
    empty_slots: int
    """Slots of used blocks that hold no computed KV: the rest of last blocks, and what is reserved ahead."""

    @property
    def total_bytes(self) -> int:
        """All host memory."""
        return self.tables_bytes + self.tokens_bytes + self.index_bytes + self.bookkeeping_bytes


def footprint_of(state: ManagerState) -> Footprint:
    """Add it all up."""
    memory, used_slots = state.journal.memory, state.pool.used * state.config.block_size
    arrays = {name: array.nbytes for name, array in memory._asdict().items()}
    tables, tokens = arrays.pop("tables"), arrays.pop("tokens")
    index = sum(arrays.pop(name) for name in ("links", "spelled"))
    return Footprint(
        tables_bytes=tables + state.buffers.num_bytes,
        tokens_bytes=tokens,
        index_bytes=index + _bytes_of(state.paths),
        bookkeeping_bytes=sum(arrays.values()) + sum(map(_bytes_of, (state, state.rows, state.pool))),
        empty_slots=used_slots - written_slots(state),
    )


def _bytes_of(part: object) -> int:
    """The arrays, lists and dictionaries that hang on a part."""
    values = vars(part).values()
    arrays = sum(value.nbytes for value in values if isinstance(value, np.ndarray))
    return arrays + sum(sys.getsizeof(value) for value in values if isinstance(value, (list, dict)))
