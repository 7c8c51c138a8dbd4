"""Does a bias of the generator pay? Each is switched off, and the broken managers are hunted again.

`python -m tests.conformance.biases biases` hunts every broken manager (of the reference, the optimized manager, and the
bugs of other projects) with the generator as it is and with each variant, and prints the table of
docs/fuzzing_evidence.md: how many were not found within the budget, and how many times the operations it took, as a
geometric mean over managers and seeds. `… minimal` makes every failing program minimal, and prints how many operations
are left, and in what time. What was measured is kept in `--results`, and not measured again: stop it and go on when
you like.

A variant is the generator loaded from altered source, as a mutant is, so that nothing in it is there for the sake of
this.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from pagedkv.conformance.differential import in_time

from pagedkv.conformance.search import fuzz
from pagedkv.conformance.failures.shrinking import ATTEMPTS, BUDGET_S, Failure, Shrinker
from pagedkv.spec import Config
from pagedkv.spec.subject import BlockManagerSubject, SubjectFactory

from tests.conformance.broken_manager import BROKEN_MANAGERS
from tests.conformance.illegal import ILLEGAL
from tests.conformance.mutants.mutation import Mutant, Replacement, mutated_module
from tests.conformance.real_bugs.collected import RECORDS

PROGRAMS: Final = 100
"""For one hunt; what is not found in them counts as found at their end."""
STEPS: Final = 60
SEEDS: Final = 2

FAMILIES: Final = ("reference", "optimized", "bugs")
_LOADED_AGAIN: Final = (
    "programs.choosing", "programs.plans", "programs.undirected", "programs.generator", "failures.shrinking",
    "search.fuzz",
)  # fmt: skip
"""The generator, in import order."""


@dataclass(frozen=True)
class Variant:
    """The generator without one bias, or with one more."""

    name: str
    module: str
    replacements: tuple[Replacement, ...]

    def load(self) -> Any:
        """`fuzz`, as this variant has it."""
        later = _LOADED_AGAIN[_LOADED_AGAIN.index(self.module) + 1 :]
        package = "pagedkv.conformance"
        return mutated_module(f"{package}.{self.module}", self.replacements, [f"{package}.{name}" for name in later])


def _without(name: str, module: str, *replacements: Replacement) -> Variant:
    return Variant(f"without {name}", module, replacements)


def _with(name: str, module: str, *replacements: Replacement) -> Variant:
    return Variant(f"with {name}", module, replacements)


def _without_subset(line: str) -> Variant:
    return _without(f"the subset {line.strip().split(': ')[0]}", "programs.plans", (line, ""))


_POOL: Final = "chooser.integer(2, pick(chooser, (6, 10, 16)))"
_BLOCK: Final = "block_size=pick(chooser, (2, 1, 3, 4))"
_NEAR: Final = "if chance(chooser, 1, 4):\n        return"
_KNOWN: Final = "if chance(self.chooser, 3, 4) else new_text"
_OTHER: Final = "if chance(self.chooser, 1, 8):\n            namespace"
_ALIKE: Final = "pick(chooser, NAMESPACES)"
_SHARED: Final = "[name for name in names if _ends_shared(state, name)] or names"
_PARTIAL: Final = "[name for name in ready if state.requests[name].length % state.config.block_size] or ready"
_BLIND: Final = "if chance(self.chooser, 1, 16):\n                operation"
_TWICE: Final = 'if rows and kind != "free" and chance(self.chooser, 1, 4):'
_EXHAUSTED: Final = "exhausted = self.releasing and"
_FITS: Final = "if names and not chance(programmer.chooser, 1, 8):"
_WHOLE: Final = "bs * blocks + 1 if chance(self.chooser, 1, 16) else "
_FORK_FREE: Final = """    "fork, free, prefix": Subset(
        1, "fork", ("fork", "free", "lookup", "pin", "unpin", "evict", "reset_prefix_index", "truncate")
    ),
"""
_ONLY_SWARM: Final = (('"swarm": Subset(4)', '"swarm": Subset(1_000_000)'), ("number < len(possible)", "number < 0"))
_CHILD: Final = "return Fork(pick(programmer.chooser, ready), child)"
_PROMPT: Final = "        return (known + text(self.chooser, new)) or (0,), namespace"
_CHANGED: Final = """        if known and chance(self.chooser, 1, 8):
            place = self.chooser.integer(0, len(known) - 1)
            known = (*known[:place], 1 - min(1, known[place]), *known[place + 1 :])
