"""What a step needs on the device: tables, lengths, slots and copies, for the rows of one batch."""

from dataclasses import dataclass

import numpy as np

from pagedkv.optimized.arguments import Int32, Int64
from pagedkv.spec.words import Reason


@dataclass(frozen=True)
class StepPlan:
    """The outcome of `append_batch` or `reserve_batch` over `num_rows` rows. The arrays are the plan's own: no later
    operation writes them."""

    rows: Int32
    """(num_rows,): the row handles, in batch order."""
    block_tables: Int32
    """(num_rows, max_blocks): entries past ceil(reserved / block_size) may hold anything."""
    seq_lens: Int32
    """(num_rows,): tokens of each request, the appended ones included."""
    slot_mapping: Int64
    """(num_slots,): where the KV of each position handed out goes, row by row; -1 for rows that were refused."""
    slot_counts: Int64
    """(num_rows,): how many of these slots belong to each row."""
    copies: Int32
    """(num_copies, 2): source and destination of the copy-on-writes. They run together, before any write."""
    copy_rows: Int32
    """(num_copies,): the index in the batch of the row that each copy is for."""
    refused: Int32
    """(num_refused,): indices in the batch of the rows that did not fit. They are as they were."""
    reasons: tuple[Reason, ...]
    """Why, in the same order."""


def ragged(starts: Int64, counts: Int64) -> tuple[Int64, Int64]:
    """Runs starts[i], starts[i] + 1, … of counts[i] numbers each: (which run, the numbers), both (counts.sum(),).

    >>> ragged(np.array([7, 3]), np.array([1, 2]))
    (array([0, 1, 1]), array([7, 3, 4]))
    """
    run = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    return run, np.arange(len(run)) + (starts - before)[run]
