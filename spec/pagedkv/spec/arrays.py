"""Chapter 16. Arrays (layer L2): where keys and values lie.

A pool of keys and a pool of values have the layout

    (num_blocks, block_size, num_kv_heads, head_dim)

so that slot = block * block_size + offset counts rows (Kwon et al., 2023, §4.2–4.3). State is values: an operation
takes arrays and returns new ones. What a kernel must not do, these functions cannot do: table entries past
ceil(length / block_size) and slots past the length are never read, and a slot < 0 is never written.

Law: `gather` after `write` through any table gives the rows back in logical order.

>>> empty = np.zeros((6, 4, 1, 1), dtype=np.float32)
>>> rows = np.arange(5, dtype=np.float32).reshape(5, 1, 1)
>>> keys, values = write(empty, empty, rows, 10 * rows, slots([4, 1], range(5), 4))
>>> gather(values, [4, 1, 99], 5).ravel().tolist()  # the third entry lies past the end: anything
[0.0, 10.0, 20.0, 30.0, 40.0]
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pagedkv.spec.words import HOLE, Misuse, ceil_div

Array: TypeAlias = NDArray[Any]
Integers: TypeAlias = Sequence[int] | range | NDArray[np.integer[Any]]

DTYPES = ("float32", "float16", "bfloat16")
"""Storage formats."""


def stored(array: Array, dtype: str) -> Array:
    """`array` as `dtype` stores it: each element the nearest value, ties to even.

    NumPy has no bfloat16, so its values travel as float32; float16 and float32 are themselves.

    >>> stored(np.float32([1 + 2**-8, 1 + 3 * 2**-8]), "bfloat16").tolist()
    [1.0, 1.015625]
    """
    if dtype not in DTYPES:
        raise Misuse("dtype", dtype, f"one of {', '.join(DTYPES)}")
    if dtype != "bfloat16":
        with np.errstate(over="ignore"):  # beyond the largest finite value lies infinity
            return np.asarray(array).astype(np.float16 if dtype == "float16" else np.float32)
    single = np.asarray(array).astype(np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    even = np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))
    rounded = ((bits + even) & np.uint64(0xFFFF0000)).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(single), single, rounded)


def slots(table: Integers, positions: Integers, block_size: int) -> NDArray[np.int64]:
    """The slots (len(positions),) int64 of positions under a block table.

    A position must lie in a block of the table that a window has not released.

    >>> slots([4, 1], range(3, 6), 4).tolist()
    [19, 4, 5]
    """
    where = np.asarray(positions, dtype=np.int64)
    blocks = np.asarray(table, dtype=np.int64)
    if where.size and not 0 <= where.min() <= where.max() < len(blocks) * block_size:
        raise Misuse("positions", where.tolist(), f"positions in 0..{len(blocks) * block_size - 1}")
    chosen = blocks[where // block_size]
    if (chosen < 0).any():
        raise Misuse("table", blocks.tolist(), f"a block for each position, not a hole ({HOLE})")
    return chosen * block_size + where % block_size


def write(
    key_cache: Array, value_cache: Array, key: Array, value: Array, slot_mapping: Integers
) -> tuple[Array, Array]:
    """Both pools after row t of `key` and `value` (num_tokens, num_kv_heads, head_dim) went to slot_mapping[t].

    A row whose slot is < 0 is skipped. Slots must be distinct: which of two rows would win is nobody's promise. Rows
    are rounded to the pool's dtype (for bfloat16, pass `stored` rows).
    """
    target = np.asarray(slot_mapping, dtype=np.int64)
    block_size = key_cache.shape[1]
    kept = target >= 0
    block, offset = np.divmod(target[kept], block_size)
    if len(np.unique(target[kept])) != kept.sum() or (block >= len(key_cache)).any():
        raise Misuse("slot_mapping", target.tolist(), f"distinct slots < {len(key_cache) * block_size}, or < 0 to skip")
    new_keys, new_values = key_cache.copy(), value_cache.copy()
    new_keys[block, offset] = np.asarray(key)[kept]
    new_values[block, offset] = np.asarray(value)[kept]
    return new_keys, new_values


def copy_blocks(cache: Array, pairs: Sequence[tuple[int, int]]) -> Array:
    """The pool after the copies (source, destination) of a plan, which happen together.

    Destinations are disjoint from sources and from each other, so no order of the copies can show.

    >>> copy_blocks(np.arange(4.0).reshape(4, 1, 1, 1), [(1, 0), (1, 3)]).ravel().tolist()
    [1.0, 1.0, 2.0, 1.0]
    """
    sources = [int(source) for source, _ in pairs]
    destinations = [int(destination) for _, destination in pairs]
    if len(set(destinations)) != len(destinations) or set(sources) & set(destinations):
        raise Misuse("pairs", [tuple(pair) for pair in pairs], "destinations unlike each other and all sources")
    if not all(0 <= block < len(cache) for block in sources + destinations):
        raise Misuse("pairs", [tuple(pair) for pair in pairs], f"blocks in 0..{len(cache) - 1}")
    result = cache.copy()
    result[destinations] = cache[sources]
    return result


def gather(cache: Array, table: Integers, length: int) -> Array:
    """Positions 0..length-1 of a request in logical order: (length, num_kv_heads, head_dim), a copy.

    Where the table has a hole nothing lies, which reads as NaN: no row may see it.
    """
    block_size = cache.shape[1]
    blocks = np.asarray(table, dtype=np.int64)[: ceil_div(length, block_size)]
    if len(blocks) * block_size < length:
        raise Misuse("length", length, f"at most {len(blocks) * block_size}, which the table holds")
    if not all(block == HOLE or 0 <= block < len(cache) for block in blocks.tolist()):
        raise Misuse("table", blocks.tolist(), f"blocks in 0..{len(cache) - 1}, or {HOLE} for a hole")
    block, offset = np.repeat(blocks, block_size)[:length], np.arange(length) % block_size
    rows = np.full((length, *cache.shape[2:]), np.nan, dtype=cache.dtype)
    live = block != HOLE
    rows[live] = cache[block[live], offset[live]]
    return rows
