"""What each operation of ours takes in a small and in a large pool. It should be the same.

The pool is full: a few requests run, and everything else is idle and indexed, so whoever takes a block evicts one.
What walks the whole pool by its nature (`check`, `permute`, `reset_prefix_index`) is left out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
from pagedkv.optimized.manager import BlockManager

from tests.benchmarks.peer.interface import BLOCK_SIZE, Int32
from tests.benchmarks.peer.timing import elapsed, quiet

RUNNING = 16
PROMPT = 256
FILLING = 512


def curve(sizes: list[int], rounds: int) -> dict[str, list[float]]:
    """Median microseconds of each operation, one for each size of the pool."""
    columns = [costs(size, rounds) for size in sizes]
    return {name: [column[name] for column in columns] for name in columns[0]}


def texts_to_fill(num_blocks: int) -> Iterator[Int32]:
    """Prompts of 512 tokens, no two alike, that together take all blocks but for a rest."""
    random = np.random.default_rng(num_blocks)
    for _ in range(num_blocks * BLOCK_SIZE // FILLING):
        yield random.integers(0, 50_000, FILLING, np.int32)


def full_pool(num_blocks: int) -> BlockManager:
    """Nobody runs; all blocks are idle and indexed."""
    manager = BlockManager(num_blocks, BLOCK_SIZE)
    for text in texts_to_fill(num_blocks):
        pass_through(manager, text)
    return manager


def pass_through(manager: BlockManager, text: Int32) -> None:
    """A request comes, is written, and goes."""
    manager.admit("passing", text)
    manager.commit("passing", len(text))
    manager.free("passing")


def costs(num_blocks: int, rounds: int) -> dict[str, float]:
    """Median microseconds of each operation in a full pool of `num_blocks` blocks."""
    manager = full_pool(num_blocks)
    texts = np.random.default_rng(1).integers(0, 50_000, (2 * rounds + RUNNING, PROMPT), np.int32)
    for request, text in enumerate(texts[:RUNNING]):
        manager.admit(request, text[request:])
        manager.commit(request, PROMPT - request)
    rows = manager.rows(range(RUNNING))
    seconds: dict[str, list[float]] = defaultdict(list)

    def timed(name: str, operation: Callable[..., Any], *arguments: Any) -> None:
        seconds[name].append(elapsed(lambda: operation(*arguments)))

    evictions = manager.stats().evictions
    with quiet():
        for text in texts[RUNNING : RUNNING + rounds]:
            one_of_each(manager, rows, text, timed)
        for text in texts[RUNNING + rounds :]:
            timed("evict 16", manager.evict, PROMPT // BLOCK_SIZE)
            pass_through(manager, text)  # so that the pool is full again
        for _ in range(rounds):  # last, for if it walked the pool it would disturb the caches of the others
            timed("stats", manager.stats)
    evicted = manager.stats().evictions - evictions
    assert evicted > 2 * rounds * PROMPT // BLOCK_SIZE, "the pool was not full"
    return {name: 1e6 * median(values) for name, values in seconds.items()}


def one_of_each(manager: BlockManager, rows: Int32, text: Int32, timed: Callable[..., None]) -> None:
    """Each operation once. Afterwards the same requests run as before, one token longer."""
    prompt, again = f"admit {PROMPT} tokens", f"admit {PROMPT} tokens, cached"
    plan: list[Any] = []
    timed(f"append_batch, {RUNNING} rows", lambda: plan.append(manager.append_batch(rows, rows)))
    timed(f"commit_batch, {RUNNING} rows", manager.commit_batch, rows, plan[0].seq_lens)
    timed(prompt, manager.admit, "a", text)
    timed(f"commit {PROMPT} tokens", manager.commit, "a", PROMPT)
    timed("append 1 token", manager.append, "a", [7])
    timed("commit 1 token", manager.commit, "a", PROMPT + 1)
    timed("fork", manager.fork, "a", "b")
    timed("append 1 token, copy on write", manager.append, "b", [8])
    timed("reserve 16 more", manager.reserve, "b", PROMPT + 2 + BLOCK_SIZE)
    timed("truncate by 17", manager.truncate, "b", PROMPT - BLOCK_SIZE + 1)
    timed("free, shared", manager.free, "b")
    timed("preempt", manager.preempt, "a")
    timed("resume, cached", manager.resume, "a")
    timed("lookup", manager.lookup, text)
    timed("pin", manager.pin, text)
    timed("unpin", manager.unpin, text)
    timed(f"free {PROMPT} tokens", manager.free, "a")
    timed(again, manager.admit, "a", text)
    timed("free_batch, 1 row", manager.free_batch, manager.rows(["a"]))
    timed("available_blocks", lambda: manager.available_blocks)
