"""What LLVM is told about vectors of float32: a type for numba, and code for the few instructions that attention needs.

numba compiles loops over scalars, and leaves vectors to LLVM, which does not find the block of accumulators that has to
stay in registers. So vectors are said here, each instruction in a line or two of LLVM's IR; that is the same for every
processor, but for how many lanes a vector has. Addresses are integers, in bytes, and need no alignment beyond that of
an element. `pagedkv.optimized.cpu.simd` has the instructions by name.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, register_model


def processor() -> frozenset[str]:
    """What numba compiles for: the features of this machine, or those of NUMBA_CPU_NAME and NUMBA_CPU_FEATURES."""
    listed = cpu_target.target_context.codegen()._tm_features.split(",")
    return frozenset(feature[1:] for feature in listed if feature.startswith("+"))


def lanes(features: frozenset[str]) -> int:
    """float32 in a vector register."""
    return 16 if "avx512f" in features else 8 if "avx2" in features else 4


WIDTH: Final = lanes(processor())
VECTOR: Final = 4 * WIDTH
"""Bytes of a vector."""

BIT, BYTE, SHORT, INT, LONG = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
FLOAT, HALF = ir.FloatType(), ir.HalfType()
FLOATS, INTS, SHORTS = (ir.VectorType(each, WIDTH) for each in (FLOAT, INT, SHORT))
LANE: Final = ir.Constant(INTS, list(range(WIDTH)))


class Floats(types.Type):
    """`WIDTH` float32 in a register."""

    def __init__(self) -> None:
        super().__init__(name=f"float32x{WIDTH}")


@register_model(Floats)
class FloatsModel(models.PrimitiveModel):
    """It is what LLVM calls <WIDTH x float>."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, FLOATS)


floats, address, integer, number = Floats(), types.int64, types.int64, types.float32


def instruction(result: Any, arguments: Sequence[Any], generate: Callable[..., Any]) -> Any:
    """A function for compiled code: `generate(builder, *arguments)` makes LLVM's value for it, or None."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        value = generate(builder, *values)
        return context.get_dummy_value() if value is None else value

    def typed(context: Any, *given: Any) -> Any:
        return result(*arguments), emit

    names = ["context", *(f"x{i}" for i in range(len(arguments)))]
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    typed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # numba reads it
    return intrinsic(typed)


def everywhere(value: float, kind: Any = FLOATS) -> ir.Constant:
    """A constant in every lane."""
    return ir.Constant(kind, [float(np.float32(value)) if kind is FLOATS else int(value)] * WIDTH)


def call(builder: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    """Of one of LLVM's own functions."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def read(builder: Any, place: Any, kind: Any, align: int = 4) -> Any:
    """What lies at an address."""
    value = builder.load(builder.inttoptr(place, kind.as_pointer()))
    value.align = align
    return value


def write(builder: Any, place: Any, value: Any) -> None:
    """Store."""
    builder.store(value, builder.inttoptr(place, value.type.as_pointer())).align = 4


def spread(builder: Any, value: Any, kind: Any = FLOATS) -> Any:
    """A scalar in every lane."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(INT, 0))
    return builder.shuffle_vector(first, first, ir.Constant(INTS, [0] * WIDTH))


def below(builder: Any, count: Any) -> Any:
    """Lanes 0 to count - 1."""
    return builder.icmp_signed("<", LANE, spread(builder, builder.trunc(count, INT), INTS))


def stored(kind: str) -> tuple[Any, int]:
    """How LLVM sees a vector of the cache, and its alignment."""
    return (FLOATS, 2) if kind == "float32" else (SHORTS, 2)  # pairs of 16 bits, too, are read as float32


def widened(builder: Any, value: Any, kind: str) -> Any:
    """A vector of the cache as float32, exactly."""
    if kind == "float16":
        return builder.fpext(builder.bitcast(value, ir.VectorType(HALF, WIDTH)), FLOATS)
    if kind == "bfloat16":
        return builder.bitcast(builder.shl(builder.zext(value, INTS), everywhere(16, INTS)), FLOATS)
    return value


def stored_at(builder: Any, place: Any, kind: str, count: Any = None) -> Any:
    """A vector of the cache as it lies there, or its first elements."""
    form, align = stored(kind)
    if count is None:
        return read(builder, place, form, align)
    name = f"llvm.masked.load.v{WIDTH}{'f32' if form is FLOATS else 'i16'}.p0"
    at = builder.inttoptr(place, form.as_pointer())
    return call(builder, name, form, [at, ir.Constant(INT, align), below(builder, count), ir.Constant(form, None)])


def load_of(kind: str, builder: Any, place: Any, count: Any = None) -> Any:
    """A vector of the cache as float32, or its first elements."""
    return widened(builder, stored_at(builder, place, kind, count), kind)


def transposition(builder: Any, rows: Sequence[Any]) -> list[Any]:
    """The columns of `WIDTH` rows: halves change places, then quarters, …"""
    rows, half = list(rows), WIDTH // 2
    while half:
        low = [k if not k & half else WIDTH + k - half for k in range(WIDTH)]
        high = [k + half if not k & half else WIDTH + k for k in range(WIDTH)]
        for i in range(WIDTH):
            if not i & half:
                pair = rows[i], rows[i + half]
                rows[i] = builder.shuffle_vector(*pair, ir.Constant(INTS, low))
                rows[i + half] = builder.shuffle_vector(*pair, ir.Constant(INTS, high))
        half //= 2
    return rows


def transpose_of(kind: str, builder: Any, places: Any, offset: Any, target: Any, step: Any, count: Any = None) -> None:
    """See `transpose`."""
    at = [read(builder, builder.add(places, ir.Constant(LONG, 8 * i)), LONG, 8) for i in range(WIDTH)]
    rows = [load_of(kind, builder, builder.add(each, offset), count) for each in at]
    for j, column in enumerate(transposition(builder, rows)):
        write(builder, builder.add(target, builder.mul(step, ir.Constant(LONG, j))), column)


def folded(builder: Any, value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """All lanes as one: the upper half onto the lower, and so on; always in the same order."""
    width = WIDTH
    while width > 1:
        width //= 2
        halves = ([*range(width)], [*range(width, 2 * width)])
        low, high = (
            builder.shuffle_vector(value, value, ir.Constant(ir.VectorType(INT, width), half)) for half in halves
        )
        value = combine(low, high)
    return builder.extract_element(value, ir.Constant(INT, 0))


def larger(builder: Any, a: Any, b: Any) -> Any:
    """The larger of each lane; `b` where one is no number."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def exceeds(builder: Any, a: Any, b: Any) -> Any:
    """Whether any lane of `a` is larger than that of `b`."""
    lanes = builder.bitcast(builder.fcmp_ordered(">", a, b), ir.IntType(WIDTH))
    return builder.icmp_unsigned("!=", lanes, ir.Constant(ir.IntType(WIDTH), 0))


