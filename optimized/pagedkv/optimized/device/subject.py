"""The device pool as a subject of the conformance kit.

Who is in which row, and how far their KV is written, is the host's to know, here as in an engine; tables, lengths,
references and what is free are read from the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import torch
from torch import Tensor

from pagedkv.optimized.arguments import hashable, integer, token_array
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.device.checking import INVARIANTS
from pagedkv.optimized.device.outcomes import RowOutcome
from pagedkv.optimized.device.plan import PoolPlan
from pagedkv.optimized.device.pool import DevicePool
from pagedkv.spec.operations import Append, Commit, Free, Row
from pagedkv.spec.subject import Capabilities, Lengths, Snapshot
from pagedkv.spec.words import (
    Block, Config, Copy, Misuse, Namespace, Ok, Outcome, Reason, Refused, RequestId, Token, ceil_div,
)  # fmt: skip

MOST_ROWS: Final = 64
MOST_POSITIONS: Final = 512
"""Of a row, or as many as the pool has room for if that is more. A window lets requests be longer than the pool; longer
ones than this are not for this subject."""
REASONS: Final = {
    RowOutcome.RELEASED: Reason.RELEASED,
    RowOutcome.UNSERVABLE: Reason.UNSERVABLE,
    RowOutcome.CAPACITY: Reason.CAPACITY,
}


@dataclass(frozen=True)
class _Seat:
    row: int
    computed: int


class DeviceSubject:
    """A `DevicePool` on the CPU under the protocol of a block manager."""

    capabilities = Capabilities(
        fork=True, truncate=True, sliding_window=True, sink_tokens=True, permute=True, batch=True
    )

    def __init__(self, config: Config) -> None:
        for name in ("prefix_cache", "overlapped_steps", "dedup", "swap_blocks"):
            if getattr(config, name):
                raise Misuse(name, getattr(config, name), "False or 0: prefixes, swap and steps are the host's")
        self.config = config
        self.pool = self._new_pool(config.max_requests or MOST_ROWS)
        self._seats: dict[RequestId, _Seat] = {}

    def _new_pool(self, num_rows: int, *, leased: bool = False) -> DevicePool:
        config = self.config
        max_blocks = max(config.num_blocks, ceil_div(MOST_POSITIONS, config.block_size))
        return DevicePool(
            config.num_blocks, config.block_size, num_rows, max_blocks,
            sliding_window=config.sliding_window, sink_tokens=config.sink_tokens, max_rollback=config.max_rollback,
            leased=leased,
        )  # fmt: skip

    def admit(
        self, request: RequestId, tokens: Sequence[Token], namespace: Namespace = "", reserve: int | None = None
    ) -> Outcome:
        """A new request, in the first row that is not in use."""
        self._check_new("request", request)
        hashable("namespace", namespace)
        if reserve not in (None, len(token_array(tokens))):
            raise Misuse("reserve", reserve, "None: the device pool gives all positions slots at once")
        count = len(tokens)
        if (row := self._unused()) is None:
            blocks = ceil_div(count, self.config.block_size)
            return Refused(Reason.UNSERVABLE if blocks > self.config.num_blocks else Reason.MAX_REQUESTS)
        outcome = _answers(self.pool.admit(_vector([row]), _vector([count])), [0])[0]
        if isinstance(outcome, Ok):
            self._seats[request] = _Seat(row, 0)
        return outcome

    def append(self, request: RequestId, tokens: Sequence[Token]) -> Outcome:
        """Through a batch of one."""
        return self.batch([Append(request, tuple(token_array(tokens).tolist()))])[0]

    def commit(self, request: RequestId, computed: int) -> Outcome:
        """What the window has left behind is released."""
        return self.batch([Commit(request, computed)])[0]

    def fork(self, parent: RequestId, child: RequestId) -> Outcome:
        """In the first row that is not in use."""
        seat = self._seat("parent", parent)
        self._check_new("child", child)
        length = self._length(seat)
        if seat.computed != length:
            raise Misuse("parent", parent, f"a request computed to its end; {seat.computed} of {length} tokens are")
        if (row := self._unused()) is None:
            return Refused(Reason.MAX_REQUESTS)
        outcome = _outcomes(self.pool.fork(_vector([seat.row]), _vector([row])))[0]
        if isinstance(outcome, Ok):
            self._seats[child] = replace(seat, row=row)
        return outcome

    def truncate(self, request: RequestId, length: int) -> Outcome:
        """Take back the tokens at positions >= length."""
        seat = self._seat("request", request)
        length = integer("length", length, 1, self._length(seat))
        written = _vector([seat.computed])
        outcome = _outcomes(self.pool.truncate(_vector([seat.row]), _vector([length]), computed=written))[0]
        if isinstance(outcome, Ok):
            self._seats[request] = replace(seat, computed=min(seat.computed, length))
        return outcome

    def free(self, request: RequestId) -> Outcome:
        """The request is gone."""
        return self.batch([Free(request)])[0]

    def permute(self, new_block: Sequence[Block]) -> Outcome:
        """What block `b` held, block `new_block[b]` holds."""
        if sorted(new_block) != list(range(self.config.num_blocks)):
            raise Misuse("new_block", new_block, f"a permutation of 0..{self.config.num_blocks - 1}")
        self.pool.permute(_vector(new_block))
        return Ok()

    def batch(self, rows: Sequence[Row]) -> Sequence[Outcome]:
        """Rows of one kind, in order. A request that stands twice begins another call: the pool serves it once."""
        if not isinstance(rows, Sequence) or len({type(row) for row in rows}) != 1:
            raise Misuse("rows", rows, "at least one row, all append, all commit or all free")
        match rows[0]:
            case Append():
                return self._append(cast(Sequence[Append], rows))
            case Commit():
                return self._commit(cast(Sequence[Commit], rows))
            case Free():
                return self._free(cast(Sequence[Free], rows))
            case _:
                raise Misuse("rows", rows, "rows that are append, commit or free")

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        """What can be seen. Raises `AssertionError` where the pool's own invariants are broken."""
        state = self.pool.check().tolist()
        assert not any(state), [name for name, count in zip(INVARIANTS, state, strict=True) if count]
        asked = self._seats if requests is None else {r: self._seats[r] for r in requests if r in self._seats}
        tables, lengths = self.pool.block_tables.tolist(), self.pool.seq_lens.tolist()
        blocks = {r: ceil_div(lengths[seat.row], self.config.block_size) for r, seat in asked.items()}
        return Snapshot(
            tables={r: tuple(tables[seat.row][: blocks[r]]) for r, seat in asked.items()},
            lengths={r: Lengths(lengths[s.row], lengths[s.row], s.computed) for r, s in asked.items()},
            available_blocks=int(self.pool.num_free),
            references={b: n for b, n in enumerate(self.pool.references.tolist()) if n} if requests is None else None,
        )

    def copy(self) -> "DeviceSubject":
        """A subject that goes its own way from here."""
        twin = twin_of(self)
        twin.pool, twin._seats = self._loaded(), dict(self._seats)
        return twin

    def _loaded(self) -> DevicePool:
        """Another pool, into which the rows of this one are imported, and the other blocks are leased."""
        pool, new = self.pool, self._new_pool(self.pool.shape.num_rows, leased=True)
        there = pool.in_use > 0
        new.import_(None, pool.block_tables, pool.seq_lens, num_holes=pool.num_holes, where=there, owning=True)
        new.lease((pool.references == 0).nonzero()[:, 0])
        return new

    def _append(self, rows: Sequence[Append]) -> list[Outcome]:
        counts = [len(token_array(row.tokens)) for row in rows]
        seats = [self._seat("request", row.request) for row in rows]
        result: list[Outcome] = []
        for first, end in _runs([row.request for row in rows]):
            at = _vector([seat.row for seat in seats[first:end]])
            run = counts[first:end]
            ones = all(count == 1 for count in run)
            plan = self.pool.append(at) if ones else self.pool.append(at, _vector(run), total=sum(run))
            result += _answers(plan, run)
        return result

    def _commit(self, rows: Sequence[Commit]) -> list[Outcome]:
        written = dict(self._seats)
        for row in rows:
            seat = self._seat("request", row.request)
            before = written[row.request].computed
            computed = integer("computed", row.computed, before, self._length(seat))
            written[row.request] = replace(seat, computed=computed)
        self._seats = written
        seats = [written[row.request] for row in rows]
        at, computed_to = _vector([seat.row for seat in seats]), _vector([seat.computed for seat in seats])
        self.pool.release_window(at, computed=computed_to)
        return [Ok()] * len(rows)

    def _free(self, rows: Sequence[Free]) -> list[Outcome]:
        seats = [self._seat("request", row.request) for row in rows]
        if len({seat.row for seat in seats}) < len(seats):
            raise Misuse("rows", rows, "each request at most once in a batch of free")
        for row in rows:
            del self._seats[row.request]
        return _outcomes(self.pool.free(_vector([seat.row for seat in seats])))

    def _seat(self, name: str, request: RequestId) -> _Seat:
        if hashable(name, request) not in self._seats:
            raise Misuse(name, request, "the id of a known request")
        return self._seats[request]

    def _check_new(self, name: str, request: RequestId) -> None:
        if hashable(name, request) in self._seats:
            raise Misuse(name, request, "the id of no known request")

    def _unused(self) -> int | None:
        used = {seat.row for seat in self._seats.values()}
        row = next((row for row in range(self.pool.shape.num_rows) if row not in used), None)
        if row is None and self.config.max_requests is None:
            raise Misuse("max_requests", None, f"at most {MOST_ROWS}, all of which are in use")
        return row

    def _length(self, seat: _Seat) -> int:
        return int(self.pool.seq_lens[seat.row])


