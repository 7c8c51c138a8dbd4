"""Two things timed in turn, round by round, so that whatever disturbs the machine disturbs both."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter

Round = Callable[[], float]
"""Does its thing once and returns the seconds it took, without what had to precede it."""


@dataclass(frozen=True)
class Row:
    """One line of the table: what ours takes and what the other takes, both in `unit`."""

    what: str
    unit: str
    ours: float
    other: float
    wanted: str = ""
    met: bool | None = None
    """Whether what is wanted was measured; None where nothing is."""

    @property
    def ratio(self) -> float:
        return self.other / self.ours


def paired(ours: Round, other: Round, rounds: int) -> tuple[float, float]:
    """The median seconds of both, over `rounds` rounds; who goes first changes from round to round."""
    with quiet():
        times: list[tuple[float, float]] = []
        for turn in range(rounds):
            if turn % 2 == 0:
                first = ours()
                times.append((first, other()))
            else:
                first = other()
                times.append((ours(), first))
    mine, others = zip(*times, strict=True)
    return median(mine), median(others)


@contextmanager
def quiet() -> Iterator[None]:
    """The garbage collector leaves alone what exists by now, as in the engine of vLLM once it has started."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def elapsed(action: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = perf_counter()
    action()
    return perf_counter() - start


def against(what: str, seconds: tuple[float, float], least: float | None = None, share: int = 1) -> Row:
    """A row in microseconds for each of `share` requests; `least`: how many times the other takes ours should be."""
    ours, other = (1e6 * value / share for value in seconds)
    row = Row(what, "µs", ours, other)
    return row if least is None else Row(what, "µs", ours, other, f"≥ {least:g} ×", row.ratio >= least)
