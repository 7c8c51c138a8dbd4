"""The timers of the GPU lane: the one of the host by a made-up clock, the one of a device by a made-up device."""

from collections.abc import Sequence

import pytest
import torch

from tests.benchmarks.gpu.bandwidth import copy_bandwidth
from tests.benchmarks.gpu.timing import Call, CudaTimer, HostTimer, Timing


def test_the_host_timer_takes_the_median_of_its_rounds() -> None:
    times = iter([0.0, 2.0, 2.0, 8.0, 8.0, 9.0])
    ran: list[int] = []
    timing = HostTimer(rounds=3, clock=lambda: next(times)).time([lambda: ran.append(0), lambda: ran.append(1)])
    assert (timing.seconds, timing.captured) == (1.0, False)
    assert ran == [0, 1] * 4


class Event:
    """An event of a device whose clock is what ran on it: `Event.now`, in milliseconds."""

    now = 0.0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = Event.now

    def elapsed_time(self, other: "Event") -> float:
        return other.at - self.at

    def synchronize(self) -> None: ...


class Graph:
    """Replays what was called while it was captured; captures nothing that raises."""

    capturing: "Graph | None" = None

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __enter__(self) -> None:
        Graph.capturing = self

    def __exit__(self, *_: object) -> None:
        Graph.capturing = None

    def replay(self) -> None:
        for call in self.calls:
            call()


@pytest.mark.parametrize("capturable", [True, False])
@pytest.mark.parametrize("milliseconds", [0.01, 0.5, 30.0])
def test_the_device_timer_repeats_what_is_short(
    capturable: bool, milliseconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, stand_in in {"Event": Event, "CUDAGraph": Graph, "graph": lambda graph: graph}.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    ran: list[int] = []

    def work(which: int) -> None:
        if Graph.capturing is not None:
            if not capturable:
                raise RuntimeError("operation not permitted when stream is capturing")
            Graph.capturing.calls.append(lambda: work(which))
            return
        ran.append(which)
        Event.now += milliseconds

    timing = CudaTimer(seconds=0.1).time([lambda: work(0), lambda: work(1)])
    assert timing.seconds == pytest.approx(milliseconds / 1e3)
    assert timing.captured is capturable
    assert ran == [0, 1] * (len(ran) // 2)
    assert sum(ran) * 2 * milliseconds >= 100 or len(ran) >= 200 * 64


class Second:
    """Everything takes a second."""

    def time(self, calls: Sequence[Call]) -> Timing:
        return Timing(1.0, 0.0, captured=True)


def test_a_copy_counts_bytes_read_and_bytes_written() -> None:
    assert copy_bandwidth(torch.device("cpu"), Second(), 4096) == 2 * 4096
