"""What the device pool costs on the CPU, and beside it the block manager for the same rows.

Run `pytest tests/benchmarks/test_device_pool_bench.py --benchmark-enable`; with `--benchmark-disable` each runs once,
as a test. Per-row times and the ratio stand under `extra_info` (`--benchmark-json`), in microseconds.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import numpy as np
import pytest
import torch
from pagedkv.optimized.device import DevicePool
from pagedkv.optimized.manager import BlockManager

from tests.benchmarks.test_manager_bench import per_item

BLOCK_SIZE: Final = 16
PROMPT: Final = 100
"""Positions of the shortest row; the others are spread over a block."""
ROUNDS: Final = 200
AT_MOST: Final = 3
"""Times what the manager takes for the same rows: more must a decode step of the pool not take."""


def prompt_lengths(count: int) -> torch.Tensor:
    """(count,) positions."""
    return PROMPT + torch.arange(count) % BLOCK_SIZE


def decoding(count: int) -> DevicePool:
    """A pool whose first `count` rows are in use, with as many empty behind them, and blocks for all rounds."""
    blocks = -(-(PROMPT + BLOCK_SIZE + 2 * ROUNDS) // BLOCK_SIZE)
    pool = DevicePool(count * blocks, BLOCK_SIZE, 2 * count, blocks)
    pool.admit(torch.arange(count), prompt_lengths(count))
    return pool


@pytest.mark.parametrize("count", [256, 4096])
def test_decode_step(benchmark: Any, count: int) -> None:
    """One position for each row; before it, in the same round, the manager appends a token to each of as many requests.
    Where the machine is slow, it is so for both."""
    pool, rows = decoding(count), torch.arange(count)
    manager = BlockManager(pool.shape.num_blocks, BLOCK_SIZE, prefix_cache=False)
    for request, length in enumerate(prompt_lengths(count).tolist()):
        manager.admit(request, [0] * length)
        manager.commit(request, length)
    requests, tokens, taken = manager.rows(range(count)), np.zeros(count, np.int32), list[float]()

    def managed() -> None:
        start = time.perf_counter()
        plan = manager.append_batch(requests, tokens)
        taken.append(time.perf_counter() - start)
        manager.commit_batch(requests, plan.seq_lens)

    benchmark.pedantic(lambda: pool.append(rows), setup=managed, rounds=ROUNDS)
    assert pool.seq_lens[:count].equal((prompt_lengths(count) + len(taken)).int())
    per_item(benchmark, "us_per_row", count)
    if benchmark.stats is not None:  # None when disabled
        ratio = benchmark.stats.stats.median / median(taken)
        benchmark.extra_info["of_the_manager"] = round(ratio, 2)
        assert ratio <= AT_MOST


CALLS: Final = ("admit", "fork", "truncate", "free")


@pytest.mark.parametrize("name", CALLS)
def test_call_for_256_rows(benchmark: Any, name: str) -> None:
    """Rows of about 100 positions come, are forked, lose their last 20 positions, and go."""
    count = 256
    pool, first, second = decoding(count), torch.arange(count), torch.arange(count, 2 * count)
    lengths = prompt_lengths(count)
    calls: dict[str, Callable[[], object]] = {
        "admit": lambda: pool.admit(second, lengths),
        "fork": lambda: pool.fork(first, second),
        "truncate": lambda: pool.truncate(second, lengths - 20),
        "free": lambda: pool.free(second),
    }

    def settle() -> None:
        pool.free(second)
        if name not in ("admit", "fork"):
            calls["admit"]()

    benchmark.pedantic(calls[name], setup=settle, rounds=ROUNDS)
    per_item(benchmark, "us_per_row", count)
    assert int(pool.num_free) + int((pool.references > 0).sum()) == pool.shape.num_blocks
    assert not pool.outcome_counts[4:].any()
