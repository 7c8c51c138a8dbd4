"""Placement: where the contents of a case lie. Nothing here may change one bit of a result."""

import mmap
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagedkv.conformance.attention.cases import Case, Contents, max_finite, storage
from pagedkv.spec.attention_subject import Problem
from pagedkv.spec.words import HOLE, ceil_div

FILLS = ("zero", "nan", "inf", "max", "foreign")
"""What unused slots hold: 0, NaN, +Inf, the largest finite value, or rows of another request."""

LAYOUTS = ("plain", "padded", "far")
"""Pools in C order; heads before offsets (HND) with padded rows; blocks so far apart that 32-bit offsets overflow."""

SPARE_BLOCKS = 3
TAIL_COLUMNS = 2

NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE, which `mmap` does not name: address space without a claim on memory."""


@dataclass(frozen=True)
class Placement:
    """How to lay contents out. The defaults: blocks in random order, unused slots 0, table tails 0."""

    seed: int = 0
    """Draws the physical blocks."""
    fill: str = "zero"
    tail: str = "zero"
    """Entries past a table's end: "zero", "in_range" garbage, or "out_of_range" ids."""
    shared_blocks: int = 0
    """Leading logical blocks that all requests share physically; their contents must agree."""
    dead: str = "live"
    """Blocks that a window hides from every row: "live" contents, "fill" garbage, or a "hole" in the table."""
    layout: str = "plain"
    """How the pools lie in memory, one of `LAYOUTS`."""


def dead_blocks(case: Case, request: int) -> int:
    """Leading blocks of a request that no row of it sees, which a manager may have given away."""
    if case.window is None or not case.query_lens[request]:
        return 0
    return max(0, case.lengths[request] - case.query_lens[request] - case.window + 1) // case.block_size


def tables(case: Case, placement: Placement) -> tuple[Any, int]:
    """(block tables (num_requests, max_blocks) int32 with 0 past the ends, number of blocks of the pool)."""
    counts = [ceil_div(length, case.block_size) for length in case.lengths]
    shared = min([placement.shared_blocks, *counts])
    num_blocks = max(1, shared + sum(count - shared for count in counts)) + SPARE_BLOCKS
    order = np.random.default_rng((placement.seed, 12)).permutation(num_blocks).astype(np.int32)
    common, rest = order[:shared], iter(order[shared:])
    result = np.zeros((len(counts), max(counts, default=0) + TAIL_COLUMNS), dtype=np.int32)
    for row, count in zip(result, counts, strict=True):
        row[:count] = [*common, *(next(rest) for _ in range(count - shared))]
    return result, num_blocks


def place(case: Case, inside: Contents, placement: Placement | None = None) -> Problem:
    """Lay `inside` out as a `Problem`. Pure: the contents are copied."""
    placement = placement or Placement()
    rng = np.random.default_rng((placement.seed, 13))
    block_tables, num_blocks = tables(case, placement)
    pools = []
    for arrays, dim in zip((inside.keys, inside.values), case.dims, strict=True):
        pool = empty_pool(case, dim, num_blocks, placement.layout)
        pool[...] = _filler(case, arrays, pool.shape, placement.fill, rng)
        for request, array in enumerate(arrays):
            hidden = dead_blocks(case, request) if placement.dead != "live" else 0
            scatter(pool, block_tables[request], array, first=hidden * case.block_size)
        pools.append(pool)
    for request, length in enumerate(case.lengths):
        if placement.dead == "hole":
            block_tables[request, : dead_blocks(case, request)] = HOLE
        end = ceil_div(length, case.block_size)
        block_tables[request, end:] = _tail(placement.tail, block_tables.shape[1] - end, num_blocks, rng)
    return problem(case, inside, pools, block_tables)


def problem(case: Case, inside: Contents, pools: Sequence[Any], block_tables: Any) -> Problem:
    """The `Problem` of contents that already lie in `pools` under `block_tables`."""
    shape = (-1, case.num_q_heads, case.head_dim)
    return Problem(
        query=np.concatenate(inside.queries).reshape(shape).copy(),
        key_cache=pools[0],
        value_cache=pools[1],
        block_tables=block_tables,
        seq_lens=np.array(case.lengths, dtype=np.int32),
        query_lens=np.array(case.query_lens, dtype=np.int32),
        scale=inside.scale,
        dtype=case.dtype,
        causal=case.causal,
        window=case.window,
        softcap=inside.softcap,
        alibi_slopes=inside.alibi_slopes,
        sinks=inside.sinks,
        split_size=case.split_size,
    )


def scatter(pool: Any, table: Any, rows: Any, first: int = 0) -> None:
    """Write `rows[first:]` (one a position) into their slots."""
    positions = np.arange(first, len(rows))
    block_size = pool.shape[1]
    pool[table[positions // block_size], positions % block_size] = rows[first:]


def empty_pool(case: Case, dim: int, num_blocks: int, layout: str) -> Any:
    """A pool (num_blocks, block_size, num_kv_heads, dim) of zeros in one of `LAYOUTS`.

    Raises:
        OSError: "far", and the system maps no such range of addresses. Untouched pages take no memory.
    """
    kind, heads = storage(case.dtype), case.num_kv_heads
    if layout == "plain":
        return np.zeros((num_blocks, case.block_size, heads, dim), dtype=kind)
    if layout == "padded":
        return np.zeros((num_blocks, heads, case.block_size, dim + 8), dtype=kind)[..., :dim].swapaxes(1, 2)
    apart = 2**31 // (num_blocks - 1) + 64  # in elements: the last block begins past what 32 bits count
    size = (2**31 + num_blocks * apart) * kind.itemsize  # an offset that wraps around lands inside, on zeros
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    shape, strides = (num_blocks, case.block_size, heads, dim), (apart, heads * dim, dim, 1)
    start = 2**31 * kind.itemsize
    return np.ndarray(shape, kind, memory, start, tuple(stride * kind.itemsize for stride in strides))


def _filler(case: Case, arrays: Sequence[Any], shape: tuple[int, ...], fill: str, rng: np.random.Generator) -> Any:
    if fill == "foreign":
        rows = np.concatenate([*arrays, np.ones((1, *shape[2:]), dtype=storage(case.dtype))])
        return rows[rng.integers(len(rows), size=shape[:2])]
    constants = {"zero": 0.0, "nan": np.nan, "inf": np.inf, "max": max_finite(case.dtype)}
    return np.full(shape, constants[fill], dtype=storage(case.dtype))


def _tail(kind: str, count: int, num_blocks: int, rng: np.random.Generator) -> Any:
    if kind == "zero":
        return np.zeros(count, dtype=np.int32)
    if kind == "in_range":
        return rng.integers(num_blocks, size=count, dtype=np.int32)
    return rng.choice(np.array([-1, num_blocks, -(2**31), 2**31 - 1], dtype=np.int32), size=count)
