"""One run: jobs in the order of importance until the time is up, and what became of each."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from tests.benchmarks.gpu.bandwidth import free_bytes, l2_bytes
from tests.benchmarks.gpu.checking import Checker
from tests.benchmarks.gpu.contenders import Contender
from tests.benchmarks.gpu.grid import Row
from tests.benchmarks.gpu.inputs import Inputs, copies_for, make
from tests.benchmarks.gpu.timing import Timer, Timing

KEPT_FREE = 0.15
"""Of the memory that is free: what outputs, partial results and the others' own buffers need."""

NO_TIME, NO_MEMORY = "no time was left", "it does not fit the memory that is free"
LONGEST = 160
"""Characters of a reason that are kept."""


class Job(NamedTuple):
    """One contender on one row."""

    row: Row
    contender: Contender


@dataclass(frozen=True)
class Outcome:
    """A job with its timing, or with why there is none."""

    row: Row
    contender: str
    timing: Timing | None
    why: str = ""


@dataclass
class Deadline:
    """So many seconds from now, by a clock that a test may replace."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    start: float = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.clock()

    @property
    def left(self) -> float:
        return self.seconds - (self.clock() - self.start)


def jobs(rows: Iterable[Row], contenders: Sequence[Contender]) -> list[Job]:
    """Tier by tier: first ours on every row of the tier, then the others, each as far as it goes."""
    ours, others = contenders[:1], contenders[1:]
    listed = list(rows)
    found: list[Job] = []
    for tier in sorted({row.tier for row in listed}):
        for group in (ours, others):
            found += [Job(row, c) for row in listed for c in group if row.tier == tier <= c.until_tier]
    return found


@dataclass
class Session:
    """What a run has at hand."""

    device: torch.device
    timer: Timer
    deadline: Deadline
    tell: Callable[[str], None] = lambda line: None
    lost: str = ""
    """Why the device takes no more work; empty while it does."""
    _inputs: tuple[Row, Inputs] | None = None

    def run(self, planned: Sequence[Job]) -> Iterator[Outcome]:
        """Each job's outcome, in order. A job that has begun is ended."""
        checker = Checker(self.device)
        everyone = {job.contender.name: job.contender for job in planned}
        reasons = {name: contender.available(self.device) or "" for name, contender in everyone.items()}
        for job in planned:
            name, timing = job.contender.name, None
            why = reasons[name] or self.lost or ("" if self.deadline.left > 0 else NO_TIME)
            if not why:
                why = checker.objection(job.contender, job.row) or ""
                if not why:
                    timing, why = self._timed(job)
                self.tell(f"{self.deadline.left:4.0f} s left  {job.row.label}: {name}: {why or 'timed'}")
                self.lost = self.lost or lost(self.device, name)
            yield Outcome(job.row, name, timing, why[:LONGEST])

    def _timed(self, job: Job) -> tuple[Timing | None, str]:
        try:
            inputs = self._of(job.row)
            if inputs is None:
                return None, NO_MEMORY
            return self.timer.time(job.contender.prepare(inputs)), ""
        except torch.OutOfMemoryError:
            return None, NO_MEMORY
        except Exception as error:  # whatever another project raises is the reason of its own line
            return None, f"{type(error).__name__}: {error}".splitlines()[0]

    def _of(self, row: Row) -> Inputs | None:
        """The inputs of a row, kept until the next row; None if they do not fit."""
        if self._inputs is None or self._inputs[0] != row:
            self._inputs = None
            room = int(free_bytes(self.device) * (1 - KEPT_FREE))
            if row.shape.cache_bytes > room:
                return None
            copies = copies_for(row.shape, l2_bytes(self.device), room)
            self._inputs = row, make(row.shape, self.device, copies)
        return self._inputs[1]


def lost(device: torch.device, name: str) -> str:
    """After a fault on the device nothing runs in this process any more: why, or nothing if all is well."""
    if device.type != "cuda":
        return ""
    try:
        torch.cuda.synchronize(device)
    except Exception as error:
        return f"the device failed while {name} ran: {error}".splitlines()[0]
    return ""
