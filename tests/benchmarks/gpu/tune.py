"""`python -m tests.benchmarks.gpu.tune`: find tiles, warps and stages on this card, and write them to `tiles.csv`.

For each goal: what spills is left out without being run; the rest is timed on one launch, the best of them on all, and
a tiling takes the place of the table's only if it is faster beyond the noise and its result is within the rounding
bound. See `make tune`.
"""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from pagedkv.optimized.attention.cutting import architecture_of
from pagedkv.optimized.attention.tuned import Tiling
from tests.benchmarks.gpu.bandwidth import free_bytes, l2_bytes
from tests.benchmarks.gpu.candidates import Goal, candidates, differs, does_not_fit, goals, launches_of
from tests.benchmarks.gpu.inputs import Inputs, copies_for, make
from tests.benchmarks.gpu.machine import card
from tests.benchmarks.gpu.session import Deadline
from tests.benchmarks.gpu.tiles_table import TABLE, rewritten
from tests.benchmarks.gpu.timing import CudaTimer, Timer, Timing

SECONDS = 540.0
FINALISTS = 6
LEAST_GAIN = 0.01
"""Of the time: a smaller gain is not worth a row, however quiet the card."""


@dataclass(frozen=True)
class Trial:
    """What is asked about a tiling; on a card by `on_card`, in tests by whatever a test likes."""

    refuse: Callable[[Sequence[Tiling]], list[str | None]]
    """Why each must not be used, found without running it."""
    time: Callable[[Tiling | None, int], Timing]
    """The time of a tiling on the goal's launch of that number; None: that of the table."""
    objection: Callable[[Tiling], str | None]
    """Why its result is wrong."""
    launches: int


@dataclass
class Found:
    """What a search came to."""

    chosen: Tiling | None = None
    """None: the table stays."""
    speed: float = 1.0
    """Time of the table's tiling over that of the chosen one, the geometric mean over the launches."""
    refused: dict[Tiling, str] = field(default_factory=dict)


def search(tilings: Sequence[Tiling], trial: Trial) -> Found:
    """The fastest tiling that may be used, if it is faster than the table's."""
    found = Found()
    usual = [trial.time(None, launch) for launch in range(trial.launches)]
    first: dict[Tiling, float] = {}
    for tiling, unfit in zip(tilings, trial.refuse(tilings), strict=True):
        seconds, failed = (math.inf, unfit) if unfit else _attempt(trial, tiling)
        if failed:
            found.refused[tiling] = failed
        else:
            first[tiling] = seconds
    best = sorted(first, key=first.__getitem__)[:FINALISTS]
    rated: list[tuple[float, Tiling]] = []
    for tiling in best:
        why = trial.objection(tiling)
        if why:
            found.refused[tiling] = why
            continue
        timings = [trial.time(tiling, launch) for launch in range(trial.launches)]
        ratios = [table.seconds / new.seconds for table, new in zip(usual, timings, strict=True)]
        noise = max(timing.spread for timing in (*usual, *timings))
        speed = math.exp(sum(map(math.log, ratios)) / len(ratios))
        if speed > 1 + max(LEAST_GAIN, noise):
            rated.append((speed, tiling))
    if rated:
        found.speed, found.chosen = max(rated, key=lambda each: each[0])
    return found


def _attempt(trial: Trial, tiling: Tiling) -> tuple[float, str | None]:
    try:
        return trial.time(tiling, 0).seconds, None
    except Exception as error:  # too much shared memory, say, where the audit does not know the card
        return math.inf, f"{type(error).__name__}: {error}".splitlines()[0]


def on_card(goal: Goal, device: torch.device, timer: Timer, pool: Executor) -> Trial:
    """Compile in the processes of the pool, run here."""
    rows, kept = goal.rows(), dict[int, Inputs]()
    architecture = architecture_of(device)

    def inputs(launch: int) -> Inputs:
        if launch not in kept:
            shape = rows[launch].shape
            kept[launch] = make(shape, device, copies_for(shape, l2_bytes(device), free_bytes(device) // 4))
        return kept[launch]

    def time(tiling: Tiling | None, launch: int) -> Timing:
        given = inputs(launch)
        return timer.time([launches_of(goal, given, copy, tiling).run for copy in range(len(given.tables))])

    def refuse(tilings: Sequence[Tiling]) -> list[str | None]:
        return list(pool.map(partial(does_not_fit, goal, architecture=architecture), tilings, chunksize=2))

    return Trial(refuse, time, partial(differs, goal, device=device), len(rows))


def row_of(goal: Goal, architecture: str, tiling: Tiling, source: str) -> dict[str, str]:
    """The row of the table. `source`: where and when, and no figure."""
    return {**goal.key(architecture), **{k: str(v) for k, v in asdict(tiling).items()}, "source": source}


def tune(
    wanted: Sequence[Goal], trial_of: Callable[[Goal], Trial], deadline: Deadline, tell: Callable[[str], None]
) -> list[tuple[Goal, Tiling]]:
    """The goals for which a better tiling was found, in turn until the time is up."""
    found: list[tuple[Goal, Tiling]] = []
    for goal in wanted:
        if deadline.left <= 0:
            tell(f"{goal}: no time was left")
            continue
        result = search(candidates(goal), trial_of(goal))
        tell(f"{goal}: {result.chosen or 'the table stays'}, {result.speed:.3f} ×, {len(result.refused)} refused")
        if result.chosen is not None:
            found.append((goal, result.chosen))
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Tune and rewrite the table. Raises `SystemExit` without a device."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu.tune", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="what it may take, about (%(default)s)")
    parser.add_argument("--table", type=Path, default=TABLE, help="the table that is rewritten (%(default)s)")
    options = parser.parse_args(given)
    if not torch.cuda.is_available():
        parser.error("tiles are found on a card, and there is no CUDA or ROCm device here")
    device, timer, deadline = torch.device("cuda"), CudaTimer(seconds=0.05), Deadline(options.seconds)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        found = tune(goals(), lambda goal: on_card(goal, device, timer, pool), deadline, print)
    write(options.table, device, found)
    print(f"{len(found)} rows written to {options.table}; the committed audit of the kernels is to be made anew")
    return 0


def write(table: Path, device: torch.device, found: Sequence[tuple[Goal, Tiling]]) -> None:
    """What was found, into the table."""
    source = f"tuned {datetime.now(UTC):%Y-%m-%d} on {card(device)}"
    rows = [row_of(goal, architecture_of(device), tiling, source) for goal, tiling in found]
    table.write_text(rewritten(table.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
