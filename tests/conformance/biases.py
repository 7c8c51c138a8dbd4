"""Does a bias of the generator pay? Each is switched off, and the broken managers are hunted again.

`python -m tests.conformance.biases biases` hunts every broken manager (of the reference, the optimized manager, and the
bugs of other projects) with the generator as it is and with each variant, and prints the table of
docs/fuzzing_evidence.md: how many were not found within the budget, and how many times the operations it took, as a
geometric mean over managers and seeds. `… minimal` makes every failing program minimal, and prints how many operations
are left, and in what time. `… enough` counts the programs that a subject that has everything needs until all that it
declares is exercised, from which `fuzz.ENOUGH` is. What was measured is kept in `--results`, and not measured again:
stop it and go on when you like.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from pagedkv.conformance.differential import in_time
from pagedkv.conformance.programs.choosing import Dice
from pagedkv.conformance.programs.counting import Counts, exercised
from pagedkv.conformance.programs.plans import declared, draw_plan
from pagedkv.conformance.search import fuzz
from pagedkv.conformance.failures.shrinking import ATTEMPTS, BUDGET_S, Failure, Shrinker
from pagedkv.reference import BlockManager
from pagedkv.spec import Config
from pagedkv.spec.subject import BlockManagerSubject, SubjectFactory

from tests.conformance.bias_variants import VARIANTS
from tests.conformance.broken_manager import BROKEN_MANAGERS
from tests.conformance.illegal import ILLEGAL
from tests.conformance.mutants.mutation import Mutant
from tests.conformance.real_bugs.collected import RECORDS

PROGRAMS: Final = 100
"""For one hunt; what is not found in them counts as found at their end."""
STEPS: Final = 60
SEEDS: Final = (1, 2, 3, 4, 5, 6)

FAMILIES: Final = ("reference", "optimized", "bugs")


def managers() -> dict[str, SubjectFactory]:
    """All broken managers that random programs are to find, by name; those of a bug under its id."""
    mutants = {f"reference/{name}": mutant for name, mutant in ILLEGAL.items()}
    mutants |= {f"optimized/{mutant.name}": mutant for mutant in BROKEN_MANAGERS}
    known = set(ILLEGAL.values())
    for record in RECORDS:
        if record.mutant not in known:
            known.add(record.mutant)
            mutants[f"bugs/{record.bug}"] = record.mutant
    return {name: _subject(mutant) for name, mutant in mutants.items()}


def _subject(mutant: Mutant) -> SubjectFactory:
    loaded = cache(mutant.load)

    def make(config: Config) -> BlockManagerSubject:
        subject: BlockManagerSubject = loaded()(replace(config, dedup=True) if "dedup" in mutant.needs else config)
        return subject

    return make


class Results:
    """What was measured, one line each, in a file that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        self.rows: dict[tuple[str, str, int], dict[str, Any]] = {}
        for line in text.splitlines():
            row = json.loads(line)
            self.rows[row["variant"], row["manager"], row["seed"]] = row

    def add(self, variant: str, manager: str, seed: int, **values: Any) -> None:
        row = {"variant": variant, "manager": manager, "seed": seed, **values}
        self.rows[variant, manager, seed] = row
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


AS_IT_IS: Final = "as it is"


def measure_biases(results: Results, seeds: Sequence[int], only: str, families: list[str]) -> None:
    """Hunt with every variant."""
    found = {name: factory for name, factory in managers().items() if name.split("/")[0] in families}
    for seed in seeds:
        for variant in (None, *VARIANTS):
            name = variant.name if variant else AS_IT_IS
            if only not in name and variant:
                continue
            hunter = variant.load() if variant else fuzz
            for manager, factory in found.items():
                if (name, manager, seed) not in results.rows:
                    own = crc32(f"{manager}/{seed}".encode())  # no two hunts share their programs, good or bad
                    report = hunter.run(factory, seed=own, programs=PROGRAMS, steps=STEPS, minimal=False)
                    results.add(name, manager, seed, found=report.violation is not None, operations=report.steps)
            print(f"seed {seed}, {name}", file=sys.stderr, flush=True)


