"""The optimized manager as a subject of the conformance kit."""

from collections.abc import Sequence
from typing import cast

import numpy as np

from pagedkv.optimized.arguments import integer, token_array
from pagedkv.optimized.loops.arrays import MAX_INT32
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.plan import StepPlan
from pagedkv.spec.operations import Append, Commit, Free, Reserve, Row
from pagedkv.spec.subject import Capabilities, Snapshot
from pagedkv.spec.words import Config, Copy, Misuse, Ok, Outcome, Refused, RequestId


class OptimizedSubject(BlockManager):
    """A `BlockManager` that shows what it knows, and whose `batch` goes through the batch operations."""

    capabilities = Capabilities(
        fork=True, truncate=True, reserve=True, prefix_cache=True, lookup=True, pins=True, evict=True,
        reports_index=True, publish="commit", dedup=False, preempt=True, swap=True, sliding_window=True,
        sink_tokens=True, overlapped_steps=True, permute=True, batch=True, policy="lru",
    )  # fmt: skip

    def __init__(self, config: Config) -> None:
        if not isinstance(config, Config):
            raise Misuse("config", config, "a Config")
        if config.publish != "commit":
            raise Misuse("publish", config.publish, "'commit': a block is found once its KV is written")
        if config.dedup:
            raise Misuse("dedup", config.dedup, "False: a request keeps the blocks that it computed")
        super().__init__(
            config.num_blocks,
            config.block_size,
            prefix_cache=config.prefix_cache,
            sliding_window=config.sliding_window,
            sink_tokens=config.sink_tokens,
            max_rollback=config.max_rollback,
            swap_blocks=config.swap_blocks,
            max_requests=config.max_requests,
            overlapped_steps=config.overlapped_steps,
            hash_seed=b"conformance",  # a trace replays alike in every process
        )

    def batch(self, rows: Sequence[Row]) -> Sequence[Outcome]:
        """Rows of one kind, in order, through the batch operation of that kind."""
        if not isinstance(rows, Sequence) or len({type(row) for row in rows}) != 1:
            raise Misuse("rows", rows, "at least one row, all append, all reserve, all commit or all free")
        match rows[0]:
            case Append():
                return self._append_all(cast(Sequence[Append], rows))
            case Reserve():
                return self._reserve_all(cast(Sequence[Reserve], rows))
            case Commit():
                commits = cast(Sequence[Commit], rows)
                self.commit_batch([c.request for c in commits], [c.computed for c in commits])
            case Free():
                self.free_batch([row.request for row in cast(Sequence[Free], rows)])
            case _:
                raise Misuse("rows", rows, "rows that are append, reserve, commit or free")
        return [Ok()] * len(rows)

    def _append_all(self, rows: Sequence[Append]) -> Sequence[Outcome]:
        spans = [token_array(row.tokens) for row in rows]
        counts = None if all(len(span) == 1 for span in spans) else [len(span) for span in spans]  # as an engine would
        return outcomes(self.append_batch([row.request for row in rows], np.concatenate(spans), counts))

    def _reserve_all(self, rows: Sequence[Reserve]) -> Sequence[Outcome]:
        """A length may be any integer; from 2**31 on all are refused alike."""
        lengths = [min(integer("length", row.length, 1), MAX_INT32 + 1) for row in rows]
        return outcomes(self.reserve_batch([row.request for row in rows], lengths))

    def copy(self) -> "OptimizedSubject":
        """A manager that goes its own way from here."""
        twin = twin_of(self)
        twin._state = self._state.copy()
        return twin

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        """What a snapshot shows."""
        return self.snapshot(requests)


def outcomes(plan: StepPlan) -> list[Outcome]:
    """The plan, row by row, as the scalar operations would have said it."""
    refused = dict(zip(plan.refused.tolist(), plan.reasons, strict=True))
    ends = np.cumsum(plan.slot_counts)
    result: list[Outcome] = []
    for i, (end, count) in enumerate(zip(ends.tolist(), plan.slot_counts.tolist(), strict=True)):
        if i in refused:
            result.append(Refused(refused[i]))
            continue
        copies = tuple(Copy(*pair) for pair in plan.copies[plan.copy_rows == i].tolist())
        result.append(Ok(slots=tuple(plan.slot_mapping[end - count : end].tolist()), copies=copies))
    return result
