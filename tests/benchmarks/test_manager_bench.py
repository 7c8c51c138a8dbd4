"""What the block manager costs on the host, between two steps of the device.

Run `pytest tests/benchmarks/test_manager_bench.py`; with `--benchmark-disable` each runs once, as a test. Per-request
times stand under `extra_info` (`--benchmark-json`), in microseconds.
"""

from typing import Any

import numpy as np
import pytest
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.plan import StepPlan

from tests.benchmarks.decoding import BLOCK_SIZE, PROMPT, prompts, running

ROUNDS = 200


def per_item(benchmark: Any, name: str, count: int) -> None:
    if benchmark.stats is not None:  # None when disabled
        benchmark.extra_info[name] = benchmark.stats.stats.median * 1e6 / count


@pytest.mark.parametrize("count", [256, 4096])
@pytest.mark.parametrize("what", ["append", "append+commit"])
def test_decode_step(benchmark: Any, count: int, what: str) -> None:
    """One token for each running request. Prefix caching on."""
    manager, rows = running(count, 2 * ROUNDS)
    tokens = np.arange(count, dtype=np.int32)
    last: list[StepPlan] = []

    def settle() -> tuple[tuple[Any, ...], dict[str, Any]]:
        if last and what == "append":
            manager.commit_batch(rows, last[-1].seq_lens)
        return (), {}

    def step() -> None:
        last[:] = [manager.append_batch(rows, tokens)]
        if what == "append+commit":
            manager.commit_batch(rows, last[0].seq_lens)

    benchmark.pedantic(step, setup=settle, rounds=ROUNDS)
    per_item(benchmark, "us_per_request", count)
    assert not len(last[-1].refused)


@pytest.mark.parametrize("cached", [False, True], ids=["cold", "cached"])
def test_admit(benchmark: Any, cached: bool) -> None:
    """Admit and commit a prompt of 1,024 tokens: all hashing is in it. `cached`: the whole prompt but the last block
    is a hit."""
    manager = BlockManager(2 * ROUNDS * PROMPT // BLOCK_SIZE, BLOCK_SIZE)
    pool = prompts(ROUNDS)
    if cached:
        manager.admit("first", pool[0])
        manager.commit("first", PROMPT)
    requests = iter(range(ROUNDS))

    def admit() -> None:
        request = next(requests)
        manager.admit(request, pool[0 if cached else request])
        manager.commit(request, PROMPT)

    benchmark.pedantic(admit, rounds=ROUNDS - 1)
    assert manager.stats().hit_tokens == (next(requests) * (PROMPT - BLOCK_SIZE) if cached else 0)


def test_append_one(benchmark: Any) -> None:
    """The scalar append of one token."""
    manager, _ = running(1, 2 * ROUNDS)
    benchmark.pedantic(manager.append, args=(0, [7]), rounds=ROUNDS)
    assert manager.stats().copy_on_writes == 0


def test_free_one(benchmark: Any) -> None:
    """Free one request of 1,024 tokens, all of them indexed."""
    manager, _ = running(ROUNDS, 2 * ROUNDS)
    requests = iter(range(ROUNDS))
    benchmark.pedantic(lambda: manager.free(next(requests)), rounds=ROUNDS - 1)
    assert manager.stats().used > 0


def test_free_batch(benchmark: Any) -> None:
    """Free 256 requests of 1,024 tokens in one call."""
    managers: list[BlockManager] = []

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        manager, rows = running(256, 2 * ROUNDS)
        managers[:] = [manager]
        return (manager, rows), {}

    benchmark.pedantic(lambda manager, rows: manager.free_batch(rows), setup=setup, rounds=5)
    per_item(benchmark, "us_per_request", 256)
    assert managers[0].stats().used == 0


def test_fork(benchmark: Any) -> None:
    """Fork a request of 1,024 tokens."""
    manager, _ = running(1, 2 * ROUNDS)
    children = iter(range(1, ROUNDS + 1))
    benchmark.pedantic(lambda: manager.fork(0, next(children)), rounds=ROUNDS)
    assert manager.stats().used == PROMPT // BLOCK_SIZE
