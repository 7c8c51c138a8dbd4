"""Growth of requests: reserve and append, one row or a batch of them. A batch equals its rows in order, since that is
how it is done; see `loops.batches`."""

from typing import Final, NamedTuple

import numpy as np

from pagedkv.optimized.loops import batches
from pagedkv.optimized.loops.arrays import Int32, Int64
from pagedkv.optimized.loops.batches import COPIES_DONE, COPY_ROW, REFUSED_ROWS, ROWS_DONE, SLOTS_DONE, SOURCE, WIDTH
from pagedkv.optimized.loops.growth import CAPACITY, IN_FLIGHT, UNSERVABLE
from pagedkv.optimized.plan import StepPlan
from pagedkv.optimized.planning import Grown, plan_of
from pagedkv.optimized.state import ManagerState
from pagedkv.spec.words import Copy, Ok, Outcome, Reason, Refused, Slot, ceil_div

REASONS: Final = {CAPACITY: Reason.CAPACITY, IN_FLIGHT: Reason.IN_FLIGHT, UNSERVABLE: Reason.UNSERVABLE}

_ONE_EACH: Final = np.empty(0, np.int64)


class Notes(NamedTuple):
    """What the loops write down about a batch; see `loops.batches`."""

    lengths: Int32
    statuses: Int64
    copies: Int64
    progress: Int64


def append_rows(state: ManagerState, rows: Int64, tokens: Int32, counts: Int64 | None = None) -> StepPlan:
    """counts[i] of the tokens, or one, are appended to rows[i], in order."""
    slots, notes = append_each(state, rows, tokens, counts)
    return plan_of(state, rows, np.ones(len(rows), np.int64) if counts is None else counts, slots, grown(notes))


def append(state: ManagerState, row: int, tokens: Int32) -> Outcome:
    """Extend a row by tokens, and give the new positions slots."""
    slots, notes = append_each(state, np.array([row]), tokens, np.array([len(tokens)]))
    return outcome(notes, slots)


def append_each(state: ManagerState, rows: Int64, tokens: Int32, counts: Int64 | None) -> tuple[Int64, Notes]:
    """Do it: the slots of each group, and what became of the rows."""
    table, notes = state.rows, notes_for(state, len(rows))
    slots, each = np.empty((len(state.groups), len(tokens)), np.int64), _ONE_EACH if counts is None else counts
    while not batches.append_each(state.journal.fields(), rows, tokens, each, slots, *notes):
        next_row = notes.progress[ROWS_DONE]
        end = int(table.length[rows[next_row]]) + (1 if counts is None else int(counts[next_row]))
        table.fit_blocks(ceil_div(end, state.config.block_size))
        table.fit_tokens(end)
    state.index.settle()
    return slots, notes


def reserve_rows(state: ManagerState, rows: Int64, ends: Int64) -> StepPlan:
    """Slots for the positions of rows[i] up to ends[i]."""
    counts, slots, notes = reserve_each(state, rows, ends)
    return plan_of(state, rows, counts, slots, grown(notes))


def reserve(state: ManagerState, row: int, length: int) -> Outcome:
    """Slots for the positions up to `length`."""
    _, slots, notes = reserve_each(state, np.array([row]), np.array([min(length, 2**62)]))
    return outcome(notes, slots)


def reserve_each(state: ManagerState, rows: Int64, ends: Int64) -> tuple[Int64, Int64, Notes]:
    """Do it: how many slots belong to each row, the slots of each group, and what became of the rows."""
    starts, counts, notes = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64), notes_for(state, len(rows))
    while not batches.reserve_each(state.journal.fields(), rows, ends, starts, counts, *notes):
        state.rows.fit_blocks(ceil_div(int(ends[notes.progress[ROWS_DONE]]), state.config.block_size))
    state.index.settle()
    slots = np.empty((len(state.groups), notes.progress[SLOTS_DONE]), np.int64)
    batches.slots_of(state.journal.reading, rows, starts, counts, slots)
    return counts, slots, notes


def notes_for(state: ManagerState, count: int) -> Notes:
    """Room for the notes about so many rows."""
    copies = np.empty((count * len(state.groups), 4), np.int64)
    return Notes(np.empty(count, np.int32), np.empty(count, np.int64), copies, np.zeros(5, np.int64))


def grown(notes: Notes) -> Grown:
    """What the plan says of the rows."""
    refused, reasons = _NOBODY, tuple[Reason, ...]()
    if notes.progress[REFUSED_ROWS]:
        refused = np.flatnonzero(notes.statuses).astype(np.int32)
        reasons = tuple(REASONS[status] for status in notes.statuses[refused].tolist())
    copies = notes.copies[: notes.progress[COPIES_DONE]].astype(np.int32)
    return Grown(notes.lengths, refused, reasons, copies, int(notes.progress[WIDTH]))


def outcome(notes: Notes, slots: Int64) -> Outcome:
    """The outcome of a single row."""
    if notes.progress[REFUSED_ROWS]:
        return Refused(REASONS[int(notes.statuses[0])])
    copies = notes.copies[: notes.progress[COPIES_DONE], SOURCE:COPY_ROW].tolist()
    return Ok(slots=tuple(slots.reshape(-1).tolist()), copies=tuple(Copy(*pair) for pair in copies))


def slots_between(state: ManagerState, row: int, start: int, end: int) -> tuple[Slot, ...]:
    """Where the positions start..end-1 of a row lie, in one group after another."""
    count = max(0, end - start)
    slots = np.empty((len(state.groups), count), np.int64)
    batches.slots_of(state.journal.reading, np.array([row]), np.array([start]), np.array([count]), slots)
    return tuple(slots.reshape(-1).tolist())


_NOBODY: Final = np.empty(0, np.int32)
