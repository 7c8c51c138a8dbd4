"""The requests, as a struct of arrays: one row a request.

All numbers of the rows lie in one array, a line for each kind. Tables and tokens are rectangles that double when a row
outgrows them. Their unused parts are pages that the operating system never had to provide, so a wide rectangle with
short rows is cheap, see `untouched`. What the arrays are is said in `loops.memory`; here are the ids.
"""

import math
import mmap
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from pagedkv.optimized.arguments import hashable
from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.journal import Journal, enlarged
from pagedkv.optimized.loops import calls
from pagedkv.optimized.loops.memory import (
    BLOCKS, CLEAN, COMPUTED, DIRTY, HOLES, LENGTH, NOTHING, NUM_ROWS_UNUSED, PATH, RESERVED, RESIDENT, RESIDENTS, ROOM,
    ROW_STACK, STATE, UNKNOWN,
)  # fmt: skip
from pagedkv.spec.words import HOLE, Misuse, Namespace, RequestId

ABSENT: Final = 0
"""The state of a row that is nobody's; RESIDENT that of one with a table."""
RECOMPUTE: Final = 2
"""Preempted, to be computed again."""
SWAPPED: Final = 3
"""Preempted, its blocks saved."""


class Info(NamedTuple):
    """What is not a number."""

    request: RequestId
    namespace: Namespace
    reads: bool
    """Its prompt is matched against the prefix index."""
    publishes: bool
    """Its full blocks enter the prefix index."""
    saved: Int64 | None = None
    """Swapped out: the blocks of swap space that hold the live blocks of the tables, group by group in table order."""


