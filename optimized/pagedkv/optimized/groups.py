"""Cache groups: layers that keep the same positions share tables; groups share one pool.

A model with layers of full attention and layers with a sliding window needs one table for each kind. A block of the
pool must take the same bytes in every group, so that any group can use it.
"""

from dataclasses import dataclass

import numpy as np

from pagedkv.optimized.arguments import integer, optional
from pagedkv.optimized.loops.arrays import MAX_INT32, Int64
from pagedkv.optimized.loops.memory import NOTHING
from pagedkv.spec.words import ceil_div


@dataclass(frozen=True)
class CacheGroup:
    """What the layers of a group see. Raises `Misuse` for numbers out of range."""

    sliding_window: int | None = None
    """Positions that a query sees, itself included; None: all."""
    sink_tokens: int = 0
    """With a window: so many positions from the beginning are seen for ever (attention sinks)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sliding_window", optional("sliding_window", self.sliding_window, 1, MAX_INT32))
        object.__setattr__(self, "sink_tokens", integer("sink_tokens", self.sink_tokens, 0, MAX_INT32))


class Windows:
    """What the windows of the groups release, in blocks."""

    def __init__(self, groups: tuple[CacheGroup, ...], block_size: int, max_rollback: int) -> None:
        self.groups, self._block_size, self._max_rollback = groups, block_size, max_rollback
        self.sinks = tuple(0 if g.sliding_window is None else ceil_div(g.sink_tokens, block_size) for g in groups)
        """Leading blocks of each group that are never released."""

    def holes(self, group: int, computed: int, *, rollback: bool = True) -> int:
        """Blocks after the sinks that hold only dead positions once `computed` positions are written: none that a
        query to come sees, not even after a rollback of `max_rollback`."""
        window = self.groups[group].sliding_window
        if window is None:
            return 0
        dead = computed - window + 1 - (self._max_rollback if rollback else 0)
        return max(0, dead // self._block_size - self.sinks[group])

    def as_array(self) -> Int64:
        """The same for the loops: see `loops.memory`."""
        windows = [group.sliding_window for group in self.groups]
        visible = [NOTHING if window is None else window - 1 + self._max_rollback for window in windows]
        return np.stack((visible, self.sinks), axis=1)
