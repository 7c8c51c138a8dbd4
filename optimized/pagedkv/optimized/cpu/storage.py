"""How numbers lie in memory: the kinds of caches, queries and outputs, read as float32 and written rounded."""

from typing import Any

from pagedkv.optimized.cpu.compiler import compiled
from pagedkv.optimized.cpu.simd import (
    WIDTH, load, load_bfloat16, load_bfloat16_part, load_float16, load_float16_part, load_part, store,
    store_bfloat16, store_bfloat16_part, store_float16, store_float16_part, store_part,
)  # fmt: skip

FLOAT32, FLOAT16, BFLOAT16 = range(3)


@compiled
def item_size(kind: int) -> int:
    """Bytes of a number."""
    return 4 if kind == FLOAT32 else 2


@compiled
def read_vector(kind: int, place: int, count: int) -> Any:
    """The first `count` numbers at a place as float32, a vector at the most, and zeros behind them."""
    if count >= WIDTH:
        return load(place) if kind == FLOAT32 else load_float16(place) if kind == FLOAT16 else load_bfloat16(place)
    if kind == FLOAT32:
        return load_part(place, count)
    return load_float16_part(place, count) if kind == FLOAT16 else load_bfloat16_part(place, count)


@compiled
def write_vector(kind: int, place: int, x: Any, count: int) -> None:
    """The first `count` numbers of a vector, rounded to `kind`."""
    if count >= WIDTH:
        if kind == FLOAT32:
            store(place, x)
        elif kind == FLOAT16:
            store_float16(place, x)
        else:
            store_bfloat16(place, x)
    elif kind == FLOAT32:
        store_part(place, x, count)
    elif kind == FLOAT16:
        store_float16_part(place, x, count)
    else:
        store_bfloat16_part(place, x, count)
