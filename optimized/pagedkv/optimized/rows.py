"""The requests, as a struct of arrays: one row a request, so that a step over many is a few array operations.

All numbers of the rows lie in one array, a line for each kind, so that those of a batch are fetched by one call.
Tables and tokens are rectangles that double when a row outgrows them. Their unused parts are pages that the operating
system never had to provide, so a wide rectangle with short rows is cheap.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.arguments import MAX_INT32, Int32, Int64, hashable, last_of_each
from pagedkv.optimized.copying import twin_of
from pagedkv.optimized.journal import Journal
from pagedkv.optimized.paths import NOTHING
from pagedkv.spec.words import HOLE, Misuse, Namespace, RequestId

ABSENT: Final = 0
RESIDENT: Final = 1
RECOMPUTE: Final = 2
"""Preempted, to be computed again."""
SWAPPED: Final = 3
"""Preempted, its blocks saved."""

UNKNOWN: Final = -1
"""Room that nobody has worked out."""

STATE, LENGTH, RESERVED, COMPUTED, BLOCKS, PATH, ROOM, HOLES = range(8)
"""Lines of `Rows.numbers`; the holes of cache group g in line HOLES + g."""


_NO_BATCH: Final = (b"nobody", np.empty(0, np.int64))


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
    """Per row, views of `numbers`, (num_rows,) int32 each:

    - `state`, `length`, `reserved`, `computed` (positions), `blocks` (entries of each table);
    - `path`: the node of the full computed blocks, or NOTHING without a prefix cache;
    - `room`: tokens that can be appended by just writing them, into slots that are there, in blocks that nobody else
      owns and that have no entry: what is left of the table past the length. Or UNKNOWN;
    - `holes[group]` for each cache group: entries that its window released.

    `tables` (num_groups, num_rows, max_blocks) and `tokens` (num_rows, max_tokens) int32. What lies past a row's end is
    anything.
    """

    def __init__(self, sinks: Sequence[int], journal: Journal) -> None:
        self.sinks, self._journal = tuple(sinks), journal
        """Blocks at the beginning of each group's tables that no window releases."""
        self.tables: Int32 = np.zeros((len(self.sinks), 16, 16), np.int32)
        self.tokens: Int32 = np.zeros((16, 256), np.int32)
        self.row_of: dict[RequestId, int] = {}
        self.info: list[Info | None] = [None] * 16
        self.resident = 0
        """Rows in state RESIDENT."""
        self.dirty: dict[int, int] = {}
        """Of rows whose tables have changed since the last plan the first entry that has."""
        self.scratch = np.empty(16, np.int32)
        self._batch: tuple[bytes, Int64] = _NO_BATCH  # the latest batch: handles of distinct residents, and its rows
        self._unused = np.arange(15, -1, -1, dtype=np.int32)
        self._num_unused = 16
        self._show(np.zeros((HOLES + len(self.sinks), 16), np.int32))

    def find(self, argument: str, request: RequestId, allowed: str = "the id of a known request") -> int:
        row = self.row_of.get(hashable(argument, request))
        if row is None:
            raise Misuse(argument, request, allowed)
        return row

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
            if isinstance(requests, str) or not isinstance(requests, Sequence):
                raise Misuse("requests", requests, "a sequence of ids, or rows as rows() returns them")
            find = self.find if preempted else self.find_resident
            return np.array([find("requests", request) for request in requests], np.int64)
        if requests.ndim != 1 or requests.dtype != np.int32:
            raise Misuse("requests", requests, "ids, or a 1-D int32 array of rows as rows() returns them")
        if requests.tobytes() == self._batch[0]:
            return self._batch[1]
        rows: Int64 = requests.view(np.uint32).astype(np.int64)  # so that a negative one is too large
        try:
            state = self.state.take(rows)
        except IndexError:
            raise Misuse("requests", requests, f"rows between 0 and {len(self.state) - 1}") from None
        wrong = state == ABSENT if preempted else state != RESIDENT
        if np.count_nonzero(wrong):
            allowed = "rows of known requests" if preempted else "rows of resident requests"
            raise Misuse("requests", int(requests[wrong.argmax()]), allowed)
        return rows

    def distinct(self, rows: Int64) -> bool:
        """No row of a batch of residents is in it twice. The same batch comes at every step, as long as nobody comes or
        goes: it is remembered."""
        if rows is not self._batch[1]:
            if np.count_nonzero(last_of_each(rows, self.scratch)) < len(rows):
                return False
            self._batch = (rows.astype(np.int32).tobytes(), rows)
        return True

    def add(self, info: Info, tokens: Int32) -> int:
        """A row for a new request and its tokens. The caller sets its numbers."""
        if not self._num_unused:
            self._more_rows()
        self.fit_tokens(len(tokens))
        self._num_unused -= 1
        row = int(self._unused[self._num_unused])
        self._journal.set(self.row_of, info.request, row)
        self._journal.set(self.info, row, info)
        self.tokens[row, : len(tokens)] = tokens
        return row

    def set_numbers(self, row: int, state: int, length: int, reserved: int = 0, computed: int = 0, blocks: int = 0,
                    path: int = NOTHING, room: int = UNKNOWN, holes: Sequence[int] = ()) -> None:  # fmt: skip
        """All numbers of a row; its tables are new."""
        self.touch(row, 0)
        self._batch = _NO_BATCH
        before = self.numbers[:, row].copy()
        self._journal.note(self.numbers, (slice(None), row), before)
        self.resident += (state == RESIDENT) - bool(before[STATE] == RESIDENT)
        holes = holes or (0,) * len(self.sinks)
        self.numbers[:, row] = (state, length, reserved, computed, blocks, path, room, *holes)

    def set_state(self, row: int, state: int) -> None:
        """The state of a row, which is not absent."""
        self.resident += (state == RESIDENT) - bool(self.state[row] == RESIDENT)
        self._batch = _NO_BATCH
        self.set(STATE, row, state)

    def set(self, line: int, row: int, value: int) -> None:
        """One number of a row other than its state."""
        self._journal.put(self.numbers, (line, row), value)

    def remove(self, rows: Int64, states: NDArray[Any]) -> None:
        """These distinct rows, in these states, are free for other requests; the first of them is the next to go."""
        self._batch = _NO_BATCH
        self.resident -= int(np.count_nonzero(states == RESIDENT))
        self._journal.note(self.state, rows, states)
        self.state[rows] = ABSENT
        note, row_of, every = self._journal.note, self.row_of, self.info
        for row in rows.tolist():
            info = self.known(row)
            note(row_of, info.request, row)
            del row_of[info.request]
            note(every, row, info)
            every[row] = None
        end = self._num_unused + len(rows)
        self._journal.put(self._unused, slice(self._num_unused, end), rows[::-1])
        self._num_unused = end

    def live(self, group: int, row: int, first: int = 0) -> Int64:
        """The blocks of a row from table entry `first` on, without the holes."""
        table = self.tables[group, row, first : self.blocks[row]].astype(np.int64)
        return table[table != HOLE] if self.holes[group][row] else table

    def touch(self, row: int, column: int) -> None:
        """Entries of this row's tables from this column on have changed."""
        if column < self.dirty.get(row, MAX_INT32):
            self._journal.set(self.dirty, row, column)

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
            tables = np.zeros((*self.tables.shape[:2], max(count, 2 * self.tables.shape[2])), np.int32)
            for group, table in enumerate(self.tables):
                self._carry_over(table, self.blocks, tables[group])
            self.tables = tables

    def fit_tokens(self, count: int) -> None:
        """Make room for `count` tokens a row."""
        if count > self.tokens.shape[1]:
            tokens = np.zeros((len(self.tokens), max(count, 2 * self.tokens.shape[1])), np.int32)
            self._carry_over(self.tokens, self.length, tokens)
            self.tokens = tokens

    def copy(self, journal: Journal) -> "Rows":
        """The same rows, with a journal of its own."""
        twin = twin_of(self)
        twin._journal = journal
        twin._show(self.numbers.copy())
        return twin

    def _carry_over(self, old: Int32, used: Int32, new: Int32) -> None:
        """Copy only what is used, so that the rest stays untouched."""
        for row in np.flatnonzero((self.state != ABSENT) & (used > 0)).tolist():
            new[row, : used[row]] = old[row, : used[row]]

    def _show(self, numbers: Int32) -> None:
        self.numbers: Int32 = numbers
        self.state, self.length, self.reserved, self.computed, self.blocks, self.path, self.room = numbers[:HOLES]
        self.holes: list[NDArray[Any]] = list(numbers[HOLES:])

    def _more_rows(self) -> None:
        count = len(self.state)
        numbers = np.zeros((len(self.numbers), 2 * count), np.int32)
        numbers[:, :count] = self.numbers
        tables = np.zeros((len(self.tables), 2 * count, self.tables.shape[2]), np.int32)
        for group, table in enumerate(self.tables):
            self._carry_over(table, self.blocks, tables[group])
        tokens = np.zeros((2 * count, self.tokens.shape[1]), np.int32)
        self._carry_over(self.tokens, self.length, tokens)
        self._show(numbers)
        self.tables, self.tokens = tables, tokens
        self.info = self.info + [None] * count
        self.scratch = np.empty(2 * count, np.int32)
        self._unused = np.empty(2 * count, np.int32)
        self._unused[:count] = np.arange(2 * count - 1, count - 1, -1)
        self._num_unused = count