def power(builder: Any, x: Any) -> Any:
    """2**x for x <= 0, off by less than 2**-23 of it; 0 where that is less than 2**-126.5.

    2**x = 2**n 2**f with n the integer next to x, found by adding a number so large that nothing behind the point is
    left, and f in [-0.5, 0.5], for which a polynomial does.
    """
    x = builder.select(builder.fcmp_ordered("<", x, everywhere(-127.0)), everywhere(-127.0), x)
    shifted = builder.fadd(x, everywhere(SHIFT))
    f = builder.fsub(x, builder.fsub(shifted, everywhere(SHIFT)))
    value = everywhere(POWERS[-1])
    for coefficient in POWERS[-2::-1]:
        value = call(builder, f"llvm.fma.v{WIDTH}f32", FLOATS, [value, f, everywhere(coefficient)])
    bias = 127 - int(np.float32(SHIFT).view(np.int32))
    exponent = builder.shl(builder.add(builder.bitcast(shifted, INTS), everywhere(bias, INTS)), everywhere(23, INTS))
    return builder.fmul(value, builder.bitcast(exponent, FLOATS))


SHIFT: Final = 1.5 * 2.0**23


def fitted_powers(degree: int) -> list[float]:
    """Coefficients of 2**f on [-0.5, 0.5], through the Chebyshev points; exact at 0."""
    points = 0.5 * np.cos((2 * np.arange(degree + 1) + 1) * np.pi / (2 * degree + 2))
    return [1.0, *np.polynomial.polynomial.polyfit(points, 2.0**points, degree)[1:].tolist()]


POWERS: Final = fitted_powers(6)


def kept(builder: Any, x: Any, first: Any, end: Any) -> Any:
    """Lanes first to end - 1; -inf in the others."""
    inside = builder.and_(below(builder, end), builder.not_(below(builder, first)))
    return builder.select(inside, x, everywhere(-np.inf))


def prefetched(builder: Any, place: Any) -> None:
    """Ask for a cache line, into the second level."""
    at = builder.inttoptr(place, BYTE.as_pointer())
    call(builder, "llvm.prefetch.p0", ir.VoidType(), [at, *(ir.Constant(INT, each) for each in (0, 2, 1))])


def copied(builder: Any, target: Any, source: Any, count: Any) -> None:
    """`count` bytes, which do not overlap."""
    pointers = [builder.inttoptr(place, BYTE.as_pointer()) for place in (target, source)]
    call(builder, "llvm.memcpy.p0.p0.i64", ir.VoidType(), [*pointers, count, ir.Constant(BIT, 0)])


def streamed(builder: Any, place: Any, value: Any) -> None:
    """Store a vector at a multiple of its size, past the caches: nothing is read before, and nothing makes room."""
    instruction = builder.store(value, builder.inttoptr(place, value.type.as_pointer()))
    instruction.align = VECTOR
    instruction.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(INT, 1)]))


def next_of(builder: Any, place: Any) -> Any:
    """Count up what several threads share, and give what it was."""
    return builder.atomic_rmw("add", builder.inttoptr(place, LONG.as_pointer()), ir.Constant(LONG, 1), "monotonic")


def rounded(builder: Any, value: Any, kind: str) -> Any:
    """Float32 as a vector of the cache: to nearest, ties to even; a NaN stays one."""
    if kind == "float16":
        return builder.bitcast(builder.fptrunc(value, ir.VectorType(HALF, WIDTH)), SHORTS)
    if kind == "float32":
        return value
    bits, upper = builder.bitcast(value, INTS), everywhere(16, INTS)
    odd = builder.and_(builder.lshr(bits, upper), everywhere(1, INTS))
    near = builder.add(bits, builder.add(odd, everywhere(0x7FFF, INTS)))
    nan = builder.or_(bits, everywhere(0x400000, INTS))
    chosen = builder.select(builder.fcmp_unordered("uno", value, value), nan, near)
    return builder.trunc(builder.lshr(chosen, upper), SHORTS)


def store_of(kind: str, builder: Any, place: Any, value: Any, count: Any = None) -> None:
    """Store a vector, or its first elements, rounded."""
    (form, align), value = stored(kind), rounded(builder, value, kind)
    at = builder.inttoptr(place, form.as_pointer())
    if count is None:
        builder.store(value, at).align = align
        return
    name = f"llvm.masked.store.v{WIDTH}{'f32' if form is FLOATS else 'i16'}.p0"
    call(builder, name, ir.VoidType(), [value, at, ir.Constant(INT, align), below(builder, count)])
