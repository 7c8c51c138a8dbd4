"""What both managers take for the operations of a serving engine, with prefix caching on and blocks of 16 tokens."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from pagedkv.optimized.manager import BlockManager

from tests.benchmarks.peer import vllm_manager as vllm
from tests.benchmarks.peer.interface import BLOCK_SIZE, Int32
from tests.benchmarks.peer.timing import Round, Row, against, elapsed, paired

PROMPT = 1024
BLOCKS = PROMPT // BLOCK_SIZE


def prompts(count: int, length: int = PROMPT, seed: int = 0) -> Int32:
    """(count, length) tokens, no two rows alike."""
    return np.random.default_rng(seed).integers(0, 50_000, (count, length), np.int32)


def steady(rounds: int) -> list[Row]:
    """Every row of this file. `rounds`: of each pair; at 4,096 requests and for batches of frees a part of it."""
    few, many = decode(256, rounds), decode(4096, max(1, rounds // 4))
    scale = Row("decode, ours: each of 4,096 (the other: each of 256)", "µs", many[0].ours, few[0].ours)
    return [*few, *many, scale, *admissions(rounds), *frees(rounds), fork(rounds), uncompiled(max(1, rounds // 8))]


def uncompiled(rounds: int) -> Row:
    """The first row again, in a process in which numba compiles nothing."""
    measure = f"from {__name__} import decode; row = decode(256, {rounds})[0]"
    code = f"import json; {measure}; print(json.dumps([row.ours, row.other]))"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    ours, other = json.loads(run.stdout.splitlines()[-1])
    return Row("decode, each of 256; ours not compiled", "µs", ours, other)


def decode(count: int, rounds: int) -> list[Row]:
    """A step of one token for each running request, lengths about 1,024 and spread over the block."""
    lengths = [PROMPT - rounds - i % BLOCK_SIZE for i in range(count)]
    num_blocks = sum(-(-(length + 2 * rounds + 1) // BLOCK_SIZE) for length in lengths)
    texts, tokens = prompts(count), np.arange(count, dtype=np.int32)

    manager = BlockManager(num_blocks, BLOCK_SIZE)
    for request, length in enumerate(lengths):
        manager.admit(request, texts[request, :length])
        manager.commit(request, length)
    rows = manager.rows(range(count))

    def ours() -> None:
        manager.commit_batch(rows, manager.append_batch(rows, tokens).seq_lens)

    peer, listed = vllm.VllmManager(num_blocks), tokens.tolist()
    requests = []
    for request, length in enumerate(lengths):
        entry = peer.enter(peer.arrive(request, texts[request, :length].tolist()))
        assert entry is not None
        requests.append(entry.handle)

    def slots() -> None:
        assert not peer.decode(requests, tokens)

    def step() -> None:
        for request, token in zip(requests, listed, strict=True):
            request.append_output_token_ids(token)
        slots()

    def slots_only() -> float:
        for request, token in zip(requests, listed, strict=True):
            request.append_output_token_ids(token)
        return elapsed(slots)

    what = f"decode, each of {count:,}"
    whole = paired(lambda: elapsed(ours), lambda: elapsed(step), rounds)
    part = paired(lambda: elapsed(ours), slots_only, rounds)
    grown = manager.append_batch(rows, tokens).seq_lens - np.array(lengths)
    assert (grown == 2 * rounds + 1).all(), "a row was refused"
    return [
        against(what, whole, 20, count),
        against(f"{what}; the other without append_output_token_ids", part, share=count),
    ]


def admissions(rounds: int) -> list[Row]:
    """A prompt of 1,024 tokens: looked up, given its blocks, published. All of the hashing is in it."""
    return [
        admission("admit 1,024 tokens, nothing cached", rounds, cached=False, least=6),
        admission("admit 1,024 tokens, nothing cached; ours from a list too", rounds, cached=False, as_list=True),
        admission("admit 1,024 tokens, all but the last block cached", rounds, cached=True, least=6),
        admission(
            "admit 1,024 tokens, all but the last block cached; ours from a list too", rounds, True, as_list=True
        ),
    ]


def admission(what: str, rounds: int, cached: bool, as_list: bool = False, least: float | None = None) -> Row:
    """One row. vLLM's callers hold tokens as a list, ours as an array or, `as_list`, as a list."""
    texts = prompts(rounds + 1)
    if cached:
        texts[:] = texts[0]
    listed = texts.tolist()
    manager, peer = BlockManager((rounds + 1) * BLOCKS, BLOCK_SIZE), vllm.VllmManager((rounds + 1) * BLOCKS)
    expected = PROMPT - BLOCK_SIZE if cached else 0
    mine, theirs = iter(range(rounds + 1)), iter(range(rounds + 1))

    def ours() -> float:
        request = next(mine)
        text = listed[request] if as_list else texts[request]

        def admit() -> None:
            manager.admit(request, text)
            manager.commit(request, PROMPT)

        return elapsed(admit)

    def other() -> float:
        request = next(theirs)
        return elapsed(lambda: peer.enter(peer.arrive(request, listed[request])))

    ours(), other()
    seconds = paired(ours, other, rounds)
    assert manager.stats().hit_tokens == rounds * expected
    assert peer.available_blocks == manager.available_blocks
    return against(what, seconds, least)


