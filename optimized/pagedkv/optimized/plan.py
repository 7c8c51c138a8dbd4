"""What a step needs on the device: tables, lengths, slots and copies, for the rows of one batch."""

import sys
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.loops import calls
from pagedkv.spec.words import Misuse, Reason


class GroupPlan(NamedTuple):
    """The part of a plan for the layers of one cache group."""

    block_tables: Int32
    """(num_rows, max_blocks): entries past ceil(reserved / block_size) may hold anything; HOLE (-1) where a window
    released a block."""
    slot_mapping: Int64
    """(num_slots,): where the KV of each position handed out goes, row by row; -1 for rows that were refused."""
    copies: Int32
    """(num_copies, 2): source and destination of the copy-on-writes. They run together, before any write."""
    copy_rows: Int32
    """(num_copies,): the index in the batch of the row that each copy is for."""
    update_blocks: Int32
    """(num_updates,): what stands at `StepPlan.update_rows`, `update_columns` of the tables since this plan."""


@dataclass(frozen=True, eq=False)  # arrays are not compared
class StepPlan:
    """The outcome of `append_batch` or `reserve_batch` over `num_rows` rows.

    The arrays stay as they are as long as the plan, or any view of them, is in use: buffers rotate, and one that
    somebody still refers to is left alone. Code that keeps a bare address must keep the plan, too. They are to be read:
    who wants to write into `block_tables`, say another number in place of HOLE, writes into a copy, since the buffer
    comes back in a later plan with only what has changed since.

    `block_tables`, `slot_mapping`, `copies`, `copy_rows` and `update_blocks` are those of the only cache group;
    with several groups they are asked of each of `groups`.
    """

    rows: Int32
    """(num_rows,): the row handles, in batch order."""
    seq_lens: Int32
    """(num_rows,): positions of each request that have a token and a slot. What an attention kernel is to see in this
    step, and what may be committed after it: all tokens after `append_batch`; the end of the chunk after
    `reserve_batch`."""
    slot_counts: Int64
    """(num_rows,): how many slots belong to each row."""
    refused: Int32
    """(num_refused,): indices in the batch of the rows that did not fit. They are as they were."""
    reasons: tuple[Reason, ...]
    """Why, in the same order."""
    update_rows: Int32
    """(num_updates,): the handles of the rows whose table entries changed since the last plan of this manager, by
    any operation. A mirror of all tables, (num_rows, max_blocks) by handle, stays right by
    `mirror[update_rows, update_columns] = update_blocks`; entries that are out of use are not mentioned."""
    update_columns: Int32
    """(num_updates,)"""
    groups: tuple[GroupPlan, ...]

    @property
    def block_tables(self) -> Int32:
        return self._only_group.block_tables

    @property
    def slot_mapping(self) -> Int64:
        return self._only_group.slot_mapping

    @property
    def copies(self) -> Int32:
        return self._only_group.copies

    @property
    def copy_rows(self) -> Int32:
        return self._only_group.copy_rows

    @property
    def update_blocks(self) -> Int32:
        return self._only_group.update_blocks

    def to_bytes(self) -> bytes:
        """This plan for other processes, as `wire` says."""
        from pagedkv.optimized.wire import plan_to_bytes  # noqa: PLC0415  # which is about plans

        return plan_to_bytes(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "StepPlan":
        """The plan that `to_bytes` made these bytes of. Raises `Misuse` for bytes that are damaged or cut off."""
        from pagedkv.optimized.wire import plan_from_bytes  # noqa: PLC0415  # which is about plans

        return plan_from_bytes(data)

    @property
    def _only_group(self) -> GroupPlan:
        if len(self.groups) > 1:
            raise Misuse("groups", len(self.groups), "one group; with several ask each of `plan.groups`")
        return self.groups[0]


class Updates(NamedTuple):
    """Table entries that have changed."""

    rows: Int32
    columns: Int32
    """(num_updates,) both"""
    blocks: Int32
    """(num_groups, num_updates)"""


class _Buffer:
    """One group's tables of one batch, as they were when a plan was made."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.array = np.zeros(shape, np.int32)
        self.rows, self.plan = b"", 0


class TableBuffers:
    """The block tables that plans hand out. A batch of the same rows as before gets a buffer that nobody uses any
    more and only what has changed since; any other batch is copied in whole."""

    MOST: Final = 8
    """Buffers of a group; a plan made while all are in use gets an array of its own."""

    def __init__(self, num_groups: int) -> None:
        self._buffers: list[list[_Buffer]] = [[] for _ in range(num_groups)]
        self._recent: list[Updates] = []  # what changed before each of the latest plans
        self._name, self._plan = b"", 0

    @property
    def num_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.array.nbytes for buffers in self._buffers for buffer in buffers)

    def forget(self) -> None:
        """Copy everything anew from here on."""
        self._buffers = [[] for _ in self._buffers]
        self._recent.clear()

    def add(self, updates: Updates, rows: Int32) -> None:
        """A plan for these rows is being made, and this has changed since the last one."""
        self._plan += 1
        self._name = rows.tobytes()
        self._recent.append(Updates(*(array.copy() for array in updates)) if len(updates.rows) else updates)
        del self._recent[: -self.MOST]

    def tables(self, group: int, table: Int32, rows: Int32, width: int, scratch: Int32) -> Int32:
        """table[rows, :width] in a buffer, for the rows that were last added. `scratch`: a place for each row of the
        table."""
        buffer = self._unused(group, len(rows), width)
        shown: Int32 = buffer.array[: len(rows), :width]
        missed = self._plan - buffer.plan
        fresh = buffer.rows == self._name and missed <= len(self._recent)
        for changed in self._recent[len(self._recent) - missed :] if fresh else ():
            if len(changed.rows) and fresh:
                fresh = calls.show(buffer.array, width, rows, *changed[:2], changed.blocks[group], scratch)
        if not fresh:
            np.take(table[:, :width], rows, axis=0, out=shown, mode="clip")  # which writes `shown` directly
        buffer.rows, buffer.plan = self._name, self._plan
        return shown

    def _unused(self, group: int, count: int, width: int) -> _Buffer:
        """A buffer with room for this, that only we refer to."""
        buffers = self._buffers[group]
        for buffer in buffers:
            if sys.getrefcount(buffer.array) == 2 and buffer.array.shape[0] >= count and buffer.array.shape[1] >= width:
                return buffer
        fresh = _Buffer((count, -(-width // 64) * 64))
        in_use = [buffer for buffer in buffers if sys.getrefcount(buffer.array) > 2]
        buffers[:] = [*in_use[-self.MOST + 1 :], fresh]
        return fresh
