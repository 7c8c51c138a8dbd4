"""Which bytes each program of an interpreted launch touched, and which programs depend on each other's order.

A GPU runs the programs of a grid in any order and at once. A launch is free of races if no program touches a byte that
another one stores. Interpreting a launch gives the bytes that each program really touched on *these* arguments: lanes
that a mask excludes touch nothing. So `conflicts() == []` says: for these arguments every order of the programs, and
any interleaving of them, gives the same memory. It says nothing about other arguments, nor about races between the
threads within one program, which the compiler orders.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Program: TypeAlias = tuple[int, int, int]
"""The three `tl.program_id`s."""
Access: TypeAlias = Literal["load", "store", "atomic"]
Spans: TypeAlias = NDArray[np.uint64]
"""`(n, 2)`: disjoint ranges of byte addresses [first, end), ascending."""

NO_SPANS: Spans = np.zeros((0, 2), np.uint64)


class Extent(NamedTuple):
    """The bytes of one tensor argument."""

    argument: str
    first: int
    end: int


class Conflict(NamedTuple):
    """Two programs of one launch whose order matters, and the first byte that shows it."""

    kernel: str
    program: Program
    """It writes the byte."""
    access: Access
    """How: "store" or "atomic"."""
    other: Program
    other_access: Access
    argument: str
    """The tensor argument in which the byte lies."""
    offset: int
    """Of the byte, in bytes from the tensor's first element."""


def spans_of(addresses: NDArray[np.uint64], width: int) -> Spans:
    """The bytes [a, a + width) of every address, merged.

    >>> spans_of(np.array([8, 4, 20, 4], np.uint64), 4).tolist()
    [[4, 12], [20, 24]]
    """
    first = np.unique(addresses)
    return merge_spans(np.stack([first, first + np.uint64(width)], axis=1))


def merge_spans(spans: Spans) -> Spans:
    """The same bytes as disjoint, ascending ranges; what touches is joined."""
    if not len(spans):
        return NO_SPANS
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    end_so_far = np.maximum.accumulate(spans[:, 1])
    starts = np.concatenate([[True], spans[1:, 0] > end_so_far[:-1]])
    last = np.concatenate([np.flatnonzero(starts)[1:] - 1, [len(spans) - 1]])
    return np.stack([spans[starts, 0], end_so_far[last]], axis=1)


@dataclass
class ProgramAccess:
    """What one program touched."""

    program: Program
    parts: dict[Access, list[Spans]] = field(default_factory=dict)

    def add(self, access: Access, spans: Spans) -> None:
        """Note that it touched `spans`."""
        self.parts.setdefault(access, []).append(spans)

    def spans(self, access: Access) -> Spans:
        """All bytes it touched in this way."""
        return merge_spans(np.concatenate([NO_SPANS, *self.parts.get(access, [])]))


@dataclass
class LaunchAccess:
    """What the programs of one launch touched, in the order in which they ran."""

    kernel: str
    extents: tuple[Extent, ...]
    programs: list[ProgramAccess] = field(default_factory=list)

    def bytes_touched(self, access: Access) -> int:
        """Distinct bytes that any program touched in this way."""
        spans = merge_spans(np.concatenate([NO_SPANS, *(p.spans(access) for p in self.programs)]))
        return int((spans[:, 1] - spans[:, 0]).sum())

    def conflicts(self, *, atomics_declared: bool = False) -> list[Conflict]:
        """Each pair (writer, other program) that touches a common byte, once a pair of accesses, by its first byte.

        With `atomics_declared` two atomic updates of one byte are no conflict; an atomic update of a byte that another
        program loads or stores always is.
        """
        found: list[Conflict] = []
        for access, other_access in _PAIRS:
            if access == other_access == "atomic" and atomics_declared:
                continue
            for writer, other, address in self._overlaps(access, other_access):
                argument, offset = self._place(address)
                programs = self.programs[writer].program, self.programs[other].program
                found.append(Conflict(self.kernel, programs[0], access, programs[1], other_access, argument, offset))
        return found

    def _overlaps(self, access: Access, other_access: Access) -> list[tuple[int, int, int]]:
        """(index of the writer, index of the other, first common byte); symmetric pairs once."""
        writes, writers = self._table(access)
        edges = np.unique(writes)  # between two edges every byte has the same writers
        if not len(edges):
            return []
        cells, cell_writers = _cells(edges, writes, writers)
        order = np.argsort(cells, kind="stable")
        cells, cell_writers = cells[order], cell_writers[order]
        other_cells, others = _cells(edges, *self._table(other_access))
        low, high = np.searchsorted(cells, other_cells, "left"), np.searchsorted(cells, other_cells, "right")
        count = high - low
        at = np.repeat(low, count) + _ramp(count)
        pair = np.stack([cell_writers[at], np.repeat(others, count), np.repeat(other_cells, count)], axis=1)
        apart = pair[:, 0] < pair[:, 1] if access == other_access else pair[:, 0] != pair[:, 1]
        pair = pair[apart]
        pair = pair[np.lexsort((pair[:, 2], pair[:, 1], pair[:, 0]))]
        _, first = np.unique(pair[:, :2], axis=0, return_index=True)
        return [(int(w), int(o), self._first_byte(int(o), other_access, int(edges[c]))) for w, o, c in pair[first]]

    def _first_byte(self, other: int, access: Access, cell: int) -> int:
        """The first byte at or after `cell` that `other` touches: a cell may begin before what it touches."""
        spans = self.programs[other].spans(access)
        row = int(np.searchsorted(spans[:, 1], np.uint64(cell), "right"))
        return max(cell, int(spans[row, 0]))

    def _table(self, access: Access) -> tuple[Spans, NDArray[np.int64]]:
        """All ranges of all programs, and the index of the program of each."""
        spans = [p.spans(access) for p in self.programs]
        index = np.repeat(np.arange(len(spans)), [len(s) for s in spans])
        return np.concatenate([NO_SPANS, *spans]), index

    def _place(self, address: int) -> tuple[str, int]:
        """The argument that holds a byte, and the offset in it."""
        for extent in self.extents:
            if extent.first <= address < extent.end:
                return extent.argument, address - extent.first
        return "no argument", address


@dataclass
class AccessLog:
    """The launches that were interpreted while it recorded, in order."""

    launches: list[LaunchAccess] = field(default_factory=list)

    def conflicts(self, *, atomics_declared: bool = False) -> list[Conflict]:
        """The conflicts within each launch. Launches follow each other, so nothing conflicts across two of them."""
        return [c for launch in self.launches for c in launch.conflicts(atomics_declared=atomics_declared)]


_PAIRS: tuple[tuple[Access, Access], ...] = (
    ("store", "store"),
    ("store", "load"),
    ("store", "atomic"),
    ("atomic", "load"),
    ("atomic", "atomic"),
)


def _ramp(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, …, c - 1 for every count c, one after another."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _cells(edges: Spans, spans: Spans, programs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(cell, program) for every cell [edges[i], edges[i + 1]) that a range overlaps."""
    first = np.maximum(np.searchsorted(edges, spans[:, 0], "right") - 1, 0)
    end = np.minimum(np.searchsorted(edges, spans[:, 1], "left"), len(edges) - 1)
    count = np.maximum(end - first, 0)
    return np.repeat(first, count) + _ramp(count), np.repeat(programs, count)
