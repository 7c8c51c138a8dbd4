"""`python -m tests.conformance.mutants`: hunt all mutants of the catalogue, and write docs/mutants.md and docs/bugs.md.

Results are written as they come, so that a run that was interrupted goes on with `--resume`. With `--family` or
`--only` the other rows stay as they are. Exit code 1 if any mutant is not killed, whatever the reason.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence

from tests.conformance.mutants.campaign import CANARY, Report, alarm_rings, results, run, write
from tests.conformance.mutants.catalogue import CATALOGUE, FAMILIES
from tests.conformance.mutants.page import PAGE, page
from tests.conformance.mutants.records import Result
from tests.conformance.mutants.traces import Stored, store, stored
from tests.tools import bugs_page

SEED = 1


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    """Arguments; the keys to hunt are `keys`."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="KEY", help="family/name, or part of it")
    parser.add_argument("--family", nargs="+", default=[], choices=FAMILIES, help="these families")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of programs, contents and orders; default {SEED}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: one a core")
    parser.add_argument("--resume", action="store_true", help="only what has no result yet, or is not killed")
    parser.add_argument("--json", action="store_true", help="the results on stdout as JSON, a line each")
    return parser.parse_args(argv)


def chosen(arguments: argparse.Namespace) -> list[str]:
    """The keys to hunt, in the order of the catalogue."""
    families, parts = arguments.family or FAMILIES, arguments.only or [""]
    keys = [key for key in CATALOGUE if key.partition("/")[0] in families and any(part in key for part in parts)]
    done = {key for key, result in results().items() if result.status == "killed" and is_of(result)}
    return [key for key in keys if not (arguments.resume and key in done)]


def is_of(result: Result) -> bool:
    """Whether a result is of a mutant that there is."""
    return result.key in CATALOGUE and result.digest == CATALOGUE[result.key].digest


def main(argv: Sequence[str] | None = None) -> int:
    """All of it."""
    arguments = arguments_of(argv)
    keys = chosen(arguments)
    if not keys and not arguments.resume:
        print("there is no such mutant", file=sys.stderr)
        return 2
    if not alarm_rings(arguments.seed):
        print(f"the alarm does not ring: {CANARY} lives through the first program", file=sys.stderr)
        return 1
    found = {key: result for key, result in results().items() if key not in keys}
    start = time.perf_counter()
    for done, report in enumerate(run(keys, arguments.seed, arguments.jobs), start=1):
        keep(report, found)
        write(found, arguments.seed)
        told(report.result, f"{done}/{len(keys)} {time.perf_counter() - start:.0f} s", as_json=arguments.json)
    write_pages(found, arguments.seed)
    alive = [key for key in keys if found[key].status != "killed"]
    print(f"{len(keys)} mutants, {len(keys) - len(alive)} killed", file=sys.stderr)
    for key in alive:
        print(f"{found[key].status}: {key} {found[key].detail}", file=sys.stderr)
    return int(bool(alive))


def write_pages(found: Mapping[str, Result], seed: int) -> None:
    """This page, and where nothing is missing that of the bugs, which says what it took to find them."""
    PAGE.write_text(page(found, seed), encoding="utf-8")
    if set(CATALOGUE) <= set(found):
        bugs_page.PAGE.write_text(bugs_page.page(), encoding="utf-8")


def keep(report: Report, found: dict[str, Result]) -> None:
    """Put a result with the others, and its trace with those of its family."""
    result = report.result
    found[result.key] = result
    if report.stored is not None:
        traces: dict[str, Stored] = {trace.name: trace for trace in stored(result.family)}
        traces[result.name] = report.stored
        names = [entry.name for entry in CATALOGUE.values() if entry.family.name == result.family]
        store(result.family, {name: traces[name] for name in names if name in traces})


def told(result: Result, progress: str, *, as_json: bool) -> None:
    """Say what became of one."""
    kills = ", ".join(f"{kill.oracle} after {kill.operations}" for kill in result.kills)
    print(f"{progress} {result.key}: {result.status} {kills}{result.detail}", file=sys.stderr, flush=True)
    if as_json:
        print(json.dumps(result.as_json()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
