"""What the host knows of a pool without waiting for it: its counters, as they were a while ago."""

from collections import deque
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from pagedkv.optimized.attention.backends import made_current
from pagedkv.optimized.device.outcomes import COUNTED, NUM_FREE, RowOutcome
from pagedkv.optimized.device.pool import DevicePool
from pagedkv.spec.words import Misuse

MOST_UNDER_WAY: Final = 4
"""Answers that are on their way; one more takes the place of the youngest, which then comes later and knows more."""


class PoolCounters(NamedTuple):
    """What a pool had counted when it was asked."""

    asked: int
    """The number of the `refresh` that asked, from 1 on."""
    num_free: int
    """Blocks that nothing uses."""
    outcomes: dict[RowOutcome, int]
    """How often each outcome was given since the pool was made."""


class _Answer:
    """Memory of the host that the device writes to, and what says that it has."""

    def __init__(self, counters: Tensor) -> None:
        on_gpu = counters.device.type == "cuda"
        self.numbers = torch.empty_like(counters, device="cpu", pin_memory=on_gpu)
        self.arrived: Any = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]  # torch's own
        self.asked = 0

    def ask(self, counters: Tensor, number: int) -> None:
        """For the counters as they are behind all that is in the current stream of their device."""
        with made_current(counters.device):
            self.numbers.copy_(counters, non_blocking=True)
            if self.arrived is not None:
                self.arrived.record()
        self.asked = number


class CounterMirror:
    """The counters of a pool, copied to the host behind what was launched before, and read when they are there.

        mirror.refresh()      # after the launches of a step
        ...                   # many launches later
        seen = mirror.latest  # of the last `refresh` that has been answered; None as long as none has

    Neither waits for the device. `refresh` is not for a CUDA graph: it is called between replays.
    """

    def __init__(self, pool: DevicePool) -> None:
        self._counters = pool.counters
        self._idle = [_Answer(self._counters) for _ in range(MOST_UNDER_WAY)]
        self._under_way: deque[_Answer] = deque()
        self._asked = 0
        self._latest: PoolCounters | None = None

    def refresh(self) -> None:
        """Ask for the counters as they are behind all that is in the current stream. Raises `Misuse` during capture."""
        if self._counters.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise Misuse("refresh", "during capture of a CUDA graph", "a call between replays")
        self._take()
        answer = self._idle.pop() if self._idle else self._under_way.pop()
        self._asked += 1
        answer.ask(self._counters, self._asked)
        self._under_way.append(answer)

    @property
    def latest(self) -> PoolCounters | None:
        """The youngest answer that has arrived."""
        self._take()
        return self._latest

    def _take(self) -> None:
        """Read the answers that are there, the oldest first."""
        while self._under_way and (self._under_way[0].arrived is None or self._under_way[0].arrived.query()):
            answer = self._under_way.popleft()
            numbers = answer.numbers.tolist()
            outcomes = dict(zip(RowOutcome, numbers[COUNTED:], strict=True))
            self._latest = PoolCounters(answer.asked, numbers[NUM_FREE], outcomes)
            self._idle.append(answer)
