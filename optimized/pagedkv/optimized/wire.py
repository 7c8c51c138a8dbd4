"""A plan as bytes, for the other ranks of a tensor-parallel group: one rank plans, all of them run the step.

All numbers are little-endian. First a header: what it is, its version, a checksum of everything after it, and the
counts; then the number of copies of each group, the reasons as one byte each, and the arrays in the order of the
fields of `StepPlan` and `GroupPlan`, whose dtypes are implied. Nothing in it is executed, and what is damaged or cut
off is told apart from what is not before anything is made of it.
"""

import struct
import zlib
from typing import Final, NamedTuple

import numpy as np

from pagedkv.optimized.loops.arrays import MAX_INT32, Int32, Int64
from pagedkv.optimized.plan import GroupPlan, StepPlan
from pagedkv.spec.words import Misuse, Reason

VERSION: Final = 1
REASONS: Final = (
    Reason.UNSERVABLE, Reason.MAX_REQUESTS, Reason.RELEASED, Reason.PINNED, Reason.SWAP_SPACE, Reason.IN_FLIGHT,
    Reason.CAPACITY,
)  # fmt: skip
"""By the byte that stands for each. A new one is added at the end; any other change is another version."""
_MAGIC: Final = b"PKVP"
_HEADER: Final = struct.Struct("<4sII")
"""Magic, version, checksum of the rest."""
_COUNTS: Final = struct.Struct("<6Q")


class _Counts(NamedTuple):
    groups: int
    rows: int
    width: int
    slots: int
    refused: int
    updates: int

    def num_bytes(self, num_copies: list[int]) -> int:
        """Bytes of the reasons and of all arrays. Python integers: no count can overflow it."""
        shared = 4 * (2 * self.rows + self.refused + 2 * self.updates) + 8 * self.rows + self.refused
        each = 4 * (self.rows * self.width + self.updates) + 8 * self.slots
        return shared + self.groups * each + 12 * sum(num_copies)


def plan_to_bytes(plan: StepPlan) -> bytes:
    """The whole plan. `plan_from_bytes` makes an equal one of it, on any machine."""
    first = plan.groups[0]
    counts = _Counts(
        len(plan.groups), len(plan.rows), first.block_tables.shape[1], len(first.slot_mapping), len(plan.refused),
        len(plan.update_rows),
    )  # fmt: skip
    parts = [
        _COUNTS.pack(*counts),
        struct.pack(f"<{counts.groups}Q", *(len(group.copies) for group in plan.groups)),
        bytes(map(REASONS.index, plan.reasons)),
        *map(_int32, (plan.rows, plan.seq_lens)),
        _int64(plan.slot_counts),
        *map(_int32, (plan.refused, plan.update_rows, plan.update_columns)),
    ]
    for group in plan.groups:
        parts += [_int32(group.block_tables), _int64(group.slot_mapping)]
        parts += map(_int32, (group.copies, group.copy_rows, group.update_blocks))
    body = b"".join(parts)
    return _HEADER.pack(_MAGIC, VERSION, zlib.crc32(body)) + body


def plan_from_bytes(data: bytes) -> StepPlan:
    """The plan that `plan_to_bytes` made these bytes of, in arrays of its own. Raises `Misuse` for anything else:
    another format or version, bytes that are missing, or too many, or not as they were."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise Misuse("data", data, "bytes of plan_to_bytes")
    data = bytes(data)
    body = _checked(data)
    if len(body) < _COUNTS.size:
        raise _damaged(data, "whole: its counts are cut off")
    counts = _Counts(*_COUNTS.unpack_from(body))
    if max(counts.rows, counts.width) > MAX_INT32:
        raise _damaged(data, f"of at most {MAX_INT32} rows and columns")
    start = _COUNTS.size + 8 * counts.groups
    if counts.groups < 1 or start > len(body):
        raise _damaged(data, "whole: with the number of copies of each of its groups, one at least")
    num_copies = np.frombuffer(body, "<u8", counts.groups, _COUNTS.size).tolist()
    if len(body) != start + counts.num_bytes(num_copies):
        raise _damaged(data, f"{_HEADER.size + start + counts.num_bytes(num_copies)} bytes, as its counts say")
    codes = body[start : start + counts.refused]
    if any(code >= len(REASONS) for code in codes):
        raise _damaged(data, f"of reasons below {len(REASONS)}")
    return _plan(_Reader(body, start + counts.refused), counts, num_copies, tuple(REASONS[code] for code in codes))


def _plan(read: "_Reader", counts: _Counts, num_copies: list[int], reasons: tuple[Reason, ...]) -> StepPlan:
    rows, seq_lens = read.int32(counts.rows), read.int32(counts.rows)
    slot_counts, refused = read.int64(counts.rows), read.int32(counts.refused)
    update_rows, update_columns = read.int32(counts.updates), read.int32(counts.updates)
    groups = tuple(
        GroupPlan(
            read.int32(counts.rows * counts.width).reshape(counts.rows, counts.width),
            read.int64(counts.slots),
            read.int32(2 * copies).reshape(copies, 2),
            read.int32(copies),
            read.int32(counts.updates),
        )
        for copies in num_copies
    )
    return StepPlan(rows, seq_lens, slot_counts, refused, reasons, update_rows, update_columns, groups)


class _Reader:
    """Arrays one after another."""

    def __init__(self, body: bytes, start: int) -> None:
        self._body, self._at = body, start

    def int32(self, count: int) -> Int32:
        """The next `count` numbers, in an array of their own."""
        array = np.frombuffer(self._body, "<i4", count, self._at)
        self._at += array.nbytes
        return array.astype(np.int32)

    def int64(self, count: int) -> Int64:
        """The same of 64 bits."""
        array = np.frombuffer(self._body, "<i8", count, self._at)
        self._at += array.nbytes
        return array.astype(np.int64)


def _checked(data: bytes) -> bytes:
    """What follows the header, which must fit it."""
    if len(data) < _HEADER.size:
        raise _damaged(data, f"whole: at least the {_HEADER.size} bytes of the header")
    magic, version, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise _damaged(data, f"a plan: it begins with {_MAGIC!r}")
    if version != VERSION:
        raise _damaged(data, f"of version {VERSION}; this is version {version}")
    body = data[_HEADER.size :]
    if zlib.crc32(body) != checksum:
        raise _damaged(data, "as they were made: the checksum does not fit")
    return body


def _damaged(data: bytes, wanted: str) -> Misuse:
    return Misuse("data", data[:16], f"bytes of plan_to_bytes, {wanted} ({len(data)} bytes given)")


def _int32(array: Int32) -> bytes:
    return array.astype("<i4", copy=False).tobytes()


def _int64(array: Int64) -> bytes:
    return array.astype("<i8", copy=False).tobytes()
