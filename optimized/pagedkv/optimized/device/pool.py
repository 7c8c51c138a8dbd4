"""The device pool: which block holds which part of which row, decided where the KV lies, without the host.

All state is tensors of fixed shapes on one device, and every operation is a fixed small number of launches over them,
batched over rows: none waits for the device, none allocates by a value, so that any sequence of them can be captured in
a CUDA graph. Which blocks a row gets is a function of the state and the call, never of scheduling.

A *row* is a place for one request: the caller says which request is in which row. Operations mean what `pagedkv.spec`
says, with the row in place of the request's id and lengths in place of tokens. What the host can see (a shape, a dtype)
is `Misuse`; what it cannot see is answered on the device, a `RowOutcome` for each row: a row that is not served is as
it was. A batch equals its rows one by one, in the order given; a row that stands twice in a call is served once.

>>> import torch
>>> pool = DevicePool(num_blocks=8, block_size=4, num_rows=2, max_blocks=4)
>>> rows = torch.arange(2)
>>> pool.admit(rows, torch.tensor([5, 3])).outcome.tolist()
[0, 0]
>>> pool.append(rows).slot_mapping.tolist()
[5, 11]
>>> pool.free(rows, where=torch.tensor([True, False])).tolist()
[0, 1]
>>> int(pool.num_free), pool.seq_lens.tolist()
(7, [0, 4])
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pagedkv.optimized.arguments import flag, integer
from pagedkv.optimized.device import leasing
from pagedkv.optimized.device.arguments import (
    check_caches, check_rows, check_tables, check_vector, check_where, pool_shape,
)  # fmt: skip
from pagedkv.optimized.device.checking import broken
from pagedkv.optimized.device.leasing import ExportedRows
from pagedkv.optimized.device.operations import operations_for
from pagedkv.optimized.device.outcomes import COUNTED, NUM_FREE
from pagedkv.optimized.device.plan import PoolPlan
from pagedkv.optimized.device.relabelling import permute
from pagedkv.optimized.device.state import HOLES, IN_USE, LENGTH, MOST, empty_state


class DevicePool:
    """`num_blocks` blocks of `block_size` tokens on `device`, and `num_rows` rows of up to `max_blocks` blocks.

    All blocks are its own, unless it is `leased`: then it has none until the host gives it some, see `lease`. With
    `sliding_window`, `sink_tokens` and `max_rollback` as in `pagedkv.spec.Config`, `release_window` gives back
    what cannot be seen any more.

    Rows are (num_asked,) int32 or int64 tensors on the device. None: all rows in order, of which those that are not in
    use are skipped. `where` (num_asked,) bool leaves some out, say those whose request has ended. Raises `Misuse` for
    options and tensors of another form.

    Calls belong on one stream; copies of a plan run before the next call.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        num_rows: int,
        max_blocks: int,
        *,
        sliding_window: int | None = None,
        sink_tokens: int = 0,
        max_rollback: int = 0,
        leased: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        self.shape = pool_shape(
            num_blocks, block_size, num_rows, max_blocks, sliding_window, sink_tokens, max_rollback, leased
        )
        self._state = empty_state(self.shape, torch.device(device))
        self.device = self._state.numbers.device
        self._operations = operations_for(self.shape, self._state)

    # What attention and an engine read; views, which every operation changes.

    @property
    def block_tables(self) -> Tensor:
        """(num_rows, max_blocks) int32: entries past the blocks of a row may hold anything; HOLE (-1) where a window
        has released a block."""
        return self._state.tables

    @property
    def seq_lens(self) -> Tensor:
        """(num_rows,) int32: 0 where a row is not in use."""
        return self._state.numbers[LENGTH]

    @property
    def in_use(self) -> Tensor:
        """(num_rows,) int32: 1 for the rows that are in use."""
        return self._state.numbers[IN_USE]

    @property
    def num_holes(self) -> Tensor:
        """(num_rows,) int32: table entries that a window has released, behind those of the sinks."""
        return self._state.numbers[HOLES]

    @property
    def references(self) -> Tensor:
        """(num_blocks,) int32: table entries that name a block; one more for a block that the host has lent."""
        return self._state.references

    @property
    def num_free(self) -> Tensor:
        """() int64: blocks that no row uses."""
        return self._state.counters[NUM_FREE]

    @property
    def counters(self) -> Tensor:
        """`num_free` and behind it `outcome_counts`, int64 in one tensor; see `mirror.CounterMirror`."""
        return self._state.counters

    @property
    def outcome_counts(self) -> Tensor:
        """(len(RowOutcome),) int64: how often each outcome was given since the pool was made."""
        return self._state.counters[COUNTED:]

    # Rows come, grow and go.

    def admit(
        self, rows: Tensor | None, lengths: Tensor, *, total: int | None = None, where: Tensor | None = None
    ) -> PoolPlan:
        """Rows that are not in use get lengths[i] >= 0 positions. With `total`, the sum of the lengths or more, the
        plan has their slots; rows for whose slots there is no room are `BAD_LENGTH`."""
        at, chosen = self._rows(rows, where)
        lengths = self._vector("lengths", lengths, self._count(at))
        return self._operations.grow(at, lengths, chosen, entering=True, total=_total(total))

    def append(
        self, rows: Tensor | None = None, counts: Tensor | None = None, *, total: int | None = None,
        where: Tensor | None = None,
    ) -> PoolPlan:  # fmt: skip
        """Rows get counts[i] >= 0 positions more, or one each. What shares its last block with another owner gets a
        copy of it first. With `total`, as in `admit`, the plan has the slots; without counts it always has."""
        at, chosen = self._rows(rows, where)
        counts = self._optional("counts", counts, self._count(at))
        most = self._count(at) if counts is None else _total(total)
        return self._operations.grow(at, counts, chosen, entering=False, total=most)

    def fork(self, parents: Tensor, children: Tensor, *, where: Tensor | None = None) -> Tensor:
        """children[i], not in use, becomes what parents[i] was before this call: same length, same blocks. Returns the
        outcomes, (num_asked,) int32; so do the following."""
        at = self._apart(check_rows("children", children, self.device, self.shape))
        chosen = check_where(where, self.device, len(at))
        parents = self._vector("parents", parents, len(at))
        return self._operations.fork(parents, at, chosen)

    def truncate(
        self, rows: Tensor | None, lengths: Tensor, *, computed: Tensor | None = None, where: Tensor | None = None
    ) -> Tensor:
        """Take back the positions from lengths[i] on, say a rejected draft. With a window, `RELEASED` if the next query
        would see what is gone; it stands at `computed` (num_asked,), the positions whose KV is written, or at the new
        end."""
        at, chosen = self._rows(rows, where)
        lengths = self._vector("lengths", lengths, self._count(at))
        computed = self._optional("computed", computed, self._count(at))
        return self._operations.truncate(at, lengths, computed, chosen)

    def free(self, rows: Tensor | None = None, *, where: Tensor | None = None) -> Tensor:
        """The rows are not in use any more. Blocks that only they had are free at once."""
        at, chosen = self._rows(rows, where)
        return self._operations.free(at, chosen)

    def release_window(
        self, rows: Tensor | None = None, *, computed: Tensor | None = None, where: Tensor | None = None
    ) -> Tensor:
        """Give back the blocks that the window has left behind once `computed` (num_asked,) positions (None: all) are
        written."""
        at, chosen = self._rows(rows, where)
        computed = self._optional("computed", computed, self._count(at))
        return self._operations.release_window(at, computed, chosen)

    # To and from the host.

    def lease(self, blocks: Tensor) -> None:
        """These blocks (num_leased,) become the pool's own, and are free. That they were the host's until now, and are
        named once, is not checked."""
        leasing.lease(self._state, self._vector("blocks", blocks))

    def return_lease(self, count: int) -> Tensor:
        """Free blocks stop being the pool's own: the ids of as many as there are, (count,) int32, then -1. The host
        knows them when it has read them."""
        return leasing.return_lease(self._state, integer("count", count, 0, self.shape.num_blocks))

    def import_(
        self, rows: Tensor | None, block_tables: Tensor, lengths: Tensor, *, num_holes: Tensor | None = None,
        where: Tensor | None = None, owning: bool = False,
    ) -> Tensor:  # fmt: skip
        """Rows that are not in use become requests that began elsewhere: lengths[i] positions in the blocks of
        block_tables[i], (num_asked, width) int32, of which a window has released `num_holes` (num_asked,).

        The host lends these blocks until `end_loan`: they are read here, and never written, since whoever would write
        copies them first; they are not handed out. With `owning` they are the pool's own from now on. Of the blocks of
        a table only that they exist and are not the pool's to hand out is checked (`BAD_TABLE`).
        """
        at, chosen = self._rows(rows, where)
        tables = self._apart(check_tables(block_tables, self.device, self._count(at)))
        lengths = self._vector("lengths", lengths, self._count(at))
        holes = self._optional("num_holes", num_holes, self._count(at))
        return self._operations.import_(at, tables, lengths, holes, chosen, flag("owning", owning))

    def export(self, rows: Tensor | None = None) -> ExportedRows:
        """What the host must know to take these rows back; nothing changes. Read it, then `hand_over`."""
        at = self._rows(rows, None)[0]
        at = torch.arange(self.shape.num_rows, device=self.device) if at is None else at
        return leasing.export(self.shape, self._state, at)

    def hand_over(self, rows: Tensor | None = None, *, where: Tensor | None = None) -> Tensor:
        """As `free`, but the blocks that only one row has go with it: they are not the pool's own any more, and not
        free."""
        at, chosen = self._rows(rows, where)
        return self._operations.hand_over(at, chosen)

    def end_loan(self, blocks: Tensor) -> None:
        """The host lends these blocks no more, which no row has. Not checked: see `references`, where they are 1."""
        leasing.end_loan(self._state, self._vector("blocks", blocks))

    # The pool as a whole.

    def permute(self, new_block: Tensor, caches: Sequence[Tensor] = ()) -> None:
        """Relabel: what block `b` held, block `new_block[b]` holds, in `caches` (num_blocks, ...) too. `new_block`
        (num_blocks,) is a bijection, which is not checked."""
        new_block = self._vector("new_block", new_block, self.shape.num_blocks)
        caches = check_caches(caches, self.device, self.shape.num_blocks)
        permute(self.shape, self._state, new_block, caches)

    def warm_up(self, num_rows: int | None = None) -> None:
        """Compile what calls for so many rows (all unless given) need, before it matters: in the middle of serving it
        takes seconds, and while a CUDA graph is captured it fails. Nothing is changed.

        Kernels are compiled for the dtypes that they are given, too (int64 here), for what is given at all of `where`,
        `counts` and the like, and for each power of two of rows.
        """
        counters = self._state.counters.clone()
        count = self.shape.num_rows if num_rows is None else integer("num_rows", num_rows, 1)
        rows = torch.full((count,), -1, dtype=torch.int64, device=self.device)
        nobody = torch.zeros(self.shape.num_rows, dtype=torch.bool, device=self.device)
        for at, where in ((rows, None), (rows, rows >= 0), (None, nobody)):
            numbers = rows if at is not None else torch.zeros_like(nobody, dtype=torch.int64)
            self.append(at, where=where)
            for total in (None, 1):
                self.admit(at, numbers, total=total, where=where)
                self.append(at, numbers, total=total, where=where)
            self.truncate(at, numbers, where=where)
            self.truncate(at, numbers, computed=numbers, where=where)
            self.free(at, where=where)
            self.hand_over(at, where=where)
            self.release_window(at, where=where)
            self.release_window(at, computed=numbers, where=where)
        self.fork(rows, rows)
        self.import_(rows[:1], self._state.tables[:1], rows[:1], num_holes=rows[:1])
        self._state.counters.copy_(counters)

    def check(self) -> Tensor:
        """(len(INVARIANTS),) int64 on the device: how often each of the invariants of `checking` is broken."""
        return broken(self.shape, self._state)

    def copy(self) -> "DevicePool":
        """A pool that goes its own way from here."""
        twin = object.__new__(type(self))
        twin.__setstate__({**self.__getstate__(), "_state": self._state.clone()})
        return twin

    def _rows(self, rows: Tensor | None, where: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        at = None if rows is None else self._apart(check_rows("rows", rows, self.device, self.shape))
        return at, check_where(where, self.device, self._count(at))

    def _vector(self, name: str, value: Tensor, length: int | None = None) -> Tensor:
        return self._apart(check_vector(name, value, self.device, length))

    def _optional(self, name: str, value: Tensor | None, length: int) -> Tensor | None:
        return None if value is None else self._vector(name, value, length)

    def _apart(self, given: Tensor) -> Tensor:
        """What is read while the state is written is no view of it, such as `seq_lens`."""
        base = given if given._base is None else given._base
        return given.clone() if any(base is each for each in vars(self._state).values()) else given

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickle: who carries operations out is bound to the tensors, and made anew."""
        return {name: value for name, value in vars(self).items() if name != "_operations"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._operations = operations_for(self.shape, self._state)

    def _count(self, rows: Tensor | None) -> int:
        return self.shape.num_rows if rows is None else len(rows)


def _total(total: int | None) -> int | None:
    return None if total is None else integer("total", total, 0, MOST)
