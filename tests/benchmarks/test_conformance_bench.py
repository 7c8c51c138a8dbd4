"""What it costs to hold an implementation against the specification: operations a second, everything checked.

Run `pytest tests/benchmarks/test_conformance_bench.py --benchmark-enable`; with `--benchmark-disable` each runs once,
as a test. The rates stand under `extra_info` (`--benchmark-json`).
"""

from typing import Any, Final

import pytest
from pagedkv.conformance.failures.replay import ReplayReport, replay
from pagedkv.conformance.importing import BUILT_IN
from pagedkv.conformance.search import fuzz
from pagedkv.conformance.subjects import subject
from pagedkv.spec import Admit, Append, Batch, Commit, Config, Free
from pagedkv.spec.trace import Header, Line, Trace

FULLY_CHECKED: Final = 500
"""Operations a second that the machine sustains, on two cores."""
TOUCHED_ONLY: Final = 5_000
"""Rows a second of a replay in batches."""

REQUESTS, PROMPT, STEPS = 64, 96, 50


@pytest.mark.parametrize("name", BUILT_IN)
def test_fully_checked_operations(benchmark: Any, name: str) -> None:
    """Random programs, the whole state compared after every operation."""
    factory = subject(name)
    report = benchmark.pedantic(lambda: fuzz.run(factory, seed=0, programs=40, steps=60), rounds=3)
    assert report.violation is None
    _report(benchmark, report.steps, FULLY_CHECKED)


@pytest.mark.parametrize("name", BUILT_IN)
def test_batch_replay(benchmark: Any, name: str) -> None:
    """A decoding load in batches; what an operation touches is compared after it, and everything at the end."""
    trace, factory = decoding(prefix_cache=name != "device"), subject(name)
    reports: list[ReplayReport] = []
    benchmark.pedantic(lambda: reports.append(replay(trace, factory, touched_only=True)), rounds=3)
    assert [report.verdict for report in reports] == ["holds"] * len(reports)
    _report(benchmark, reports[0].operations, TOUCHED_ONLY)


def decoding(prefix_cache: bool) -> Trace:
    """`REQUESTS` prompts that share a beginning, then `STEPS` steps, each an append and a commit for all of them."""
    names = [f"r{i}" for i in range(REQUESTS)]
    prompts = {name: (*range(32), *range(100 + i, 100 + i + PROMPT - 32)) for i, name in enumerate(names)}
    operations: list[Any] = [step for name in names for step in (Admit(name, prompts[name]), Commit(name, PROMPT))]
    for length in range(PROMPT + 1, PROMPT + STEPS + 1):
        operations.append(Batch(tuple(Append(name, (length,)) for name in names)))
        operations.append(Batch(tuple(Commit(name, length) for name in names)))
    operations.append(Batch(tuple(Free(name) for name in names)))
    config = Config(num_blocks=REQUESTS * (PROMPT + STEPS) // 16 + REQUESTS, block_size=16, prefix_cache=prefix_cache)
    return Trace(Header.of(config), tuple(map(Line, operations)))


def _report(benchmark: Any, operations: int, least: int) -> None:
    if benchmark.stats is not None:  # None when disabled
        rate = operations / benchmark.stats.stats.median
        benchmark.extra_info["operations_per_second"] = round(rate)
        benchmark.extra_info["required"] = least
        assert rate >= least
