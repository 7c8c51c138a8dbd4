"""Where Triton's interpreter computes other numbers than a GPU, and what replaces it while `Interpreted` runs.

The interpreter keeps bfloat16 as 16-bit integers, computes with these, and cuts where a GPU rounds to nearest, ties to
even. Its maximum of a number and NaN is NaN, on a GPU it is the number. Its fused multiply-add rounds the product. All
are mended here: a bfloat16 operation is the float32 operation on the exact operands, rounded once. Not mended:
reductions of bfloat16 tensors other than maximum and minimum, and 8-bit formats; a kernel converts these to float32
first.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.lazy_triton import triton_module


def widen(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The numbers whose bfloat16 encodings are `bits`, exactly.

    >>> widen(np.array([0x3F80, 0xC000], np.uint16)).tolist()
    [1.0, -2.0]
    """
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bfloat16 encodings of `numbers`, rounded to nearest, ties to even; NaN stays NaN.

    >>> [hex(bits) for bits in narrow(np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8], np.float32))]
    ['0x3f80', '0x3f80', '0x3f82']
    """
    bits = np.asarray(numbers, np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = np.where(np.isnan(numbers), bits | np.uint32(0x0040_0000), bits + half)
    return (rounded >> np.uint32(16)).astype(np.uint16)


def operations(builder: Any) -> dict[str, Callable[..., Any]]:
    """The methods of the interpreter's builder that are replaced, by name."""
    kind = type(builder)
    handle = triton_module("triton.runtime.interpreter").TensorHandle
    language = triton_module("triton.language")
    bfloat16, float32 = language.bfloat16, language.float32

    def exact(operand: Any) -> Any:
        return handle(widen(operand.data), float32) if operand.dtype.scalar == bfloat16 else operand

    def cast_impl(source: Any, dtype: Any) -> Any:
        if dtype.scalar == bfloat16 != source.dtype.scalar:
            return handle(narrow(source.data.astype(np.float32)), bfloat16)
        return kind.cast_impl(builder, source if dtype.scalar == bfloat16 else exact(source), dtype)

    def binary_op(left: Any, right: Any, operation: Any) -> Any:
        if left.dtype.scalar != bfloat16:
            return kind.binary_op(builder, left, right, operation)
        result = operation(exact(left).data, exact(right).data)
        return handle(result if result.dtype == np.bool_ else narrow(result), bfloat16)

    def create_dot(left: Any, right: Any, *rest: Any) -> Any:
        return kind.create_dot(builder, exact(left), exact(right), *rest)

    def create_fma(x: Any, y: Any, z: Any) -> Any:
        product = x.data.astype(np.float64) * y.data.astype(np.float64)  # exact for float32
        return handle((product + z.data).astype(z.data.dtype), z.dtype.scalar)

    return {
        "create_fma": create_fma,
        "cast_impl": cast_impl,
        "binary_op": binary_op,
        "create_dot": create_dot,
        "create_maxnumf": lambda left, right: binary_op(left, right, np.fmax),
        "create_minnumf": lambda left, right: binary_op(left, right, np.fmin),
    }
