"""Requests between a host manager and a device pool: admission with its prefix cache there, decoding here.

Every block is owned by one of the two, which alone hands it out. The manager owns all; it *leases* some to the pool,
and *lends* it those of the requests that it sends, to be read. A request that is sent stays with the manager as it was,
and grows on the device, in blocks of the lease. When it is taken back, the blocks that only its row has go with it and
are the manager's again: full ones enter the prefix index. What other rows have too is copied first, so that a block
never has two owners. What was lent is lent until no row reads it any more, whatever became of the request meanwhile: a
fork of it on the host, of no use but that, keeps the blocks (a *loan*).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pagedkv.optimized.arguments import integer
from pagedkv.optimized.attention import BlockCopier
from pagedkv.optimized.device.pool import DevicePool
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec.words import HOLE, Block, Misuse, Ok, Outcome, Reason, Refused, RequestId


class Loan(NamedTuple):
    """The name of the fork that keeps what was lent for a request."""

    request: RequestId
    number: int


class DeviceExchange:
    """A manager and a pool over the same blocks; the pool was made with `leased=True`, and has the same window, if any.
    `caches`: all caches (num_blocks, block_size, num_kv_heads, dim), in which blocks are copied. Raises `Misuse`.

    Between `send` and `take_back` nothing else is done with a request on the host. What takes something back from the
    device (`take_back`, `return_lease`, `end_loans`) reads from it, and so waits for it; nothing else does.
    """

    def __init__(self, manager: BlockManager, pool: DevicePool, caches: Sequence[Tensor] = ()) -> None:
        ours, theirs = manager.config, pool.shape
        for name in ("num_blocks", "block_size", "sliding_window", "sink_tokens", "max_rollback"):
            if getattr(ours, name) != getattr(theirs, name):
                raise Misuse(f"pool.{name}", getattr(theirs, name), f"{getattr(ours, name)}, as the manager has")
        if ours.overlapped_steps:
            raise Misuse("overlapped_steps", True, "False: on the device everything is in order of its stream")
        self.manager, self.pool = manager, pool
        self._copy = BlockCopier(caches)
        self._rows: dict[RequestId, int] = {}
        self._loans: dict[Loan, frozenset[Block]] = {}
        self._sent = 0

    @property
    def rows(self) -> Mapping[RequestId, int]:
        """The requests that are on the device, and their rows."""
        return dict(self._rows)

    def lease(self, blocks: int) -> Outcome:
        """So many blocks more for the pool to hand out."""
        leased = self.manager.lease(blocks)
        if isinstance(leased, Refused):
            return leased
        self.pool.lease(self._numbers(leased.blocks))
        return Ok()

    def return_lease(self, blocks: int) -> int:
        """Take free blocks back from the pool: as many, or as there are. Returns how many."""
        found = [block for block in self.pool.return_lease(blocks).tolist() if block >= 0]
        self.manager.return_lease(found)
        return len(found)

    def send(self, request: RequestId, row: int) -> Outcome:
        """The request, computed to its end, goes on in this row of the pool, which is not in use. Refused if the
        manager has no room for the loan (`max_requests`), or as `unservable` if the row has none for so many blocks."""
        if request in self._rows:
            raise Misuse("request", request, "a request that is not on the device")
        self._check_row("row", row)
        self._sent += 1
        loan = Loan(request, self._sent)
        outcome = self.manager.fork(request, loan)  # or Misuse, if it is not computed to its end
        if isinstance(outcome, Refused):
            return outcome
        seen = self.manager.snapshot([loan])
        table, length = seen.tables[loan], seen.lengths[loan].length
        if len(table) > self.pool.shape.max_blocks:
            self.manager.free(loan)
            return Refused(Reason.UNSERVABLE)
        holes = table.count(HOLE)
        tables, lengths = self._numbers(table)[None], self._numbers([length])
        self.pool.import_(self._numbers([row]), tables, lengths, num_holes=self._numbers([holes]))
        self._rows[request], self._loans[loan] = row, frozenset(table) - {HOLE}
        return Ok()

    def fork(self, parent: RequestId, child: RequestId, row: int) -> Outcome:
        """The child is the parent as it is on the device now, in a row that is not in use."""
        at = self._there("parent", parent)
        self._check_row("row", row)
        outcome = self.manager.fork(parent, child)  # as the parent was when it was sent: to be taken back like it
        if isinstance(outcome, Ok):
            self.pool.fork(self._numbers([at]), self._numbers([row]))
            self._rows[child] = row
        return outcome

    def take_back(self, request: RequestId, tokens: Sequence[int]) -> Outcome:
        """The request leaves the device, and is the manager's with all its `tokens`, all computed.

        Refused if blocks that other rows have too cannot be copied for want of blocks: then nothing has changed.
        """
        row = self._there("request", request)
        exported = self.pool.export(self._numbers([row]))
        length = int(exported.seq_lens)
        if len(tokens) != length:
            raise Misuse("tokens", tokens, f"{length} tokens, as the row has positions")
        count = -(-length // self.pool.shape.block_size)
        table, along = exported.block_tables[0, :count].tolist(), exported.goes_along[0, :count].tolist()
        ours = self.manager.snapshot([request]).tables[request]
        kept = [along[i] or table[i] == HOLE or table[i] in ours[i : i + 1] for i in range(count)]
        shared = [i for i in range(count) if not kept[i]]
        leased = self.manager.lease(len(shared)) if shared else None
        if isinstance(leased, Refused):
            return leased
        pairs = list(zip((table[i] for i in shared), leased.blocks if leased else (), strict=True))
        for i, (_, copy) in zip(shared, pairs, strict=True):
            table[i] = copy
        try:
            self.manager.adopt(request, tokens, table)
        except BaseException:
            self.manager.return_lease([copy for _, copy in pairs])
            raise
        if pairs:
            self._copy(torch.tensor(pairs, dtype=torch.int32).to(self.pool.device))
        self.pool.hand_over(self._numbers([row]))
        del self._rows[request]
        self.end_loans()
        return Ok()

    def free(self, request: RequestId) -> None:
        """The request is gone, here and there, and with it what it decoded."""
        row = self._there("request", request)
        self.pool.free(self._numbers([row]))
        self.manager.free(request)
        del self._rows[request]

    def end_loans(self) -> None:
        """End the loans of which no row reads a block any more."""
        references = self.pool.references.tolist()
        ended = [loan for loan, blocks in self._loans.items() if all(references[block] == 1 for block in blocks)]
        given = frozenset[Block]().union(*(self._loans.pop(loan) for loan in ended))
        for loan in ended:
            self.manager.free(loan)
        still = frozenset[Block]().union(*self._loans.values())
        self.pool.take_back(self._numbers(sorted(given - still)))

    def _numbers(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32).to(self.pool.device, non_blocking=True)

    def _there(self, name: str, request: RequestId) -> int:
        if request not in self._rows:
            raise Misuse(name, request, "a request that was sent to the device")
        return self._rows[request]

    def _check_row(self, name: str, row: int) -> None:
        integer(name, row, 0, self.pool.shape.num_rows - 1)
        if row in self._rows.values():
            raise Misuse(name, row, "a row that no request is in")
