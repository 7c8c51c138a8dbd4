"""Commits of many rows at once: what is written may be found, and what is dead goes."""

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized import growth
from pagedkv.optimized.arguments import Int32, Int64, counting
from pagedkv.optimized.paths import NOTHING
from pagedkv.optimized.rows import COMPUTED, LENGTH, PATH, RESERVED, Rows
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import Misuse


def commit_rows(state: ManagerState, rows: Int64, computed: Int64, numbers: Int32) -> None:
    """The KV of the positions of rows[i] below computed[i] is written. `numbers` as they are in the rows."""
    table, bs, before = state.rows, state.config.block_size, numbers[COMPUTED]
    now_full = computed // bs
    special = before // bs != now_full  # a block is now full, and may be found …
    for group in state.groups if state.windows.sliding else ():
        special |= state.windows.each_holes(group, computed) > table.holes[group].take(rows)  # … or dead
    full = special.nonzero()[0]
    alone = full
    several = np.count_nonzero(now_full[full] - before[full] // bs > 1)  # such a row may pass where another one starts
    if len(full) and not several and not state.windows.sliding:
        alone = full[~publish_rows(state, rows[full], now_full[full] - 1, numbers[:, full])]
    one_by_one = list(zip(rows[alone].tolist(), computed[alone].tolist(), strict=True)) if len(alone) else []
    if one_by_one:
        together = np.delete(np.arange(len(rows)), alone)
        rows, before, computed = rows[together], before[together], computed[together]
    state.journal.note(table.computed, rows, before)
    table.computed[rows] = computed
    for row, end in one_by_one:
        growth.commit(state, row, end)


def publish_rows(state: ManagerState, rows: Int64, last: Int64, numbers: Int32) -> NDArray[np.bool_]:
    """Publish the block that each of these rows has now filled, its last[i]-th, where nobody knows it: each row has
    filled one. `numbers` as they are in the rows. Returns for which rows that is done."""
    table, paths, bs = state.rows, state.paths, state.config.block_size
    starts = numbers[PATH].astype(np.int64)
    simple = (starts != NOTHING) & (paths.first_child.take(starts) == NOTHING)
    if (number := len(set(starts.tolist()))) < len(starts):
        simple &= once(starts)
    if number < len(starts) or np.count_nonzero(simple) < len(simple):
        rows, starts, last = rows[simple], starts[simple], last[simple]
    if len(rows):
        places = (rows * table.tokens.shape[1] + last * bs)[:, None] + counting(bs)
        nodes = paths.extend_each(starts, table.tokens.reshape(-1).take(places))
        state.journal.note(table.path, rows, starts)
        table.path[rows] = nodes
        entries = rows * table.tables.shape[2] + last
        for group in state.groups:
            state.index.publish(nodes, group, table.tables[group].reshape(-1).take(entries).astype(np.int64))
    done: NDArray[np.bool_] = simple
    return done


def once(values: Int64) -> NDArray[np.bool_]:
    """Which of these numbers stand there once only, (count,)."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    alone: NDArray[np.bool_] = counts[inverse] == 1
    return alone


def checked(table: Rows, rows: Int64, computed: Int64) -> Int32:
    """The numbers of these rows. Misuse if any row, judged in row order, goes back or passes what is reserved."""
    numbers = table.numbers.take(rows, axis=1)
    last = np.minimum(numbers[RESERVED], numbers[LENGTH])
    at_least: dict[int, int] = {}
    if table.distinct(rows):
        wrong = ((computed < numbers[COMPUTED]) | (computed > last)).nonzero()[0].tolist()
    else:
        wrong = []
        for i, (row, value) in enumerate(zip(rows.tolist(), computed.tolist(), strict=True)):
            if not at_least.get(row, int(table.computed[row])) <= value <= last[i]:
                wrong.append(i)
                break
            at_least[row] = value
    if wrong:
        i = wrong[0]
        least = at_least.get(int(rows[i]), int(table.computed[rows[i]]))
        allowed = f"an integer between the computed {least} and the reserved {last[i]}"
        raise Misuse("computed", int(computed[i]), allowed)
    return numbers
