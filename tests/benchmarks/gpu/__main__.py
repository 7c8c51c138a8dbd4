"""`python -m tests.benchmarks.gpu`: time attention on this card, write the numbers and the page. See `make gpu`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.gpu.bandwidth import copy_bandwidth
from tests.benchmarks.gpu.contenders import contenders
from tests.benchmarks.gpu.grid import rows, smoke
from tests.benchmarks.gpu.machine import machine, slug
from tests.benchmarks.gpu.page import pool_lines, render
from tests.benchmarks.gpu.pool import measure_pool, pool_faults
from tests.benchmarks.gpu.results import faults, plain, wanted
from tests.benchmarks.gpu.session import Deadline, Session, jobs
from tests.benchmarks.gpu.timing import CudaTimer, HostTimer, Timer

DOCUMENTS = Path(__file__).parents[3] / "docs" / "benchmarks"
SECONDS = 300.0
SMOKE_BYTES = 2**20


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """What can be asked for. Raises `SystemExit` where figures of no card would land among the documents."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu for a try-out on tiny shapes (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="what it may take, about (%(default)s)")
    parser.add_argument("--out", type=Path, help="the folder of the page and its numbers (docs/benchmarks)")
    options = parser.parse_args(given)
    if options.device != "cpu" and not torch.cuda.is_available():
        parser.error("there is no CUDA or ROCm device here; --device cpu --out FOLDER tries the lane out")
    if options.device == "cpu" and options.out is None:
        parser.error("--device cpu measures no card: --out FOLDER says where its page goes")
    return options


def measure(device: torch.device, seconds: float, timer: Timer) -> dict[str, Any]:
    """All numbers, within about so many seconds."""
    deadline, on_gpu = Deadline(seconds), device.type == "cuda"
    about = machine(device)
    bandwidth = copy_bandwidth(device, timer, None if on_gpu else SMOKE_BYTES)
    pool = measure_pool(device, timer, deadline)
    session = Session(device, timer, deadline, tell=lambda line: print(line, file=sys.stderr, flush=True))
    planned = jobs(rows() if on_gpu else smoke(), contenders())
    found = [plain(outcome, bandwidth) for outcome in session.run(planned)]
    return {"machine": about, "command": "make gpu", "copy_bandwidth": bandwidth, "rows": found, "pool": pool}


def main(given: Sequence[str] | None = None, timer: Timer | None = None) -> int:
    """Measure and write. 1 if ours could not be timed on a row for another reason than time or memory, or on none.

    A page that is there is not replaced by one without figures.
    """
    options = arguments(given)
    device = torch.device(options.device)
    chosen = timer or (HostTimer() if device.type == "cpu" else CudaTimer())
    result = measure(device, options.seconds, chosen)
    if not any("seconds" in row for row in result["rows"]):
        print("nothing was timed, nothing is written: --seconds was too short, or everything failed")
        return 1
    folder: Path = options.out or DOCUMENTS
    folder.mkdir(parents=True, exist_ok=True)
    name = slug(result["machine"]["card"])
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = folder / f"{name}.md"
    page.write_text(render(result), encoding="utf-8")
    for each in wanted(result["rows"]):
        print(f"{each.what}: wanted {each.wanted}, measured {each.measured or 'nothing'}")
    print(pool_lines(result["pool"]), end="")
    print(f"written: {page}")
    failed = [*faults(result["rows"]), *pool_faults(result["pool"])]
    print("".join(f"NOT TIMED: {line}\n" for line in failed), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
