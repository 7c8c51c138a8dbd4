"""The operations of a pool on the CPU: its tensors as arrays, and the loops over them."""

from functools import cache
from typing import Final

import numpy as np
import torch
from torch import Tensor

from pagedkv.optimized.device.loops import giving_back, growth, importing, sharing
from pagedkv.optimized.device.loops.compiling import FOLDER
from pagedkv.optimized.device.loops.rows import Fields, Flags
from pagedkv.optimized.device.plan import PoolPlan
from pagedkv.optimized.device.state import IN_USE, MOST, NO_LIMIT, PoolShape, PoolState, empty_state
from pagedkv.optimized.loops.arrays import Int64
from pagedkv.optimized.warm import warm

NO_NUMBERS: Final = np.empty(0, np.int64)
NO_FLAGS: Final = np.empty(0, np.bool_)


class LoopOperations:
    """Of loops over arrays; see `pagedkv.optimized.device.operations.Operations`."""

    def __init__(self, shape: PoolShape, state: PoolState) -> None:
        self.shape, self.state = shape, state
        self._all = np.arange(shape.num_rows)
        self._fields: Fields = (
            state.numbers.numpy(), state.tables.numpy(), state.references.numpy(), state.free_list.numpy(),
            state.counters.numpy(), state.claims.numpy(), state.owned.numpy(), state.lent.numpy(),
        )  # fmt: skip

    def grow(
        self, rows: Tensor | None, counts: Tensor | None, where: Tensor | None, *, entering: bool, total: int | None
    ) -> PoolPlan:
        """To append; `entering`: to admit."""
        count, bs = self.shape.num_rows if rows is None else len(rows), self.shape.block_size
        outcome, seq_lens = torch.empty((2, count), dtype=torch.int32)
        copies, slots = torch.empty((count, 2), dtype=torch.int32), torch.empty(total or 0, dtype=torch.int64)
        limit = NO_LIMIT if total is None else total
        growth.grow(
            self._fields, self._rows(rows), _numbers(counts), self._where(rows, where, entering), entering, bs, limit,
            outcome.numpy(), seq_lens.numpy(), copies.numpy(), slots.numpy(),
        )  # fmt: skip
        return PoolPlan(outcome, seq_lens, slots, copies)

    def fork(self, parents: Tensor, children: Tensor, where: Tensor | None) -> Tensor:
        """Outcomes, as of the following."""
        outcome = torch.empty(len(children), dtype=torch.int32)
        bs = self.shape.block_size
        sharing.fork(self._fields, _numbers(parents), _numbers(children), _flags(where), bs, outcome.numpy())
        return outcome

    def free(self, rows: Tensor | None, where: Tensor | None) -> Tensor:
        """All entries."""
        outcome = self._outcome(rows)
        giving_back.free(
            self._fields, self._rows(rows), self._where(rows, where), self.shape.block_size, outcome.numpy()
        )
        return outcome

    def hand_over(self, rows: Tensor | None, where: Tensor | None) -> Tensor:
        """All entries, and the blocks with them."""
        outcome = self._outcome(rows)
        giving_back.hand_over(
            self._fields, self._rows(rows), self._where(rows, where), self.shape.block_size, outcome.numpy()
        )
        return outcome

    def import_(
        self, rows: Tensor | None, tables: Tensor, lengths: Tensor, num_holes: Tensor | None, where: Tensor | None,
        owning: bool,
    ) -> Tensor:  # fmt: skip
        """Requests from elsewhere."""
        outcome = self._outcome(rows)
        importing.import_rows(
            self._fields, self._rows(rows), tables.contiguous().numpy(), _numbers(lengths), _numbers(num_holes),
            _flags(where), owning, self.shape.block_size, MOST,
            -1 if self.shape.sliding_window is None else self.shape.sink_blocks, outcome.numpy(),
        )  # fmt: skip
        return outcome

    def truncate(self, rows: Tensor | None, lengths: Tensor, computed: Tensor | None, where: Tensor | None) -> Tensor:
        """Entries past the new end."""
        outcome, shape = self._outcome(rows), self.shape
        giving_back.truncate(
            self._fields, self._rows(rows), _numbers(lengths), _numbers(computed), self._where(rows, where),
            shape.block_size, shape.sliding_window or 0, shape.sink_blocks, outcome.numpy(),
        )  # fmt: skip
        return outcome

    def release_window(self, rows: Tensor | None, computed: Tensor | None, where: Tensor | None) -> Tensor:
        """Entries behind the window."""
        outcome, shape = self._outcome(rows), self.shape
        giving_back.release_window(
            self._fields, self._rows(rows), _numbers(computed), self._where(rows, where), shape.block_size,
            shape.kept if shape.sliding_window else -1, shape.sink_blocks, outcome.numpy(),
        )  # fmt: skip
        return outcome

    def _rows(self, rows: Tensor | None) -> Int64:
        return self._all if rows is None else _numbers(rows)

    def _where(self, rows: Tensor | None, where: Tensor | None, entering: bool = False) -> Flags:
        """Of all rows, those that are not in use are left out, too."""
        if rows is not None or entering:
            return _flags(where)
        in_use: Flags = self._fields[0][IN_USE] > 0
        if where is not None:
            in_use &= where.numpy()
        return in_use

    def _outcome(self, rows: Tensor | None) -> Tensor:
        return torch.empty(len(self._all) if rows is None else len(rows), dtype=torch.int32)


def _numbers(vector: Tensor | None) -> Int64:
    return NO_NUMBERS if vector is None else vector.numpy().astype(np.int64)  # dense, so that loops get one kind


def _flags(vector: Tensor | None) -> Flags:
    return NO_FLAGS if vector is None else vector.numpy().copy()


@cache
def warmup() -> None:
    """Compile the loops, or fetch them from the cache on disk; see `pagedkv.optimized.warm.warm`."""
    warm(FOLDER, "the device pool on the CPU", _use_every_loop)


def _use_every_loop() -> None:
    shape = PoolShape(8, 2, 2, 4, 2, 0, 0)
    operations = LoopOperations(shape, empty_state(shape, torch.device("cpu")))
    rows = torch.arange(1)
    operations.grow(rows, rows + 6, None, entering=True, total=6)
    operations.fork(rows, rows + 1, None)
    operations.truncate(rows, rows + 5, None, None)
    operations.release_window(rows, None, None)
    operations.hand_over(rows, None)
    operations.import_(rows, torch.zeros(1, 1, dtype=torch.int32), rows + 1, None, None, owning=True)
    operations.free(rows, None)
