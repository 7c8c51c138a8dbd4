"""What a decode call of the Triton path costs on the host: each part of `launch_overhead`, with two launches a call."""

from typing import Any

import pytest

from tests.benchmarks.launch_overhead import measured, parts

LAUNCHES = {"checks": 0, "launches as values": 0, "Triton's run, decode": 1, "Triton's run, merge": 1,
            "paged_attention": 2, "the operator": 2, "prepare_attention": 0, "a prepared call": 2}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHES)
def test_part(benchmark: Any, name: str) -> None:
    with parts() as (device, named):
        assert list(named) == list(LAUNCHES)
        named[name]()
        device.launched.clear()
        named[name]()
        assert len(device.launched) == LAUNCHES[name]
        benchmark(named[name])


def test_a_prepared_call_skips_most_of_the_work() -> None:
    """Far from the measured ratio, so that no machine under load fails it, and none that checks each layer passes."""
    times = measured(rounds=50, calls=4)
    assert times["a prepared call"] < times["paged_attention"] / 2
