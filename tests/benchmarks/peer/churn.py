"""Recorded workloads, end to end, in a pool that is too small for their peak. Both managers obey the same scheduler."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from tests.benchmarks.peer.interface import BLOCK_SIZE, Manager
from tests.benchmarks.peer.our_manager import OurManager
from tests.benchmarks.peer.scheduler import Pace, Replay, Served
from tests.benchmarks.peer.timing import quiet
from tests.benchmarks.peer.vllm_manager import VllmManager
from tests.benchmarks.peer.workloads import Arrival, ceiling

POOL = 0.6
"""Of the blocks that are used at the peak where blocks are unlimited."""


@dataclass(frozen=True)
class Churn:
    """A trace on both managers. Rates are medians over the rounds; counts are the same in each."""

    trace: str
    num_requests: int
    num_blocks: int
    ceiling: float
    """Hit rate if nothing were ever evicted, from the trace alone."""
    unlimited: float
    """Hit rate of ours where blocks are unlimited."""
    ours: dict[str, Any]
    other: dict[str, Any]

    @property
    def ratio(self) -> float:
        return float(self.ours["operations_per_s"] / self.other["operations_per_s"])


def churn(trace: str, arrivals: Sequence[Arrival], faster: int, pace: Pace, rounds: int) -> Churn:
    """Replay `arrivals`, `faster` times as fast as they were recorded."""
    if faster != 1:
        trace = f"{trace}, {faster} × as fast"
        arrivals = [replace(arrival, arrival_s=arrival.arrival_s / faster) for arrival in arrivals]
    needs = [-(-arrival.final_length // BLOCK_SIZE) for arrival in arrivals]
    unlimited = Replay(OurManager(sum(needs)), sum(needs), pace).run(arrivals)
    num_blocks = max(round(POOL * unlimited.peak_blocks), *needs)
    runs: dict[str, list[Served]] = {"ours": [], "other": []}
    makers: dict[str, Callable[[int], Manager]] = {"ours": OurManager, "other": VllmManager}
    for turn in range(rounds):
        for name in ("ours", "other") if turn % 2 == 0 else ("other", "ours"):
            with quiet():
                runs[name].append(Replay(makers[name](num_blocks), num_blocks, pace).run(arrivals))
    ours, other = (summary(runs[name]) for name in ("ours", "other"))
    return Churn(trace, len(arrivals), num_blocks, ceiling(arrivals), unlimited.hit_rate, ours, other)


def summary(runs: Sequence[Served]) -> dict[str, Any]:
    """The counts, which are the same in each run, and the median rate."""
    counts = [{name: value for name, value in asdict(run).items() if name != "seconds"} for run in runs]
    assert counts.count(counts[0]) == len(counts), "a replay depends on something besides the trace"
    middle = sorted(runs, key=lambda run: run.operations_per_s)[len(runs) // 2]
    return {
        **counts[0],
        "hit_rate": runs[0].hit_rate,
        "operations_per_s": median(run.operations_per_s for run in runs),
        "seconds": {name: round(value, 6) for name, value in middle.seconds.items()},
    }
