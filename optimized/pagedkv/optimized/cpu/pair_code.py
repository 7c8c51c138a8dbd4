"""What LLVM is told about pairs of bfloat16: two numbers in each lane of float32, the first in the lower half.

A processor that `HAS_DOT` multiplies both of a pair and adds them to a float32 in one instruction; it takes numbers too
small for a normal float32 as 0. (Intel, "Intrinsics Guide", _mm512_dpbf16_ps; AMD has it since Zen 4.)
"""

from typing import Any, Final

from llvmlite import ir

from pagedkv.optimized.cpu.vector_code import (
    FLOATS, INT, INTS, LONG, SHORT, SHORTS, WIDTH, call, everywhere, processor, read, store_of, stored_at, write,
)  # fmt: skip

HAS_DOT: Final = "avx512bf16" in processor()


def lanes_of(builder: Any, pairs: Any) -> Any:
    """As integers."""
    return builder.bitcast(pairs, INTS)


def first_only(builder: Any, pairs: Any) -> Any:
    """Zeros for the second of each pair."""
    return builder.bitcast(builder.and_(lanes_of(builder, pairs), everywhere(0xFFFF, INTS)), FLOATS)


def second_only(builder: Any, pairs: Any) -> Any:
    """Zeros for the first of each pair; as float32, the second."""
    return builder.bitcast(builder.and_(lanes_of(builder, pairs), everywhere(0xFFFF0000, INTS)), FLOATS)


def first_of_pairs(builder: Any, pairs: Any) -> Any:
    """The first of each pair as float32."""
    return builder.bitcast(builder.shl(lanes_of(builder, pairs), everywhere(16, INTS)), FLOATS)


def dotted(builder: Any, a: Any, b: Any, x: Any) -> Any:
    """See `dot`."""
    if HAS_DOT:
        arguments = [x, lanes_of(builder, a), lanes_of(builder, b)]
        return call(builder, f"llvm.x86.avx512bf16.dpbf16ps.{32 * WIDTH}", FLOATS, arguments)
    for each in (second_only, first_of_pairs):
        x = call(builder, f"llvm.fma.v{WIDTH}f32", FLOATS, [each(builder, a), each(builder, b), x])
    return x


def joined(builder: Any, first: Any, second: Any, count: Any) -> Any:
    """The first `count` bfloat16 at two addresses as pairs, a vector at the most."""
    low, high = (builder.zext(stored_at(builder, place, "bfloat16", count), INTS) for place in (first, second))
    return builder.bitcast(builder.or_(low, builder.shl(high, everywhere(16, INTS))), FLOATS)


def join_at(builder: Any, first: Any, second: Any, target: Any) -> None:
    """See `join`."""
    wide = ir.VectorType(SHORT, 2 * WIDTH)
    rows = [read(builder, place, wide, 2) for place in (first, second)]
    for half in (0, WIDTH):
        order = [half + i // 2 + 2 * WIDTH * (i % 2) for i in range(2 * WIDTH)]
        pairs = builder.shuffle_vector(*rows, ir.Constant(ir.VectorType(INT, 2 * WIDTH), order))
        write(builder, builder.add(target, ir.Constant(LONG, 4 * half)), pairs)


def store_near(builder: Any, place: Any, value: Any) -> None:
    """See `store_weights`."""
    if not HAS_DOT:
        store_of("bfloat16", builder, place, value)
        return
    rounded = call(builder, f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * WIDTH}", SHORTS, [value])
    builder.store(rounded, builder.inttoptr(place, SHORTS.as_pointer())).align = 2
