"""Where the time of a decode step goes: `python -m tests.benchmarks.where_time_goes`. Shares of one run, by function.

The profiler itself costs time with every Python call, so that the shares of small functions are too large; NumPy
operators are not calls, and count for the function that they stand in.
"""

import cProfile
import pstats
import sys
from pathlib import Path

import numpy as np

from tests.benchmarks.decoding import running

STEPS = 1_000


def shares(count: int, most: int = 14) -> list[tuple[float, str]]:
    """(share of the time, function) of a step of `count` requests, the largest first."""
    manager, rows = running(count, STEPS)
    tokens, profile = np.arange(count, dtype=np.int32), cProfile.Profile()
    with profile:
        for _ in range(STEPS):
            plan = manager.append_batch(rows, tokens)
            manager.commit_batch(rows, plan.seq_lens)
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # which the stubs leave out
    total = sum(own for _, _, own, _, _ in stats.values())
    named = [(own / total, f"{Path(file).stem}.{name}") for (file, _, name), (_, _, own, _, _) in stats.items()]
    return sorted(named, reverse=True)[:most]


if __name__ == "__main__":
    for share, function in shares(int(sys.argv[1]) if len(sys.argv) > 1 else 256):
        print(f"{share:6.1%}  {function}")
