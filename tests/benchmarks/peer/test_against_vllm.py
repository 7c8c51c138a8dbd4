"""Both managers do the same work, or the comparison means nothing. Needs vLLM: `make bench-peer`."""

import math
from dataclasses import asdict, replace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed; `make bench-peer` installs it into .venv-peer")

from tests.benchmarks.peer import steady
from tests.benchmarks.peer.churn import churn
from tests.benchmarks.peer.interface import BLOCK_SIZE, Manager
from tests.benchmarks.peer.our_manager import OurManager
from tests.benchmarks.peer.pools import pools
from tests.benchmarks.peer.scheduler import Pace, Replay
from tests.benchmarks.peer.timing import Row
from tests.benchmarks.peer.vllm_manager import VllmManager
from tests.benchmarks.peer.workloads import Arrival, azure, mooncake

MANAGERS = (OurManager, VllmManager)


def counts(manager: Manager, arrivals: list[Arrival]) -> dict[str, Any]:
    served = asdict(Replay(manager, manager.available_blocks, Pace()).run(arrivals))
    del served["seconds"]
    return served


def blocks(arrivals: list[Arrival]) -> int:
    return sum(-(-arrival.final_length // BLOCK_SIZE) for arrival in arrivals)


def test_the_same_number_of_blocks_is_usable() -> None:
    assert [maker(7).available_blocks for maker in MANAGERS] == [7, 7]


def test_under_pressure_the_same_requests_give_way() -> None:
    ours, other = (counts(maker(900), azure(150)) for maker in MANAGERS)
    assert ours == other
    assert ours["preemptions"] > 20


@pytest.mark.parametrize("part", [1, 0.4])
def test_the_same_prefixes_are_found(part: float) -> None:
    """Requests come one by one: where two enter in one step, vLLM finds what the first has not yet written."""
    arrivals = [replace(arrival, arrival_s=10.0 * arrival.name, output_tokens=2) for arrival in mooncake(300)]
    ours, other = (counts(maker(int(part * blocks(arrivals))), arrivals) for maker in MANAGERS)
    assert ours == other
    assert ours["hit_tokens"] > 100_000


def test_each_pair_is_measured() -> None:
    rows: list[Row] = [*steady.decode(8, 4), *steady.admissions(3), *steady.frees(20), steady.fork(3), *pools(1_000, 2)]
    assert len({row.what for row in rows}) == len(rows)
    assert all(row.ours > 0 and row.other > 0 and math.isfinite(row.ratio) for row in rows)


def test_a_trace_is_measured_on_both() -> None:
    run = churn("azure", azure(100), 4, Pace(), 2)
    assert run.trace == "azure, 4 × as fast"
    assert run.ours["decoded"] == run.other["decoded"] > 0
    assert run.ours["preemptions"] > 0
    assert run.ratio > 0