"""

VARIANTS: Final = (
    _without("named subsets", "programs.plans", *_ONLY_SWARM),
    _without("all subsets in the first programs", "programs.plans", ("number < len(possible)", "number < 0")),
    _without("swarm: every kind in every program", "programs.plans", ("weight * pick(chooser, (1, 0, 2))", "weight")),
    _without_subset('    "fork, append": Subset(1, "fork", ("fork", "append")),\n'),
    _without_subset('    "admit, preempt, resume": Subset(1, "preempt", ("preempt", "resume")),\n'),
    _without_subset('    "admit, free, evict": Subset(1, "prefix_cache", ("admit", "free", "evict")),\n'),
    _without_subset('    "append, window": Subset(1, "sliding_window", ("append", "truncate", "reserve")),\n'),
    _without_subset('    "steps, free": Subset(1, "overlapped_steps", ("begin_step", "end_step", "free")),\n'),
    _without_subset(_FORK_FREE),
    _without("programs that free nothing", "programs.plans", ("keeps = chance(chooser, 1, 2)", "keeps = False")),
    _without("small pools: 24 to 48 blocks", "programs.plans", (_POOL, "chooser.integer(24, 48)")),
    _without("small blocks: 16 tokens", "programs.plans", (_BLOCK, "block_size=16")),
    _without("lengths near the ends of blocks", "programs.choosing", (_NEAR, "if True:\n        return")),
    _without("an alphabet of two", "programs.choosing", ("int(chooser.integer(0, 3) == 3)", "chooser.integer(0, 999)")),
    _without("room made in an exhausted pool", "programs.generator", (_EXHAUSTED, "exhausted = False and")),
    _without("prompts that continue what is known", "programs.generator", (_KNOWN, "if False else new_text")),
    _without("other namespaces", "programs.generator", (_OTHER, "if False:\n            namespace")),
    _without("namespaces that are alike", "programs.plans", (_ALIKE, "NAMESPACES[0]")),
    _without("writers of shared blocks preferred", "programs.generator", (_SHARED, "names")),
    _without("undirected operations", "programs.generator", (_BLIND, "if False:\n                operation")),
    _without("two rows for one request", "programs.generator", (_TWICE, "if False:")),
    _without("prompts of the whole pool", "programs.generator", (_WHOLE, "")),
    _without("growth that fits preferred", "programs.generator", (_FITS, "if False:")),
    _with(
        "every other fork of the youngest", "programs.generator",
        (_CHILD, _CHILD.replace("pick(", "ready[0] if chance(programmer.chooser, 1, 2) else pick(")),
    ),
    _with("parents with a partial block preferred", "programs.generator", (_CHILD, _CHILD.replace("ready", _PARTIAL))),
    _with("one known token changed in one prompt of eight", "programs.generator", (_PROMPT, _CHANGED + _PROMPT)),
)  # fmt: skip


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


def measure_biases(results: Results, seeds: int, only: str, families: list[str]) -> None:
    """Hunt with every variant."""
    found = {name: factory for name, factory in managers().items() if name.split("/")[0] in families}
    for seed in range(1, seeds + 1):
        for variant in (None, *VARIANTS):
            name = variant.name if variant else AS_IT_IS
            if only not in name and variant:
                continue
            hunter = variant.load() if variant else fuzz
            for manager, factory in found.items():
                if (name, manager, seed) not in results.rows:
                    report = hunter.run(factory, seed=seed, programs=PROGRAMS, steps=STEPS, minimal=False)
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
            ratio.setdefault(manager, []).append(math.log(row["operations"] / base[manager, seed]["operations"]))
        each = [statistics.mean(values) for values in ratio.values()]
        mean, error = statistics.mean(each), 1.96 * statistics.stdev(each) / math.sqrt(len(each))
        low, middle, high = (f"{math.exp(value):.2f}" for value in (mean - error, mean, mean + error))
        worst = sorted(ratio, key=lambda manager: -statistics.mean(ratio[manager]))[:3]
        told = ", ".join(f"{name.split('/')[1]} ×{math.exp(statistics.mean(ratio[name])):.0f}" for name in worst)
        lost = sum(not row["found"] for row in rows.values())
        yield f"| {variant.name} | {lost} of {len(rows)} | {middle} | {low}–{high} | {told} |"


def measure_minimal(results: Results) -> None:
    """Make the first failing program of each manager minimal, and measure the seconds of computing."""
    for manager, factory in managers().items():
        if ("minimal", manager, 1) in results.rows:
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


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("biases", "minimal"))
    parser.add_argument("--results", type=Path, default=Path("biases.jsonl"), help="kept between runs")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES, help="of broken managers")
    parser.add_argument("--only", default="", help="variants whose name has this in it")
    arguments = parser.parse_args()
    results = Results(arguments.results)
    in_time.LIMIT_S = 3.0  # nothing is compiled, and some of what is broken never answers
    if arguments.what == "biases":
        measure_biases(results, arguments.seeds, arguments.only, arguments.families)
    else:
        measure_minimal(results)
    print("\n".join((table_of_biases if arguments.what == "biases" else table_of_minimal)(results)))


if __name__ == "__main__":
    main()
