"""The part of the lane that times the device pool on a GPU, without one: tiny, and every figure means nothing."""

import pytest
import torch

from tests.benchmarks.gpu import pool
from tests.benchmarks.gpu.page import pool_lines
from tests.benchmarks.gpu.pool import SMOKE, HostBlocks, Size, Steps, measure_pool, pool_faults
from tests.benchmarks.gpu.session import NO_TIME, Deadline
from tests.benchmarks.gpu.timing import MOST_REPEATS, MOST_ROUNDS, Timing
from tests.benchmarks.test_gpu_lane import CPU, MadeUp


def test_every_line_is_measured() -> None:
    found = measure_pool(CPU, MadeUp(), Deadline(600.0))
    assert [line for line in found if "seconds" not in line] == []
    assert [line["rows"] for line in found] == [*SMOKE.rows, *[SMOKE.rows[0]] * 4]
    assert pool_faults(found) == []
    assert pool_lines(found).count("(eager)") == 4


def test_when_time_is_up_the_rest_is_named_and_no_fault() -> None:
    found = measure_pool(CPU, MadeUp(), Deadline(-1.0))
    assert {line["why"] for line in found} == {NO_TIME}
    assert pool_faults(found) == []


def test_what_fails_costs_its_line_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Timing:
        raise ValueError("odd | pool\nand more")

    monkeypatch.setattr(pool, "free", fail)
    found = measure_pool(CPU, MadeUp(), Deadline(600.0))
    assert [line["what"] for line in found if "why" in line] == ["free"]
    assert pool_faults(found) == ["pool: free, 3 rows: ValueError: odd | pool"]
    assert "odd / pool" in pool_lines(found)


def test_rows_that_were_refused_are_not_timed_as_if_they_were_served() -> None:
    small = pool.pool_for(CPU, SMOKE, 3, appends=1)
    for _ in range(40):
        small.append()
    with pytest.raises(RuntimeError, match="refused"):
        pool.served(small)


def test_there_is_room_for_all_that_a_timer_may_run() -> None:
    """The first call, then two recordings, each run once and timed, then rounds."""
    assert Size().appends >= 1 + 2 + MOST_REPEATS * (1 + MOST_ROUNDS)


def test_steps_are_the_same_whoever_hands_out_the_blocks() -> None:
    ways = [Steps(CPU, SMOKE) for _ in range(3)]
    ways[0].all_at_once()
    ways[1].one_by_one()
    ways[2].by_the_host()
    assert ways[0].out.any()
    for other in ways[1:]:
        assert torch.equal(ways[0].out, other.out)


def test_the_host_hands_out_what_the_pool_does() -> None:
    steps = Steps(CPU, SMOKE)
    host = HostBlocks(steps)
    for buffers in host.pinned:
        host.upload(buffers)
        plan = steps.pool.append()
        assert torch.equal(host.there[1], plan.seq_lens)
        assert torch.equal(host.there[2] % 16, plan.slot_mapping % 16)
        assert (host.there[2] >= 0).all()