def frees(rounds: int) -> list[Row]:
    """Requests of 1,024 tokens, all of them in the prefix index."""
    texts = prompts(rounds)
    manager, peer, handles = our_full(texts), *vllm_full(texts)
    mine, theirs = iter(range(rounds)), iter(handles)

    def ours() -> float:
        request = next(mine)
        return elapsed(lambda: manager.free(request))

    def other() -> float:
        request = next(theirs)
        return elapsed(lambda: peer.manager.free(request))

    one = against("free 1,024 tokens", paired(ours, other, rounds), 3)
    assert manager.available_blocks == peer.available_blocks == rounds * BLOCKS
    return [one, free_at_once(256, max(1, rounds // 20))]


def free_at_once(count: int, rounds: int) -> Row:
    """Many in one call; vLLM has a call for one. Both managers are filled afresh for each round, untimed."""
    texts = prompts(count)

    def ours() -> float:
        manager = our_full(texts)
        rows = manager.rows(range(count))
        return elapsed(lambda: manager.free_batch(rows))

    def other() -> float:
        peer, handles = vllm_full(texts)
        return elapsed(lambda: peer.leave(handles))

    return against(f"free {count} × 1,024 tokens in one call, each", paired(ours, other, rounds), 10, count)


def our_full(texts: Int32) -> BlockManager:
    """A pool that these prompts fill, each written and published."""
    count, length = texts.shape
    manager = BlockManager(count * length // BLOCK_SIZE, BLOCK_SIZE)
    for request, text in enumerate(texts):
        manager.admit(request, text)
        manager.commit(request, length)
    return manager


def vllm_full(texts: Int32) -> tuple[vllm.VllmManager, list[Any]]:
    """The same, and the requests."""
    peer = vllm.VllmManager(texts.size // BLOCK_SIZE)
    entries = [peer.enter(peer.arrive(request, text)) for request, text in enumerate(texts.tolist())]
    return peer, [entry.handle for entry in entries if entry is not None]


def fork(rounds: int) -> Row:
    """A fork takes no block and copies no KV, so it should be cheaper than the shortest of admissions."""
    parent, length = 4096, 64
    manager = BlockManager(parent // BLOCK_SIZE + rounds * length // BLOCK_SIZE, BLOCK_SIZE)
    manager.admit("parent", prompts(1, parent)[0])
    manager.commit("parent", parent)
    texts = prompts(rounds, length, seed=1)

    def each(action: Callable[[int], object]) -> Round:
        requests = iter(range(rounds))

        def once() -> float:
            request = next(requests)
            return elapsed(lambda: action(request))

        return once

    forks = each(lambda request: manager.fork("parent", ("fork", request)))
    admits = each(lambda request: manager.admit(request, texts[request]))
    return against("fork 4,096 tokens, ours (the other: our own admit of 64)", paired(forks, admits, rounds), 1)
