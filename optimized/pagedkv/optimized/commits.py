"""Commits: what is written may be found, and what is dead goes."""

from typing import NoReturn

from pagedkv.optimized.loops.arrays import Int64
from pagedkv.optimized.loops import calls
from pagedkv.optimized.loops.memory import COMPUTED, LENGTH, NOTHING, PATH, RESERVED
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import Misuse


def commit(state: ManagerState, row: int, computed: int) -> None:
    """The KV of the positions of a row below `computed` is written. The caller has checked that."""
    known = NOTHING
    while not calls.commit_one(state.journal.fields(), row, computed, known):
        known = next_path(state, row)
    state.index.settle()


def commit_rows(state: ManagerState, rows: Int64, computed: Int64) -> None:
    """The same of rows[i] below computed[i], in row order. Raises `Misuse` for the first that goes back, or passes what
    is reserved."""
    done, known = 0, NOTHING
    while (done := calls.commit_each(state.journal.fields(), rows, computed, done, known)) < len(rows):
        if done < 0:
            refuse(state, int(rows[~done]), int(computed[~done]))
        known = next_path(state, int(rows[done]))
    state.index.settle()


def next_path(state: ManagerState, row: int) -> int:
    """The path that the first block past the computed ones of a row holds, as far as it is known."""
    memory, bs = state.journal.memory, state.config.block_size
    start = int(memory.numbers[COMPUTED, row]) // bs * bs
    return state.paths.child(int(memory.numbers[PATH, row]), memory.tokens[row, start : start + bs])


def refuse(state: ManagerState, row: int, computed: int) -> NoReturn:
    """This is no number of computed positions for that row, where the rows before it stand already."""
    numbers = state.rows.numbers[:, row].tolist()
    last = min(numbers[RESERVED], numbers[LENGTH])
    allowed = f"an integer between the computed {numbers[COMPUTED]} and the reserved {last}"
    raise Misuse("computed", computed, allowed)