class Rows:
    """Ids and namespaces of the requests, and views of their numbers, (num_rows,) int32 each."""

    def __init__(self, sinks: Sequence[int], journal: Journal) -> None:
        self.sinks, self._journal = tuple(sinks), journal
        """Blocks at the beginning of each group's tables that no window releases."""
        self.row_of: dict[RequestId, int] = {}
        self.info: list[Info | None] = [None] * len(self.state)

    @property
    def numbers(self) -> Int32:
        """(HOLES + num_groups, num_rows): see `loops.memory`."""
        return self._journal.memory.numbers

    @property
    def tables(self) -> Int32:
        """(num_groups, num_rows, max_blocks): what lies past a row's end is anything."""
        return self._journal.memory.tables

    @property
    def tokens(self) -> Int32:
        """(num_rows, max_tokens): likewise."""
        return self._journal.memory.tokens

    @property
    def state(self) -> Int32:
        return self._line(STATE)

    @property
    def length(self) -> Int32:
        return self._line(LENGTH)

    @property
    def reserved(self) -> Int32:
        return self._line(RESERVED)

    @property
    def computed(self) -> Int32:
        return self._line(COMPUTED)

    @property
    def blocks(self) -> Int32:
        """Entries of each table."""
        return self._line(BLOCKS)

    @property
    def path(self) -> Int32:
        """The node of the full computed blocks, or NOTHING without a prefix cache."""
        return self._line(PATH)

    @property
    def room(self) -> Int32:
        """Tokens that can be appended by just writing them, or UNKNOWN."""
        return self._line(ROOM)

    @property
    def holes(self) -> Int32:
        """(num_groups, num_rows): entries that the windows released."""
        return self.numbers[HOLES:]

    @property
    def resident(self) -> int:
        """Rows in state RESIDENT."""
        return int(self._journal.counters[RESIDENTS])

    def find(self, argument: str, request: RequestId, allowed: str = "the id of a known request") -> int:
        try:
            return self.row_of[request]
        except (KeyError, TypeError):
            hashable(argument, request)
            raise Misuse(argument, request, allowed) from None

    def find_resident(self, argument: str, request: RequestId) -> int:
        row = self.find(argument, request, "the id of a resident request")
        if self.state[row] != RESIDENT:
            raise Misuse(argument, request, "the id of a resident request")
        return row

    def check_new(self, argument: str, request: RequestId) -> None:
        """Misuse if this is the id of a known request."""
        if hashable(argument, request) in self.row_of:
            raise Misuse(argument, request, "the id of no known request")

    def find_preempted(self, request: RequestId) -> int:
        row = self.find("request", request, "the id of a preempted request")
        if self.state[row] == RESIDENT:
            raise Misuse("request", request, "the id of a preempted request")
        return row

    def known(self, row: int) -> Info:
        """What is not a number of a row that is not absent."""
        info = self.info[row]
        assert info is not None
        return info

    def handles(self, requests: Sequence[RequestId] | Int32, *, preempted: bool = False) -> Int64:
        """The rows of these ids as (count,) int64, or the rows given as such, checked. `preempted` ones too if told."""
        if not isinstance(requests, np.ndarray):
            if isinstance(requests, (str, memoryview)) or not isinstance(requests, Sequence):
                raise Misuse("requests", requests, "a sequence of ids, or rows as rows() returns them")
            rows: Int64
            try:
                rows = np.array([self.row_of[request] for request in requests], np.int64)
            except (KeyError, TypeError):
                rows = np.array([self.find("requests", request) for request in requests], np.int64)  # which says why
            wrong = calls.stranger(self._journal.reading, rows, preempted)
            if wrong >= 0:
                raise Misuse("requests", requests[wrong], "the id of a resident request")
            return rows
        if requests.ndim != 1 or requests.dtype != np.int32 or isinstance(requests, np.ma.MaskedArray):
            raise Misuse("requests", requests, "ids, or a 1-D int32 array of rows as rows() returns them")
        rows = requests.astype(np.int64)
        wrong = calls.stranger(self._journal.reading, rows, preempted)
        if wrong >= 0:
            allowed = "rows of known requests" if preempted else "rows of resident requests"
            raise Misuse("requests", int(rows[wrong]), allowed)
        return rows

    def add(self, info: Info, tokens: Int32) -> int:
        """A row for a new request and its tokens. The caller sets its numbers."""
        counters, journal = self._journal.counters, self._journal
        if not counters[NUM_ROWS_UNUSED]:
            self._more_rows()
        self.fit_tokens(len(tokens))
        counters[NUM_ROWS_UNUSED] -= 1
        row = int(self.numbers[ROW_STACK, counters[NUM_ROWS_UNUSED]])
        journal.set(self.row_of, info.request, row)
        journal.set(self.info, row, info)
        self.tokens[row, : len(tokens)] = tokens
        return row

    def set_numbers(self, row: int, state: int, length: int, reserved: int = 0, computed: int = 0, blocks: int = 0,
                    path: int = NOTHING, room: int = UNKNOWN, holes: Sequence[int] = ()) -> None:  # fmt: skip
        """All numbers of a row; its tables are new."""
        self.touch(row, 0)
        self.set_state(row, state)
        lines = (LENGTH, RESERVED, COMPUTED, BLOCKS, PATH, ROOM, *range(HOLES, len(self.numbers)))
        values = (length, reserved, computed, blocks, path, room, *(holes or (0,) * len(self.sinks)))
        self._journal.put(self.numbers, (lines, row), values)

    def set_state(self, row: int, state: int) -> None:
        """The state of a row, which counts as ABSENT as long as it has none."""
        self._journal.counters[RESIDENTS] += (state == RESIDENT) - int(self.state[row] == RESIDENT)
        self.set(STATE, row, state)

    def set(self, line: int, row: int, value: int) -> None:
        """One number of a row other than its state."""
        self._journal.put(self.numbers, (line, row), value)

    def forget(self, row: int) -> None:
        """The id of this row means nothing any more."""
        notes, info = self._journal.notes, self.info[row]
        assert info is not None
        notes.append((self.row_of, info.request, row))
        del self.row_of[info.request]
        notes.append((self.info, row, info))
        self.info[row] = None

    def live(self, group: int, row: int, first: int = 0) -> Int64:
        """The blocks of a row from table entry `first` on, without the holes."""
        table = self.tables[group, row, first : self.blocks[row]].astype(np.int64)
        return table[table != HOLE] if self.holes[group][row] else table

    def touch(self, row: int, column: int) -> None:
        """Entries of this row's tables from this column on have changed."""
        calls.touch(self._journal.fields(), row, column)

    def set_table(self, group: int, row: int, holes: int, *pieces: Int64) -> None:
        """Make a table of the sinks, `holes` holes and the rest of these blocks. There is room for it; the caller sees
        to the numbers."""
        table, blocks = self.tables[group, row], np.concatenate(pieces)
        sinks = self.sinks[group] if holes else 0
        table[:sinks] = blocks[:sinks]
        table[sinks : sinks + holes] = HOLE
        table[sinks + holes : holes + len(blocks)] = blocks[sinks:]

    def fit_blocks(self, count: int) -> None:
        """Make room for tables of `count` blocks."""
        if count > self.tables.shape[2]:
            self._journal.replace(tables=self.tables_copied(width=max(count, 2 * self.tables.shape[2])))

    def fit_tokens(self, count: int) -> None:
        """Make room for `count` tokens a row."""
        if count > self.tokens.shape[1]:
            self._replace_tokens(len(self.tokens), max(count, 2 * self.tokens.shape[1]))

    def copy(self, journal: Journal) -> "Rows":
        """The same rows, over a copy of the memory."""
        twin = twin_of(self)
        twin._journal = journal
        return twin

    def _line(self, number: int) -> Int32:
        line: Int32 = self._journal.memory.numbers[number]
        return line

    def tables_copied(self, num_rows: int = 0, width: int = 0) -> Int32:
        """The tables in an array of their own, at least as large."""
        num_groups, least_rows, least_width = self.tables.shape
        tables = untouched(num_groups, max(num_rows, least_rows), max(width, least_width))
        for group, table in enumerate(self.tables):
            self._carry_over(table, self.blocks, tables[group])
        return tables

    def _replace_tokens(self, num_rows: int, width: int) -> None:
        tokens = untouched(num_rows, width)
        self._carry_over(self.tokens, self.length, tokens)
        self._journal.replace(tokens=tokens)

    def _carry_over(self, old: Int32, used: Int32, new: Int32) -> None:
        """Copy only what is used, so that the rest stays untouched."""
        for row in np.flatnonzero((self.state != ABSENT) & (used > 0)).tolist():
            new[row, : used[row]] = old[row, : used[row]]

    def _more_rows(self) -> None:
        """Twice as many; none is unused when this is called."""
        count = len(self.state)
        numbers = enlarged(self.numbers, len(self.numbers), 2 * count)
        numbers[DIRTY, count:] = CLEAN
        numbers[ROW_STACK, :count] = np.arange(2 * count - 1, count - 1, -1)
        tables = self.tables_copied(num_rows=2 * count)
        self._replace_tokens(2 * count, self.tokens.shape[1])
        self._journal.replace(numbers=numbers, tables=tables)
        self._journal.set(vars(self), "info", self.info + [None] * count)
        self._journal.counters[NUM_ROWS_UNUSED] = count


LARGE: Final = 2**26
"""Bytes of an array that is not to be in memory as a whole."""


def untouched(*shape: int) -> Int32:
    """An array that takes memory only where it is written; if it is large, a small page at a time.

    That is what zeros are, unless huge pages are asked for, as NumPy does: they are faster, but then a token at the
    beginning of each row costs 2 MiB a row. And all of it counts as memory in use before it is, so that a long prompt
    among many short ones would be too much for the machine.
    """
    num_bytes = math.prod(shape) * 4
    if num_bytes < LARGE or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.zeros(shape, np.int32)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    pages = mmap.mmap(-1, num_bytes, flags=flags)
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, np.int32).reshape(shape)
