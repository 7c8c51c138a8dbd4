"""The write path: exact by definition, compared byte for byte over the whole pool.

`write_kv` stores each row rounded to the nearest value of the cache's dtype (ties to even) at its slot, skips slots
< 0 and touches nothing else; `copy_blocks` copies whole blocks and touches nothing else.
"""

from itertools import product
from typing import Any

import numpy as np

from pagedkv.conformance.attention.bench import Bench, Broken, Law, whole
from pagedkv.conformance.attention.cases import Case, cast, max_finite
from pagedkv.conformance.attention.placement import empty_pool

NUM_BLOCKS = 7


def write_path(bench: Bench, case: Case) -> int:
    """Stored bytes are the cast of the input at slots >= 0; every other byte is as it was."""
    rng = np.random.default_rng((case.seed, 31))
    checked = 0
    for (count, skipped), layout in product(((0, 0), (1, 0), (2, 2), (2 * case.block_size + 1, 2)), _layouts(bench)):
        slots = rng.permutation(NUM_BLOCKS * case.block_size)[:count].astype(np.int64)
        slots[rng.permutation(count)[:skipped]] = [-1, -(2**40)][:skipped]
        rows = [_rows(case, dim, count, rng) for dim in case.dims]
        pools = [_pool(case, dim, rng, layout) for dim in case.dims]
        expected = [pool.copy() for pool in pools]
        for row, pool in zip(rows, expected, strict=True):
            kept = slots >= 0
            pool[slots[kept] // case.block_size, slots[kept] % case.block_size] = cast(row[kept], case.dtype)
        bench.write_kv(rows, pools, slots, case.dtype)
        for name, want, pool in zip(("key_cache", "value_cache"), expected, pools, strict=True):
            _same_slots(name, want, pool, slots, case.dtype)
            _same_padding(name, pool)
            checked += 1
    return checked


def copy_blocks(bench: Bench, case: Case) -> int:
    """Each destination holds its source's bytes, a source copied twice too; every other byte is as it was."""
    rng = np.random.default_rng((case.seed, 32))
    checked = 0
    plans: list[list[tuple[int, int]]] = [[], [(6, 0)], [(0, 5), (0, 3), (4, 2)]]
    for pairs, layout in product(plans, _layouts(bench)):
        caches = [_pool(case, dim, rng, layout) for dim in (*case.dims, case.head_dim)]
        expected = [cache.copy() for cache in caches]
        for cache in expected:
            for source, destination in pairs:
                cache[destination] = cache[source]
        bench.copy_blocks(caches, np.array(pairs, dtype=np.int64).reshape(-1, 2), case.dtype)
        destinations = [destination for _, destination in pairs]
        for index, (want, cache) in enumerate(zip(expected, caches, strict=True)):
            for block in range(NUM_BLOCKS):
                if not _same(want[block], cache[block], case.dtype):
                    what = "does not hold its source's bytes" if block in destinations else "changed, and is no target"
                    raise Broken(f"cache {index}, copies {pairs}: block {block} {what}")
            _same_padding(f"cache {index}, copies {pairs}", cache)
            checked += 1
    return checked


WRITES: dict[str, Law] = {"write_path": write_path, "copy_blocks": copy_blocks}
"""Both laws by name."""


def _rows(case: Case, dim: int, count: int, rng: np.random.Generator) -> Any:
    """(count, num_kv_heads, dim) float32: random values that need rounding, ties, and the awkward ones."""
    rows = rng.standard_normal((count, case.num_kv_heads, dim)).astype(np.float32)
    top = max_finite(case.dtype)
    ulp = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[case.dtype]
    ties = [1 + ulp / 2, 1 + 3 * ulp / 2, -(1 + ulp / 2), 1 + ulp / 2 + 2.0**-23]
    awkward = np.array([0.0, -0.0, np.inf, -np.inf, top, -top, 2.0**-24, 2.0**-133, *ties], dtype=np.float32)
    chosen = rng.random(rows.shape) < 0.4
    rows[chosen] = rng.choice(awkward, size=int(chosen.sum()))
    return rows


def _layouts(bench: Bench) -> tuple[str, ...]:
    return ("plain", "padded") if bench.subject.capabilities.strided else ("plain",)


def _pool(case: Case, dim: int, rng: np.random.Generator, layout: str) -> Any:
    """A pool full of marks, NaN among them: what must survive."""
    pool = empty_pool(case, dim, NUM_BLOCKS, layout)
    marks = rng.standard_normal(pool.shape)
    marks[rng.random(pool.shape) < 0.1] = np.nan
    pool[...] = cast(marks, case.dtype)
    return pool


def _same(want: Any, got: Any, dtype: str) -> bool:
    """The same bytes. For bfloat16, which comes back converted to float32, any NaN stands for any NaN."""
    if dtype == "bfloat16":
        want, got = (np.where(np.isnan(array), np.float32(np.nan), array) for array in (want, got))
    return bool(want.tobytes() == got.tobytes())


def _same_slots(name: str, want: Any, got: Any, slots: Any, dtype: str) -> None:
    """Slot by slot; the message tells a wrong write from a touched bystander."""
    block_size = want.shape[1]
    for slot in range(want.shape[0] * block_size):
        at = divmod(slot, block_size)
        if not _same(want[at], got[at], dtype):
            what = "does not hold the row written to it" if slot in slots else "changed, and no row was written to it"
            raise Broken(f"{name}: slot {slot} {what} (slots {slots.tolist()})")


def _same_padding(name: str, pool: Any) -> None:
    """Where rows are padded, 0 stands past their ends, and stays there."""
    if np.any(whole(pool)[..., pool.shape[-1] :]):
        raise Broken(f"{name}: something was written past the end of a row, into what pads it")
