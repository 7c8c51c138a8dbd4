"""Time: medians over replays of a CUDA graph, by events of the device; on the CPU by a clock that a test may replace.

A graph leaves the host out, so that a kernel of a few microseconds is not measured by how fast it can be launched. What
cannot be captured is timed as it is called, and its line says so.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any, NamedTuple, Protocol

import torch

Call = Callable[[], object]
LEAST_ROUNDS, MOST_ROUNDS = 10, 200
ROUND_SECONDS = 2e-3
"""A round lasts about so long at least, so that what begins and ends it does not count."""
MOST_REPEATS = 64


class Timing(NamedTuple):
    """What one call takes."""

    seconds: float
    """Median over the rounds."""
    spread: float
    """The middle half of the rounds, as a fraction of the median."""
    captured: bool
    """By replays of a CUDA graph."""


class Timer(Protocol):
    """Times calls that are alike, such as one launch on several copies of its inputs."""

    def time(self, calls: Sequence[Call]) -> Timing: ...


def summary(rounds: Sequence[float], calls: int, captured: bool) -> Timing:
    """Of the seconds that rounds of so many calls took.

    >>> summary([2.0, 4.0, 6.0], 2, False)
    Timing(seconds=2.0, spread=0.5, captured=False)
    """
    middle = median(rounds)
    low, _, high = quantiles(rounds, n=4, method="inclusive") if len(rounds) > 1 else (middle, middle, middle)
    return Timing(middle / calls, (high - low) / middle, captured)


def repeats_for(seconds: float) -> int:
    """How often a round runs its calls, if they take so long once.

    >>> [repeats_for(seconds) for seconds in (0.0, 1e-4, 3e-3)]
    [64, 20, 1]
    """
    return max(1, min(MOST_REPEATS, round(ROUND_SECONDS / max(seconds, 1e-9))))


class HostTimer:
    """For the CPU, where a call has ended when it returns."""

    def __init__(self, rounds: int = 3, clock: Callable[[], float] = time.perf_counter) -> None:
        self.rounds, self.clock = rounds, clock

    def time(self, calls: Sequence[Call]) -> Timing:
        for call in calls:
            call()
        taken = []
        for _ in range(self.rounds):
            start = self.clock()
            for call in calls:
                call()
            taken.append(self.clock() - start)
        return summary(taken, len(calls), captured=False)


class CudaTimer:
    """For a GPU. `seconds`: how long one measurement repeats, at least."""

    def __init__(self, seconds: float = 0.15) -> None:
        self.seconds = seconds

    def time(self, calls: Sequence[Call]) -> Timing:
        for call in calls:  # compiles, and makes what is made once
            call()
        once, captured = recorded(calls)
        once()
        repeats = repeats_for(elapsed(once))
        if repeats > 1:
            once, captured = recorded([*calls] * repeats)
            once()
        taken: list[float] = []
        while len(taken) < LEAST_ROUNDS or (sum(taken) < self.seconds and len(taken) < MOST_ROUNDS):
            taken.append(elapsed(once))
        return summary(taken, repeats * len(calls), captured)


def elapsed(play: Callable[[], None]) -> float:
    """Seconds on the device."""
    start, end = event(), event()
    start.record()
    play()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def event() -> Any:
    """Torch ships no types for it."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # see above


def recorded(calls: Sequence[Call]) -> tuple[Callable[[], None], bool]:
    """(what runs all calls once, whether it replays a graph). The calls have run before."""

    def play() -> None:
        for call in calls:
            call()

    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            play()
    except Exception:
        torch.cuda.synchronize()
        return play, False
    return graph.replay, True
