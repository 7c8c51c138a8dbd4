"""A soak: millions of operations on small pools, in many short lives with ever other options.

There is no specification beside it, so it is fast. What is chosen is legal by what the manager itself shows, and so
must not raise; one operation in sixty is misuse, and must. `check()` looks at the books now and then, forecasts are
compared with what happens, and every life ends with the drain rule: all requests freed, all pins undone, all steps
ended, every block is available and a prompt as large as the pool is admitted.

    python -m tests.optimized.soak --operations 2000000 --seed 0

Progress goes to stderr, the summary to stdout. Exit code 1 if a law was broken; what is printed then repeats it.
"""

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.optimized.soak_life import Life


@dataclass
class Report:
    """What a soak has run."""

    seed: int
    lives: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    """Operations, by kind and outcome."""
    violation: str = ""

    @property
    def operations(self) -> int:
        return self.counts.total()

    def __str__(self) -> str:
        rate = self.operations / self.seconds if self.seconds else 0.0
        kinds = "\n".join(f"  {name:<28}{count:>10,}" for name, count in sorted(self.counts.items()))
        verdict = self.violation or "holds"
        run = f"{self.operations:,} operations in {self.lives:,} lives, seed {self.seed}"
        return f"{kinds}\n{run}: {self.seconds:.1f} s, {rate:,.0f} a second\n{verdict}"


def soak(
    operations: int,
    seed: int,
    *,
    check_every: int = 500,
    first: int = 0,
    progress: Callable[[Report], None] | None = None,
) -> Report:
    """Lives of some thousand operations each, from number `first` on, until so many are done or a law is broken."""
    report, start = Report(seed), time.perf_counter()
    while report.operations < operations and not report.violation:
        number = first + report.lives
        planned = min(random.Random(f"{seed}/{number}").randint(500, 5_000), operations - report.operations)
        life = Life(f"{seed}/{number}/life")
        try:
            life.run(planned, check_every)
        except Exception as error:
            again = f"--seed {seed} --first {number} --operations {planned} --check-every 1"
            report.violation = f"{''.join(traceback.format_exception(error))}again, from the same empty pool: {again}"
        report.counts += life.counts
        report.lives += 1
        report.seconds = time.perf_counter() - start
        if progress:
            progress(report)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 0 if everything held, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.optimized.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--operations", type=int, default=2_000_000, help="how many (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first life (default %(default)s)")
    parser.add_argument("--check-every", type=int, default=500, help="operations between checks (default %(default)s)")
    options = parser.parse_args(arguments)

    def progress(report: Report) -> None:
        print(f"\r{report.operations:,} operations, {report.seconds:.0f} s", end="", file=sys.stderr, flush=True)

    report = soak(
        options.operations, options.seed, check_every=options.check_every, first=options.first, progress=progress
    )
    print(file=sys.stderr)
    print(report)
    return 1 if report.violation else 0


if __name__ == "__main__":
    sys.exit(main())
