"""What can be seen of a manager."""

import numpy as np

from pagedkv.optimized.arguments import flag, hashable
from pagedkv.optimized.core import ManagerCore
from pagedkv.optimized.footprint import Footprint, footprint_of
from pagedkv.optimized.forecast import blocks_needed
from pagedkv.optimized.invariants import check
from pagedkv.optimized.loops.memory import RESIDENT
from pagedkv.optimized.stats import Stats, stats_of
from pagedkv.spec.operations import Operation
from pagedkv.spec.subject import Lengths, Snapshot
from pagedkv.spec.words import Identity, RequestId
from collections.abc import Sequence


class Observation(ManagerCore):
    """Reading only."""

    def blocks_needed(self, operation: Operation, *, external: int = 0, read_cache: bool = True) -> int:
        """By how much `admit`, `append`, `reserve` or `resume`, given as the operation of `pagedkv.spec` of that name,
        would lower `available_blocks` if it were carried out now; it fits if there are as many. `external` as in
        `admit_external`, `read_cache` as in `admit`. 0 for other operations, which take none, whatever they name.
        Raises `Misuse` where one of the four would."""
        return blocks_needed(self._own_state(), operation, external=external, reads=flag("read_cache", read_cache))

    def stats(self) -> Stats:
        """Counts of the pool and of what has happened so far."""
        return stats_of(self._own_state())

    def footprint(self) -> Footprint:
        """Bytes of host memory, and slots of the pool that hold nothing."""
        return footprint_of(self._own_state())

    def check(self) -> None:
        """Verify every invariant, in O(blocks + tokens). Raises `InvariantBroken`, which names the law."""
        check(self._own_state())

    def snapshot(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        """Tables (of the first cache group) and lengths; of all requests also the references and the index, with full
        token paths. In values that later operations do not touch."""
        state = self._own_state()
        rows = state.rows
        chosen = (
            list(rows.row_of) if requests is None else [r for r in requests if hashable("requests", r) in rows.row_of]
        )
        tables, lengths = {}, {}
        for request in chosen:
            row = rows.row_of[request]
            resident = bool(rows.state[row] == RESIDENT)
            if resident:
                tables[request] = tuple(rows.tables[0, row, : rows.blocks[row]].tolist())
            lengths[request] = Lengths(
                int(rows.length[row]), int(rows.reserved[row]), int(rows.computed[row]), resident
            )
        if requests is not None:
            return Snapshot(tables, lengths, self.available_blocks)
        counts = state.pool.references.copy()
        counts[state.pool.leased] -= 1  # whose owner is no request
        references = {block: int(counts[block]) for block in np.flatnonzero(counts).tolist()}
        index = {}
        for block, node in state.index.entries():
            namespace, tokens = state.paths.path_of(node)
            index[block] = Identity(namespace, tuple(tokens.tolist()))
        return Snapshot(tables, lengths, self.available_blocks, references, index)
