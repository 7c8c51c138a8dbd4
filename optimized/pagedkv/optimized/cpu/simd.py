"""The instructions of compiled loops, by name: see `pagedkv.optimized.cpu.vector_code`.

Functions named _part take the first `count` elements of a vector, fill up with zeros, and touch nothing else.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from pagedkv.optimized.cpu.pair_code import HAS_DOT, dotted, first_only, join_at, joined, second_only, store_near
from pagedkv.optimized.cpu.vector_code import (
    FLOAT, FLOATS, INT, LONG, VECTOR, WIDTH, address, call, copied, exceeds, floats, folded, instruction, integer, kept,
    larger, load_of, next_of, number, power, prefetched, read, spread, store_of, streamed, transpose_of, write,
)  # fmt: skip

__all__ = ["HAS_DOT", "VECTOR", "WIDTH"]


def of_kind(generate: Callable[..., Any], kind: str) -> Callable[..., Any]:
    """The same, for what is stored as `kind`."""
    return lambda *arguments: generate(kind, *arguments)


load = instruction(floats, [address], of_kind(load_of, "float32"))
load_float16 = instruction(floats, [address], of_kind(load_of, "float16"))
load_bfloat16 = instruction(floats, [address], of_kind(load_of, "bfloat16"))
load_part = instruction(floats, [address, integer], of_kind(load_of, "float32"))
load_float16_part = instruction(floats, [address, integer], of_kind(load_of, "float16"))
load_bfloat16_part = instruction(floats, [address, integer], of_kind(load_of, "bfloat16"))

transpose = instruction(types.void, [address, integer, address, integer], of_kind(transpose_of, "float32"))
"""transpose(places, offset, target, step): the vectors `offset` behind the `WIDTH` addresses at `places` are stored at
target, target + step, …, rows as columns."""
transpose_float16 = instruction(types.void, [address, integer, address, integer], of_kind(transpose_of, "float16"))
transpose_bfloat16 = instruction(types.void, [address, integer, address, integer], of_kind(transpose_of, "bfloat16"))
transpose_part = instruction(
    types.void, [address, integer, address, integer, integer], of_kind(transpose_of, "float32")
)
transpose_float16_part = instruction(
    types.void, [address, integer, address, integer, integer], of_kind(transpose_of, "float16")
)
transpose_bfloat16_part = instruction(
    types.void, [address, integer, address, integer, integer], of_kind(transpose_of, "bfloat16")
)

join = instruction(types.void, [address] * 3, join_at)
"""join(first, second, target): two vectors of the bfloat16 at each of two addresses are stored as pairs."""
join_part = instruction(floats, [address, address, integer], joined)
first_halves = instruction(floats, [floats], first_only)
second_halves = instruction(floats, [floats], second_only)
dot = instruction(floats, [floats] * 3, dotted)
"""dot(a, b, x): x + a * b for the first of pairs of bfloat16, and for the second."""
store_weights = instruction(types.void, [address, floats], store_near)
"""Rounded to bfloat16; what is too small for a normal number may become 0."""

store = instruction(types.void, [address, floats], of_kind(store_of, "float32"))
store_float16 = instruction(types.void, [address, floats], of_kind(store_of, "float16"))
store_bfloat16 = instruction(types.void, [address, floats], of_kind(store_of, "bfloat16"))
store_part = instruction(types.void, [address, floats, integer], of_kind(store_of, "float32"))
store_float16_part = instruction(types.void, [address, floats, integer], of_kind(store_of, "float16"))
store_bfloat16_part = instruction(types.void, [address, floats, integer], of_kind(store_of, "bfloat16"))

load_number = instruction(number, [address], lambda builder, place: read(builder, place, FLOAT))
store_number = instruction(types.void, [address, number], write)
load_int32 = instruction(types.int32, [address], lambda builder, place: read(builder, place, INT))
load_int64 = instruction(integer, [address], lambda builder, place: read(builder, place, LONG, 8))
store_int64 = instruction(types.void, [address, integer], write)

splat = instruction(floats, [number], spread)
first_of = instruction(number, [floats], lambda builder, x: builder.extract_element(x, ir.Constant(INT, 0)))
absolute = instruction(floats, [floats], lambda builder, x: call(builder, f"llvm.fabs.v{WIDTH}f32", FLOATS, [x]))
signed = instruction(floats, [floats] * 2, lambda builder, *xy: call(builder, f"llvm.copysign.v{WIDTH}f32", FLOATS, xy))
"""signed(x, y): x with the sign of y."""
fma = instruction(floats, [floats] * 3, lambda builder, *xyz: call(builder, f"llvm.fma.v{WIDTH}f32", FLOATS, xyz))
plus = instruction(floats, [floats] * 2, lambda builder, a, b: builder.fadd(a, b))
minus = instruction(floats, [floats] * 2, lambda builder, a, b: builder.fsub(a, b))
times = instruction(floats, [floats] * 2, lambda builder, a, b: builder.fmul(a, b))
over = instruction(floats, [floats] * 2, lambda builder, a, b: builder.fdiv(a, b))
any_larger = instruction(types.boolean, [floats] * 2, exceeds)
maximum = instruction(floats, [floats] * 2, larger)
where_less = instruction(
    floats, [floats] * 4, lambda builder, a, b, x, y: builder.select(builder.fcmp_ordered("<", a, b), x, y)
)
"""where_less(a, b, x, y): x where a < b, else y."""
exp2 = instruction(floats, [floats], power)
keep = instruction(floats, [floats, integer, integer], kept)
lane_numbers = instruction(floats, [], lambda builder: ir.Constant(FLOATS, [float(i) for i in range(WIDTH)]))
total = instruction(number, [floats], lambda builder, x: folded(builder, x, builder.fadd))
top = instruction(number, [floats], lambda builder, x: folded(builder, x, lambda a, b: larger(builder, a, b)))

prefetch = instruction(types.void, [address], prefetched)
stream = instruction(types.void, [address, floats], streamed)
fence = instruction(types.void, [], lambda builder: builder.fence("seq_cst"))
"""What was stored before is seen by others before what is stored after, streamed or not."""
copy_bytes = instruction(types.void, [address, address, integer], copied)
take_next = instruction(integer, [address], next_of)
