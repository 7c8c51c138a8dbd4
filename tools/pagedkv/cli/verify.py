"""Hold the optimized implementation against the specification, on this machine, and print one screen.

The parts run in two processes: every state of small pools, random programs, the device pool, attention (relations,
exact probes, the rounding bound), the kernels compiled for the targets, and a real workload with every step checked.
What cannot run here, because an extra is missing, is named with what to install. Exit code 1 if anything is violated.
"""

import argparse
import multiprocessing
import platform
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pagedkv.cli.inputs import natural, print_json, subject_factory
from pagedkv.cli.parts import PARTS, Options, combine, run_part
from pagedkv.cli.report import Section, check_writable, render

HELP = "hold the optimized implementation against the specification"
WORKERS = 2
MISUSE = 2
"""The exit code where the subject could not be made for a part, and no other part found a violation."""
PACKAGES = ("numpy", "torch", "triton", "numba", "hypothesis")


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--quick", action="store_true", help="samples in place of everything: about a minute")
    parser.add_argument("--seed", type=natural, default=0, help="of random programs, contents and placements")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="one part; may be given more than once")
    parser.add_argument(
        "--subject", default="optimized", metavar="NAME|module:factory",
        help="another block manager; the parts about attention and the device pool are then left out",
    )  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="a part that could not run is a violation")
    parser.add_argument("--out", default="failures", metavar="DIR", help="for traces of violations")
    parser.add_argument("--no-progress", action="store_true", help="nothing on stderr")


def run(arguments: argparse.Namespace) -> int:
    """The verb."""
    subject_factory(arguments.subject)
    check_writable(arguments.out)
    options = Options(arguments.subject, arguments.quick, arguments.seed, arguments.out, arguments.no_progress)
    own = arguments.subject == "optimized"
    names = arguments.only or [name for name, part in PARTS.items() if own or not part.extra]
    start = time.perf_counter()
    parts = run_parts(names, options)
    sections = combine(parts)
    elapsed_s = time.perf_counter() - start
    statuses = {section.status for section in sections}
    code = int("violated" in statuses or (arguments.strict and "not run" in statuses))
    if not code and (statuses == {"not run"} or any("misuse" in part.data for part in parts)):
        code = MISUSE
    holds = code == 0
    if arguments.json:
        print_json(_document(arguments, sections, holds, elapsed_s))
        return code
    print(f"pagedkv verify: {arguments.subject}, seed {arguments.seed}{', quick' if arguments.quick else ''}")
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(render(sections))
    missing = ", ".join(section.name for section in sections if section.status == "not run")
    verdict = "HOLDS" if holds else "VIOLATED" if "violated" in statuses else "INCOMPLETE"
    print(f"{verdict} in {elapsed_s:.1f} s{f' (not run: {missing})' if missing else ''}")
    return code


def run_parts(names: Sequence[str], options: Options) -> list[Section]:
    """Each part in a fresh process, two at a time."""
    with ThreadPoolExecutor(WORKERS) as threads:
        return list(threads.map(lambda name: _in_a_process(name, options), [name for name in PARTS if name in names]))


def _in_a_process(name: str, options: Options) -> Section:
    """One part in a process of its own; if that dies, it is a violation."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        try:
            return process.submit(run_part, name, options).result()
        except BrokenProcessPool as error:
            return Section(PARTS[name].section, "violated", (f"{name}: its process died: {error}",))


def machine() -> dict[str, str]:
    """Where it ran: versions of Python and of the packages that matter; "absent" if not installed."""
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def _document(
    arguments: argparse.Namespace, sections: Sequence[Section], holds: bool, elapsed_s: float
) -> dict[str, Any]:
    return {
        "pagedkv_verify": 1,
        "subject": arguments.subject,
        "seed": arguments.seed,
        "quick": arguments.quick,
        "machine": machine(),
        "holds": holds,
        "elapsed_s": round(elapsed_s, 3),
        "sections": [section.as_json() for section in sections],
    }
