"""The requests, as a struct of arrays: one row a request, so that a step over many is a few array operations.

Tables and tokens are rectangles that double when a row outgrows them. Their unused parts are pages that the operating
system never had to provide, so a wide rectangle with short rows is cheap.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.arguments import Int32, hashable
from pagedkv.optimized.index import Node
from pagedkv.spec.words import HOLE, Misuse, Namespace, RequestId

ABSENT: Final = 0
RESIDENT: Final = 1
RECOMPUTE: Final = 2
"""Preempted, to be computed again."""
SWAPPED: Final = 3
"""Preempted, its blocks saved."""


class Rows:
    """Per row, (num_rows,) each: `state` int8, `length`, `reserved`, `computed` (positions), `blocks` (entries of
    the table), `holes` (leading entries that a window released), int32. `tables` (num_rows, max_blocks) and `tokens`
    (num_rows, max_tokens) int32; what lies past a row's end is anything."""

    def __init__(self) -> None:
        self.state: NDArray[np.int8] = np.zeros(16, np.int8)
        self.length, self.reserved, self.computed, self.blocks, self.holes = (np.zeros(16, np.int32) for _ in range(5))
        self.tables: Int32 = np.zeros((16, 16), np.int32)
        self.tokens: Int32 = np.zeros((16, 256), np.int32)
        self.row_of: dict[RequestId, int] = {}
        self.request: list[RequestId] = [None] * 16
        self.namespace: list[Namespace] = [None] * 16
        self.cursor: list[Node | None] = [None] * 16
        """The path of the full computed blocks, which the index keeps for the request; None without a prefix cache."""
        self.saved: list[Int32 | None] = [None] * 16
        """Swapped out: the blocks of swap space that hold the live blocks of the table, in its order."""
        self.resident = 0
        """Rows in state RESIDENT."""
        self.scratch = np.empty(16, np.int32)
        self._unused = list(range(15, -1, -1))

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

    def handles(self, requests: Sequence[RequestId] | Int32, *, preempted: bool = False) -> Int32:
        """The rows of these ids as (count,) int32, or the rows given as such, checked. `preempted` ones too if told."""
        if not isinstance(requests, np.ndarray):
            if isinstance(requests, str) or not isinstance(requests, Sequence):
                raise Misuse("requests", requests, "a sequence of ids, or rows as rows() returns them")
            find = self.find if preempted else self.find_resident
            return np.array([find("requests", request) for request in requests], np.int32)
        if requests.ndim != 1 or requests.dtype != np.int32:
            raise Misuse("requests", requests, "ids, or a 1-D int32 array of rows as rows() returns them")
        if not len(requests):
            return requests
        if int(requests.min()) < 0 or int(requests.max()) >= len(self.state):
            raise Misuse("requests", requests, f"rows between 0 and {len(self.state) - 1}")
        state = self.state[requests]
        wrong = state == ABSENT if preempted else state != RESIDENT
        if wrong.any():
            allowed = "rows of known requests" if preempted else "rows of resident requests"
            raise Misuse("requests", int(requests[wrong.argmax()]), allowed)
        return requests

    def add(self, request: RequestId, namespace: Namespace, tokens: Int32) -> int:
        """A new row: its tokens, and no blocks yet. The caller makes it resident."""
        if not self._unused:
            self._more_rows()
        self.fit_tokens(len(tokens))
        row = self._unused.pop()
        self.row_of[request] = row
        self.request[row], self.namespace[row] = request, namespace
        self.length[row] = len(tokens)
        self.tokens[row, : len(tokens)] = tokens
        self.empty(row)
        return row

    def empty(self, row: int) -> None:
        """No blocks, and nothing computed."""
        self.reserved[row] = self.computed[row] = self.blocks[row] = self.holes[row] = 0

    def remove(self, rows: Int32) -> None:
        """These distinct rows are free for other requests; the first of them is the next to go."""
        self.resident -= int((self.state[rows] == RESIDENT).sum())
        self.state[rows] = ABSENT
        self.length[rows] = self.blocks[rows] = 0
        for row in rows[::-1].tolist():
            del self.row_of[self.request[row]]
            self.request[row] = self.namespace[row] = self.cursor[row] = self.saved[row] = None
            self._unused.append(row)

    def set_state(self, row: int, state: int) -> None:
        self.resident += (state == RESIDENT) - int(self.state[row] == RESIDENT)
        self.state[row] = state

    def table(self, row: int) -> Int32:
        """The table of a row, a view: HOLE where a window has released a block."""
        return self.tables[row, : self.blocks[row]]

    def live(self, row: int) -> Int32:
        """The blocks of a row without the holes, a view. All holes come first."""
        return self.tables[row, self.holes[row] : self.blocks[row]]

    def set_table(self, row: int, holes: int, *pieces: Int32) -> None:
        """Make a table of `holes` holes and these blocks."""
        count = holes + sum(map(len, pieces))
        self.fit_blocks(count)
        self.tables[row, :holes] = HOLE
        self.tables[row, holes:count] = np.concatenate(pieces)
        self.blocks[row], self.holes[row] = count, holes

    def fit_blocks(self, count: int) -> None:
        """Make room for tables of `count` blocks."""
        if count > self.tables.shape[1]:
            self.tables = self._wider(self.tables, count, self.blocks)

    def fit_tokens(self, count: int) -> None:
        """Make room for `count` tokens a row."""
        if count > self.tokens.shape[1]:
            self.tokens = self._wider(self.tokens, count, self.length)

    def _wider(self, old: Int32, width: int, used: Int32) -> Int32:
        new = np.zeros((len(old), max(width, 2 * old.shape[1])), np.int32)
        for row in np.flatnonzero(used).tolist():  # only what is used, so that the rest stays untouched
            new[row, : used[row]] = old[row, : used[row]]
        return new

    def _more_rows(self) -> None:
        count = len(self.state)
        for name in ("state", "length", "reserved", "computed", "blocks", "holes"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate((old, np.zeros_like(old))))
        for name, used in (("tables", self.blocks), ("tokens", self.length)):
            old = getattr(self, name)
            new = np.zeros((2 * count, old.shape[1]), np.int32)
            for row in range(count):
                new[row, : used[row]] = old[row, : used[row]]
            setattr(self, name, new)
        for values in (self.request, self.namespace, self.cursor, self.saved):
            values.extend([None] * count)
        self.scratch = np.empty(2 * count, np.int32)
        self._unused = list(range(2 * count - 1, count - 1, -1))