def table_of_biases(results: Results) -> Iterator[str]:
    """As Markdown: the geometric mean of operations beside those of the generator as it is, and its 95% interval."""
    yield "| generator | not found | operations, × | 95% | hit hardest |"
    yield "|---|---:|---:|---:|---|"
    base = {(m, s): row for (v, m, s), row in results.rows.items() if v == AS_IT_IS}
    missed = sum(not row["found"] for row in base.values())
    yield f"| {AS_IT_IS} | {missed} of {len(base)} | 1.00 | | |"
    for variant in VARIANTS:
        rows = {(m, s): row for (v, m, s), row in results.rows.items() if v == variant.name and (m, s) in base}
        if len(rows) < 2:
            continue
        ratio: dict[str, list[float]] = {}
        for (manager, seed), row in rows.items():
            ratio.setdefault(manager, []).append(math.log(_until(row) / _until(base[manager, seed])))
        each = [statistics.mean(values) for values in ratio.values()]
        mean, error = statistics.mean(each), 1.96 * statistics.stdev(each) / math.sqrt(len(each))
        low, middle, high = (f"{math.exp(value):.2f}" for value in (mean - error, mean, mean + error))
        worst = sorted(ratio, key=lambda manager: -statistics.mean(ratio[manager]))[:3]
        told = ", ".join(f"{name.split('/')[1]} ×{math.exp(statistics.mean(ratio[name])):.0f}" for name in worst)
        lost = sum(not row["found"] for row in rows.values())
        yield f"| {variant.name} | {lost} of {len(rows)} | {middle} | {low}–{high} | {told} |"


def _until(row: Mapping[str, Any]) -> int:
    """Operations to the one that broke a law, which a hunt does not count."""
    return int(row["operations"]) + int(row["found"])


def measure_minimal(results: Results, families: Sequence[str]) -> None:
    """Make the first failing program of each manager minimal, and measure the seconds of computing."""
    for manager, factory in managers().items():
        if manager.split("/")[0] not in families or ("minimal", manager, 1) in results.rows:
            continue
        found: list[Failure] = []
        fuzz.run(factory, seed=1, programs=3_000, steps=STEPS, minimal=False, excuse=_keeping(found))
        if not found:
            print(f"{manager}: not found", file=sys.stderr)
            continue
        shrinker, start = Shrinker(factory, found[0], ATTEMPTS, BUDGET_S), time.process_time()
        least = shrinker.minimal()
        results.add(
            "minimal", manager, 1, before=len(found[0].program), operations=len(least.program),
            seconds=round(time.process_time() - start, 3), attempts=ATTEMPTS - shrinker.left,
        )  # fmt: skip


def _keeping(found: list[Failure]) -> Callable[[Failure], str | None]:
    """Excuses nothing, and keeps what it is asked about."""

    def keep(failure: Failure) -> str | None:
        found.append(failure)
        return None

    return keep


def table_of_minimal(results: Results) -> Iterator[str]:
    """As Markdown, by family."""
    head = ("broken managers", "programs", "operations, median", "minimal: median", "most", "seconds: median", "most")
    yield f"| {' | '.join((*head, 'attempts: median', 'most'))} |"
    yield f"|---{'|---:' * (len(head) + 1)}|"
    every = [row for (variant, _, _), row in results.rows.items() if variant == "minimal"]
    for family in (*FAMILIES, ""):
        rows = [row for row in every if row["manager"].startswith(family)]
        if rows:
            cells = [family or "all", str(len(rows)), f"{statistics.median(row['before'] for row in rows):.0f}"]
            for key, digits in (("operations", 0), ("seconds", 2), ("attempts", 0)):
                values = [row[key] for row in rows]
                cells += [f"{statistics.median(values):.{digits}f}", f"{max(values):.{digits}f}"]
            yield f"| {' | '.join(cells)} |"


def measure_enough(results: Results, runs: int = 500) -> None:
    """Run programs until everything is exercised, each run with a seed of its own."""
    everything = declared(BlockManager)
    for seed in range(runs):
        if ("enough", "reference", seed) in results.rows:
            continue
        counts, programs = Counts(), 0
        while exercised(everything, counts.events)[0]:
            dice = Dice(f"{seed}/{programs}")
            fuzz._program(BlockManager, dice, draw_plan(dice, everything), STEPS, counts)
            programs += 1
        results.add("enough", "reference", seed, programs=programs)


def table_of_enough(results: Results) -> Iterator[str]:
    """In a line: the median, and the most."""
    programs = [row["programs"] for (variant, _, _), row in results.rows.items() if variant == "enough"]
    yield f"{len(programs)} runs: median {statistics.median(programs):.0f} programs, most {max(programs)}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("biases", "minimal", "enough"))
    parser.add_argument("--results", type=Path, default=Path("biases.jsonl"), help="kept between runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="of biases")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES, help="of broken managers")
    parser.add_argument("--only", default="", help="of biases: variants whose name has this in it")
    arguments = parser.parse_args()
    results = Results(arguments.results)
    in_time.LIMIT_S = 3.0  # nothing is compiled, and some of what is broken never answers
    table = table_of_biases
    if arguments.what == "biases":
        measure_biases(results, arguments.seeds, arguments.only, arguments.families)
    elif arguments.what == "minimal":
        measure_minimal(results, arguments.families)
        table = table_of_minimal
    else:
        measure_enough(results)
        table = table_of_enough
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
