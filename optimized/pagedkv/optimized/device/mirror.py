"""What the host knows of a pool without waiting for it: its counters, as they were a while ago."""

from typing import Any, NamedTuple

import torch

from pagedkv.optimized.device.outcomes import COUNTED, NUM_FREE, RowOutcome
from pagedkv.optimized.device.pool import DevicePool


class PoolCounters(NamedTuple):
    """What a pool had counted when it was asked."""

    num_free: int
    """Blocks that nothing uses."""
    outcomes: dict[RowOutcome, int]
    """How often each outcome was given since the pool was made."""


class CounterMirror:
    """The counters of a pool, copied to the host behind what was launched before, and read when they are there.

        mirror.refresh()      # after the launches of a step
        ...                   # many launches later
        seen = mirror.latest  # of some earlier `refresh`; None as long as none has arrived

    Neither waits for the device.
    """

    def __init__(self, pool: DevicePool) -> None:
        self._counters = pool.counters
        on_gpu = pool.device.type == "cuda"
        self._host = torch.empty_like(self._counters, device="cpu", pin_memory=on_gpu)
        self._arrived: Any = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]  # torch's own
        self._is_asked = False
        self._latest: PoolCounters | None = None

    def refresh(self) -> None:
        """Ask for the counters as they are behind all that is in the current stream; unless an earlier answer is still
        on its way, which comes first."""
        if self._is_asked and not self._take():
            return
        self._host.copy_(self._counters, non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()
        self._is_asked = True

    @property
    def latest(self) -> PoolCounters | None:
        """The last answer that has arrived."""
        self._take()
        return self._latest

    def _take(self) -> bool:
        """Read the answer, if it is there."""
        if not self._is_asked or (self._arrived is not None and not self._arrived.query()):
            return False
        numbers = self._host.tolist()
        self._latest = PoolCounters(numbers[NUM_FREE], dict(zip(RowOutcome, numbers[COUNTED:], strict=True)))
        self._is_asked = False
        return True