def _vector(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _runs(requests: Sequence[RequestId]) -> list[tuple[int, int]]:
    """Where to cut a batch so that none of its parts names a request twice: (first, end) of each."""
    cuts, seen = [0], set[RequestId]()
    for i, request in enumerate(requests):
        if request in seen:
            cuts.append(i)
            seen.clear()
        seen.add(request)
    return list(zip(cuts, [*cuts[1:], len(requests)], strict=True))


def _outcomes(outcome: Tensor) -> list[Outcome]:
    if RowOutcome.TABLE_FULL in outcome.tolist():
        raise Misuse("tokens", RowOutcome.TABLE_FULL.name, f"requests of at most {MOST_POSITIONS} positions here")
    return [Ok() if code == RowOutcome.OK else Refused(REASONS[RowOutcome(code)]) for code in outcome.tolist()]


def _answers(plan: PoolPlan, counts: Sequence[int]) -> list[Outcome]:
    """The plan, row by row; counts[i] slots belong to row i."""
    slots, result, end = plan.slot_mapping.tolist(), list[Outcome](), 0
    for outcome, count, (source, destination) in zip(
        _outcomes(plan.outcome), counts, plan.copies.tolist(), strict=True
    ):
        own, end = tuple(slots[end : end + count]), end + count
        copies = (Copy(source, destination),) if source >= 0 else ()
        result.append(Ok(slots=own, copies=copies) if isinstance(outcome, Ok) else outcome)
    return result
