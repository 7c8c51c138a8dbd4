"""What a workload run has measured. Times in seconds of the simulated clock, room in blocks, slots or tokens.

Block utilisation alone hides what is empty inside the blocks, so slots are reported beside it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Sample(NamedTuple):
    """The pool during one step."""

    time_s: float
    duration_s: float
    active: int
    """Conversations that hold blocks."""
    waiting: int
    used_blocks: int
    tokens: int
    """Tokens of the active conversations."""


class Span(NamedTuple):
    """When a finished request was served, and how long it became."""

    arrival_s: float
    admitted_s: float
    finished_s: float
    length: int


@dataclass(frozen=True)
class Point:
    """One point of the time series. Utilisations are of the whole pool, 0..1."""

    time_s: float
    active: int
    waiting: int
    block_utilisation: float
    slot_utilisation: float


@dataclass(frozen=True)
class WorkloadMeasures:
    """One run of the engine."""

    requests: int
    finished: int
    unservable: tuple[str, ...]
    """Requests that are larger than the pool, by name."""
    steps: int
    operations: int
    """Rows of batches counted one by one."""
    appended_tokens: int
    preemptions: int
    recomputed_tokens: int
    """Tokens computed again after a preemption; what the index still had is not among them."""
    simulated_s: float
    peak_active: int
    peak_waiting: int
    peak_blocks: int
    mean_active: float
    """Means are over time."""
    mean_block_utilisation: float
    mean_slot_utilisation: float
    mean_waste: float
    """Part of the slots of used blocks that hold no token; without sharing, all in last blocks."""
    peak_waste_slots: int
    queue_p50_s: float
    queue_p99_s: float
    series: tuple[Point, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain lists, numbers and strings."""
        return asdict(self)


@dataclass(frozen=True)
class ReservationMeasures:
    """The same arrivals where each conversation reserves `max_length` tokens from its first moment to its last."""

    max_length: int
    too_long: int
    """Requests that are longer than that, which it cannot serve."""
    reserved_at_peak_tokens: int
    """What it would have taken to serve when paging did: its most active moment, `max_length` for each."""
    fit_in_pool: int
    """Conversations that fit in the pool at once, whatever their length."""
    peak_active: int
    """In the same pool, on its own schedule."""
    queue_p50_s: float
    queue_p99_s: float
    mean_slot_utilisation: float
    simulated_s: float


def summarise_queue(spans: Sequence[Span]) -> tuple[float, float]:
    """(median, 99th percentile) of the time from arrival to first admission; each is a time that occurred."""
    if not spans:
        return 0.0, 0.0
    waits = [span.admitted_s - span.arrival_s for span in spans]
    p50, p99 = np.percentile(waits, [50, 99], method="inverted_cdf")
    return float(p50), float(p99)


def time_mean(values: Floats, durations: Floats) -> float:
    """The mean over time; 0 of nothing."""
    total = float(durations.sum())
    return float((values * durations).sum()) / total if total else 0.0


def peak_served(spans: Sequence[Span]) -> int:
    """The most spans that overlap.

    >>> peak_served([Span(0, 0, 2, 1), Span(0, 1, 3, 1), Span(0, 2, 4, 1)])  # at 2 the first has just gone
    2
    """
    events = sorted([(span.admitted_s, 1) for span in spans] + [(span.finished_s, -1) for span in spans])
    return int(np.cumsum([change for _, change in events]).max(initial=0))


def series(samples: Sequence[Sample], num_blocks: int, block_size: int, points: int) -> tuple[Point, ...]:
    """`points` moments at equal distances in time, each as the step was that ran then."""
    if not samples:
        return ()
    starts = np.array([sample.time_s for sample in samples])
    moments = np.linspace(starts[0], samples[-1].time_s + samples[-1].duration_s, points, endpoint=False)
    chosen = np.searchsorted(starts, moments, side="right") - 1
    room = num_blocks * block_size

    def point(moment: float, s: Sample) -> Point:
        return Point(round(moment, 3), s.active, s.waiting, s.used_blocks / num_blocks, s.tokens / room)

    return tuple(point(float(moment), samples[i]) for moment, i in zip(moments, chosen, strict=True))
