"""What `admit` and `append` answer."""

from typing import NamedTuple

from torch import Tensor


class PoolPlan(NamedTuple):
    """The outcome of `admit` or `append` over `num_asked` rows, all on the device."""

    outcome: Tensor
    """(num_asked,) int32: a `RowOutcome` each."""
    seq_lens: Tensor
    """(num_asked,) int32: the length of each row that is `OK`; 0 of the others, which attention then passes over."""
    slot_mapping: Tensor
    """(total,) int64: where the KV of each new position goes, row by row as the counts that were asked for say; -1 for
    rows that are not `OK`, and behind the last."""
    copies: Tensor
    """(num_asked, 2) int32: source and destination of each row's copy-on-write, -1, -1 if it has none. They run
    together, before any write."""
