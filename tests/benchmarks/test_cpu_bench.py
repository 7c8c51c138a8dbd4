"""Attention on the CPU, ours and torch's, and what memory gives. `make bench-cpu` compares with vLLM, too, and in turn.

Run `pytest tests/benchmarks/test_cpu_bench.py`; with `--benchmark-disable` each runs once on short requests, as a test.
"""

from dataclasses import replace
from typing import Any

import pytest

from pagedkv.optimized.cpu import warmup
from tests.benchmarks.cpu.contenders import ours, read, sdpa
from tests.benchmarks.cpu.page import Line, render
from tests.benchmarks.cpu.shapes import Shape, inputs
from tests.benchmarks.cpu.__main__ import ATTENTION, agree, writing


def sized(shape: Shape, benchmark: Any) -> Shape:
    """Short enough for a test, unless it is to be timed."""
    if not benchmark.disabled:
        return shape
    return replace(shape, batch=min(shape.batch, 2), context=256, rows=min(shape.rows, 256))


@pytest.mark.parametrize("contender", [ours, sdpa, read], ids=lambda contender: contender.__name__)
@pytest.mark.parametrize("shape", ATTENTION, ids=str)
def test_attention(benchmark: Any, shape: Shape, contender: Any) -> None:
    warmup()
    given = inputs(sized(shape, benchmark))
    benchmark(contender(given))
    if benchmark.stats is not None:
        benchmark.extra_info["GB/s"] = shape.kv_bytes / benchmark.stats.stats.median / 1e9


def test_everyone_computes_the_same() -> None:
    for shape in ATTENTION:
        agree(inputs(replace(shape, batch=min(shape.batch, 2), context=256, rows=min(shape.rows, 256))))


def test_the_page_says_what_is_not_met() -> None:
    seconds = {"ours": 2.0, "read": 1.0, "sdpa": 4.0}
    lines = [Line(str(shape), 100, 100, seconds) for shape in ATTENTION]
    text = render({"date": "today"}, lines, Line("tokens", 100, 100, {"ours": 1.0, "copy": 2.0}))
    assert "| SDPA's time / ours, decode, bfloat16 | ≥ 1.8 | 2.00 | met |" in text
    assert "| time / time of reading, decode, bfloat16 | ≤ 1.3 | 2.00 | **not met** |" in text
    assert "| vLLM's time / ours, decode, float32 | ≥ 1 | – | not measured |" in text


def test_writing_is_measured_beside_copying() -> None:
    line = writing(1)
    assert set(line.seconds) == {"ours", "copy"}
    assert min(line.seconds.values()) > 0
