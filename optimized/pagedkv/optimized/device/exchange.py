"""Requests between a host manager and a device pool: admission with its prefix cache there, decoding here.

Every block is owned by one of the two, which alone hands it out. The manager owns all; it *leases* some to the pool,
and *lends* it those of the requests that it sends, to be read. A request that is sent stays with the manager as it was,
and grows on the device, in blocks of the lease. When it is taken back, the blocks that only its row has go with it and
are the manager's again: full ones enter the prefix index. What other rows have too is copied first, so that a block
never has two owners. What was lent is lent until no row reads it any more, whatever became of the request meanwhile: a
fork of it on the host, of no use but that, keeps the blocks (a *loan*).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pagedkv.optimized.arguments import integer
from pagedkv.optimized.attention import BlockCopier
from pagedkv.optimized.device.outcomes import RowOutcome
from pagedkv.optimized.device.pool import DevicePool
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec.words import HOLE, Block, Misuse, Ok, Outcome, Reason, Refused, RequestId, ceil_div


@dataclass(frozen=True)
class Loan:
    """The name of the fork that keeps what was lent for a request: equal to no name of anybody else's."""

    request: RequestId
    number: int


class DeviceExchange:
    """A manager and a pool over the same blocks. The pool was made with `leased=True`, and has the same window, if any;
    nobody else leases from the manager to it, or admits, forks, frees or relabels in it. `caches`: all caches
    (num_blocks, block_size, num_kv_heads, dim), in which blocks are copied. Raises `Misuse`.

    Between `send` and `take_back` nothing else is done with a request on the host, and its row is not freed on the
    device: leave it out of the steps by `where` once it has ended. All is in order of the current stream. What reads
    from the device waits for it: `send`, `fork`, `take_back`, `return_lease` and `end_loans`.
    """

    def __init__(self, manager: BlockManager, pool: DevicePool, caches: Sequence[Tensor]) -> None:
        ours, theirs = manager.config, pool.shape
        if len(manager.groups) > 1:
            raise Misuse("manager.groups", manager.groups, "one cache group, as the pool has one table for a row")
        wanted = {name: getattr(ours, name) for name in ("num_blocks", "block_size", "max_rollback")}
        for name, value in (wanted | vars(manager.groups[0])).items():
            if getattr(theirs, name) != value:
                raise Misuse(f"pool.{name}", getattr(theirs, name), f"{value}, as the manager has")
        if not theirs.leased:
            raise Misuse("pool.leased", False, "True: the manager owns all blocks, and leases some")
        if ours.overlapped_steps:
            raise Misuse("overlapped_steps", True, "False: on the device everything is in order of its stream")
        for i, cache in enumerate(caches):
            form = (theirs.num_blocks, theirs.block_size)
            if tuple(cache.shape[:2]) != form or cache.device != pool.device:
                raise Misuse(f"caches[{i}]", (tuple(cache.shape), cache.device), f"{form} first, on {pool.device}")
        self.manager, self.pool, self.caches = manager, pool, tuple(caches)
        self._copy = BlockCopier(caches)
        self._rows: dict[RequestId, int] = {}
        self._loans: dict[Loan, frozenset[Block]] = {}
        self._sent = 0
        self._in_hand: list[Block] = []
        """Leased by the manager, and not the pool's yet or any more; empty unless something failed in between."""
        self._leaving: set[RequestId] = set()
        """Adopted by the manager, and still in the pool; empty likewise."""
        self._to_end: set[Block] = set()
        """In no loan any more, and lent to the pool as yet; empty likewise."""

    @property
    def rows(self) -> Mapping[RequestId, int]:
        """The requests that are on the device, and their rows."""
        return dict(self._rows)

    def lease(self, blocks: int) -> Outcome:
        """So many blocks more for the pool to hand out. Refused as `BlockManager.lease` is."""
        leased = self.manager.lease(blocks)
        if isinstance(leased, Refused):
            return leased
        self._in_hand += leased.blocks
        self.pool.lease(self._numbers(self._in_hand))
        self._in_hand = []
        return Ok()

    def return_lease(self, blocks: int) -> int:
        """Take free blocks back from the pool: as many, or as there are. Returns how many."""
        count = min(integer("blocks", blocks, 0), self.pool.shape.num_blocks)
        self._in_hand += [block for block in self.pool.return_lease(count).tolist() if block >= 0]
        self.manager.return_lease(self._in_hand)
        returned, self._in_hand = len(self._in_hand), []
        return returned

    def send(self, request: RequestId, row: int) -> Outcome:
        """The request, computed to its end, goes on in this row of the pool, which is not in use. Refused if the
        manager has no room for the loan (`max_requests`), or as `unservable` if the row has none for so many blocks."""
        if request in self._rows:
            raise Misuse("request", request, "a request that is not on the device")
        self._check_row(row)
        loan = Loan(request, self._sent)
        outcome = self.manager.fork(request, loan)  # or Misuse, if it is not computed to its end
        if isinstance(outcome, Refused):
            return outcome
        try:
            seen = self.manager.snapshot([loan])
            table, length = seen.tables[loan], seen.lengths[loan].length
            if len(table) > self.pool.shape.max_blocks:
                self.manager.free(loan)
                return Refused(Reason.UNSERVABLE)
            tables, numbers = self._numbers(table)[None], self._numbers([row, length, table.count(HOLE)])
            found = self.pool.import_(numbers[:1], tables, numbers[1:2], num_holes=numbers[2:])
            self._check_found("row", row, found)
        except BaseException:
            self.manager.free(loan)
            raise
        self._sent += 1
        self._rows[request], self._loans[loan] = row, frozenset(table) - {HOLE}
        return Ok()

    def fork(self, parent: RequestId, child: RequestId, row: int) -> Outcome:
        """The child is the parent as it is on the device now, in a row that is not in use."""
        at = self._there("parent", parent)
        self._check_row(row)
        outcome = self.manager.fork(parent, child)  # as the parent was when it was sent: to be taken back like it
        if isinstance(outcome, Refused):
            return outcome
        try:
            self._check_found("row", row, self.pool.fork(self._numbers([at]), self._numbers([row])))
        except BaseException:
            self.manager.free(child)
            raise
        self._rows[child] = row
        return outcome

    def take_back(self, request: RequestId, tokens: Sequence[int]) -> Outcome:
        """The request leaves the device, and is the manager's with all its `tokens`, all computed.

        Refused if blocks that other rows have too cannot be copied for want of blocks: then nothing has changed. Raises
        `Misuse` for other tokens than the row has positions, and if the row was freed, or cut to less than was sent:
        `free` the request then.
        """
        row = self._there("request", request)
        if request not in self._leaving:
            outcome = self._adopt(request, row, tokens)
            if isinstance(outcome, Refused):
                return outcome
        self._leave(request, row)
        self.end_loans()
        return Ok()

    def free(self, request: RequestId) -> None:
        """The request is gone, here and there, and with it what it decoded. Until `end_loans`, its blocks are lent."""
        row = self._there("request", request)
        if request in self._leaving:
            self._leave(request, row)
        else:
            self.pool.free(self._numbers([row]))
            del self._rows[request]
        if request in self.manager.snapshot([request]).lengths:
            self.manager.free(request)

    def end_loans(self) -> None:
        """End the loans that are of no use any more: each of their blocks is read by no row, or is in another loan."""
        references = self.pool.references.tolist()
        lent = Counter(block for blocks in self._loans.values() for block in blocks)
        self._to_end |= set(lent)
        for loan, blocks in list(self._loans.items()):
            if all(references[block] == 1 or lent[block] > 1 for block in blocks):
                if loan in self.manager.snapshot([loan]).lengths:
                    self.manager.free(loan)
                del self._loans[loan]
                lent.subtract(blocks)
        self._to_end -= {block for block in self._to_end if lent[block]}
        if self._to_end:
            self.pool.end_loan(self._numbers(sorted(self._to_end)))
            self._to_end = set()

    def permute(self, new_block: Sequence[Block]) -> None:
        """Relabel on both sides: what block `b` held, block `new_block[b]` holds; contents move along."""
        self.manager.permute(new_block)
        self.pool.permute(self._numbers(new_block), self.caches)
        self._loans = {loan: frozenset(new_block[b] for b in blocks) for loan, blocks in self._loans.items()}
        self._in_hand = [new_block[block] for block in self._in_hand]
        self._to_end = {new_block[block] for block in self._to_end}

    def _adopt(self, request: RequestId, row: int, tokens: Sequence[int]) -> Outcome:
        """The manager takes over what is in the row; what is shared is copied first."""
        exported = self.pool.export(self._numbers([row]))
        length = int(exported.seq_lens)
        if len(tokens) != length or not length:
            allowed = f"{length} tokens, as row {row} has positions" if length else f"none: row {row} has been freed"
            raise Misuse("tokens", tokens, allowed)
        count = ceil_div(length, self.pool.shape.block_size)
        table, along = exported.block_tables[0, :count].tolist(), exported.goes_along[0, :count].tolist()
        ours = self.manager.snapshot([request]).tables.get(request)
        if ours is None:
            raise Misuse("request", request, "resident on the host, too: it was freed or preempted there, so `free` it")
        shared = [i for i in range(count) if not along[i] and table[i] != HOLE and table[i] not in ours[i : i + 1]]
        leased = self.manager.lease(len(shared)) if shared else None
        if isinstance(leased, Refused):
            return leased
        pairs = [(table[i], copy) for i, copy in zip(shared, leased.blocks if leased else (), strict=True)]
        for i, (_, copy) in zip(shared, pairs, strict=True):
            table[i] = copy
        try:
            if pairs:  # into blocks that are nobody's yet
                self._copy(self._numbers([block for pair in pairs for block in pair]).view(-1, 2))
            self.manager.adopt(request, tokens, table)
        except BaseException:
            self.manager.return_lease([copy for _, copy in pairs])
            raise
        self._leaving.add(request)
        return Ok()

    def _leave(self, request: RequestId, row: int) -> None:
        """The manager has taken over what is in the row."""
        self.pool.hand_over(self._numbers([row]))
        del self._rows[request]
        self._leaving.remove(request)

    def _numbers(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32).to(self.pool.device, non_blocking=True)

    def _there(self, name: str, request: RequestId) -> int:
        if request not in self._rows:
            raise Misuse(name, request, "a request that was sent to the device")
        return self._rows[request]

    def _check_row(self, row: int) -> None:
        integer("row", row, 0, self.pool.shape.num_rows - 1)
        if row in self._rows.values():
            raise Misuse("row", row, "a row that no request is in")

    def _check_found(self, name: str, row: int, outcome: Tensor) -> None:
        if int(outcome) != RowOutcome.OK:
            raise Misuse(name, row, f"a row that is not in use; the pool says {RowOutcome(int(outcome)).name}")
