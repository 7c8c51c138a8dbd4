# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# (a kernel's parameters are Triton values, and Triton refuses to compile a function annotated otherwise)
"""Kernels of a few lines, right and deliberately wrong ones, to hold the interpreter and the audit against."""

import triton
import triton.language as tl

SCALE = tl.constexpr(3.0)


@triton.jit
def scaled(x, FACTOR: tl.constexpr):
    """A helper, called by the kernels."""
    return x * FACTOR


@triton.jit
def add_kernel(x, y, out, num_elements, PIECE: tl.constexpr):
    """out = x + 3 y, a piece a program."""
    at = tl.program_id(0) * PIECE + tl.arange(0, PIECE)
    inside = at < num_elements
    total = tl.load(x + at, mask=inside) + scaled(tl.load(y + at, mask=inside), SCALE)
    tl.store(out + at, total, mask=inside)


@triton.jit
def unmasked_kernel(x, out, PIECE: tl.constexpr):
    """Copies whole pieces, also beyond the end."""
    at = tl.program_id(0) * PIECE + tl.arange(0, PIECE)
    tl.store(out + at, tl.load(x + at))


@triton.jit
def overlapping_kernel(x, out, STEP: tl.constexpr, PIECE: tl.constexpr):
    """Program p stores p to out[p * STEP :][:PIECE]: the last one to run wins where they overlap."""
    at = tl.program_id(0) * STEP + tl.arange(0, PIECE)
    tl.store(out + at, tl.load(x + at) * 0 + tl.program_id(0))


@triton.jit
def shift_kernel(x):
    """x[p + 1] = x[p] + 1: each program reads what the one before it writes."""
    at = tl.program_id(0)
    tl.store(x + at + 1, tl.load(x + at) + 1)


@triton.jit
def count_kernel(x, total):
    """total += x[p], atomically."""
    tl.atomic_add(total, tl.load(x + tl.program_id(0)))


@triton.jit
def language_kernel(x, out, PIECE: tl.constexpr):
    """Parts of the language that are themselves written in it."""
    v = tl.load(x + tl.arange(0, PIECE))
    result = tl.softmax(v) + v.sum(0) + tl.max(v, 0) + tl.argmax(v, 0) + tl.cumsum(v, 0) + tl.cdiv(7, 2)
    tl.store(out + tl.arange(0, PIECE), result + tl.zeros((PIECE,), tl.float32))


@triton.jit
def grid_kernel(out):
    """out[p] = 1 + the linear index of program p in a grid of three axes."""
    at = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2) + tl.program_id(2)
    tl.store(out + at, at + 1)


@triton.jit
def product_kernel(x, y, out, SIZE: tl.constexpr):
    """out = x @ y in float32, rounded to the type of `out`."""
    rows, columns = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    at = rows * SIZE + columns
    product = tl.dot(tl.load(x + at), tl.load(y + at), input_precision="ieee")
    tl.store(out + at, product.to(out.dtype.element_ty))


@triton.jit
def arithmetic_kernel(x, y, out, largest, PIECE: tl.constexpr):
    """out = x y - x in the type of the operands, rounded at each step; largest = max(x, y)."""
    at = tl.arange(0, PIECE)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a * b - a)
    tl.store(largest + at, tl.maximum(a, b))


@triton.jit
def failing_kernel(x):
    """Fails in program 2."""
    tl.store(x + tl.program_id(0), 1)
    if tl.program_id(0) == 2:
        tl.static_assert(False)


@triton.jit
def hungry_kernel(x, out, SIZE: tl.constexpr):
    """Keeps SIZE^2 numbers alive at once: a large one cannot fit the registers."""
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    total = tl.load(x + at)
    other = tl.load(x + SIZE * SIZE + at)
    for _ in range(4):
        total, other = tl.exp2(other) + total, total * other
        tl.debug_barrier()
    tl.store(out + at, total + other)


@triton.jit
def wrong_kernel(x):
    """Does not compile."""
    tl.store(x, tl.arange(0, 3))
