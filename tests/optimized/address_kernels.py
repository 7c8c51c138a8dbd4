# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# (a kernel's parameters are Triton values, and Triton refuses to compile a function annotated otherwise)
"""Kernels of a few lines that compute addresses: in 32 bits, in 64 where WIDE, and such that need no 64."""

import triton
import triton.language as tl


@triton.jit
def wide(x, WIDE: tl.constexpr):
    """In 64 bits if WIDE."""
    return x.to(tl.int64) if WIDE else x


@triton.jit
def block_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """out[:] = cache[table[program]]."""
    at = tl.arange(0, 16)
    block = wide(tl.load(table + tl.program_id(0)), WIDE)
    tl.store(out + at, tl.load(cache + block * stride_block + at))


@triton.jit
def late_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """The product is made before the number becomes 64-bit."""
    at = tl.arange(0, 16)
    block = wide(tl.load(table + tl.program_id(0)), WIDE)
    offset = (block * stride_block).to(tl.int64)
    tl.store(out + at, tl.load(cache + offset + at))


@triton.jit
def program_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """The id of the program times a stride; the other address has 64 bits."""
    at = tl.arange(0, 16)
    row = wide(tl.program_id(0), WIDE)
    tl.store(out + row * stride_block + at, tl.load(cache + at))


@triton.jit
def lane_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """The number of a lane times a stride that the caller chooses."""
    at = wide(tl.arange(0, 16), WIDE)
    tl.store(out + at, tl.load(cache + at * stride_block))


@triton.jit
def constant_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """A block id times a stride that is known when compiling."""
    at = tl.arange(0, 16)
    block = wide(tl.load(table + tl.program_id(0)), WIDE)
    tl.store(out + at, tl.load(cache + block * 4096 + at))


@triton.jit
def clamped_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """Likewise, of an id that was clamped so that a -1 reads a block that exists."""
    at = tl.arange(0, 16)
    block = wide(tl.maximum(tl.load(table + tl.program_id(0)), 0), WIDE)
    tl.store(out + at, tl.load(cache + block * 4096 + at))


@triton.jit
def chosen_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """Likewise, of an id that another one stands in for."""
    at = tl.arange(0, 16)
    block = tl.load(table + tl.program_id(0))
    block = wide(tl.where(block < 0, 0, block), WIDE)
    tl.store(out + at, tl.load(cache + block * 4096 + at))


@triton.jit
def slot_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """Likewise, of the block of a slot that was loaded."""
    at = tl.arange(0, 16)
    slot = tl.load(table + tl.program_id(0))
    block = wide(slot // 16, WIDE)
    tl.store(out + at, tl.load(cache + block * 4096 + at + slot % 16))


@triton.jit
def shifted_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """Likewise, of the id after the one that was loaded, or so many after it as the caller says."""
    at = tl.arange(0, 16)
    block = wide(stride_block + (tl.load(table + tl.program_id(0)) - 1), WIDE)
    tl.store(out + at, tl.load(cache + block * 4096 + at))


@triton.jit
def grid_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """The id of the program times the size of the grid."""
    at = tl.arange(0, 16)
    row = wide(tl.program_id(0), WIDE)
    tl.store(out + row * tl.num_programs(1) + at, tl.load(cache + at))


@triton.jit
def carried_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """The product is added to an offset that a loop carries on."""
    at = tl.arange(0, 16)
    offset = wide(tl.program_id(0), WIDE) * 0
    for i in range(tl.load(table)):
        tl.store(out + i * 16 + at, tl.load(cache + offset + at))
        offset += wide(tl.load(table + i), WIDE) * stride_block


@triton.jit
def counter_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """The number of a turn of a loop is multiplied by an argument."""
    at = tl.arange(0, 16)
    for turn in range(tl.load(table)):
        tl.store(out + at, tl.load(cache + wide(turn, WIDE) * stride_block + at))


@triton.jit
def branch_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """The product is made in one branch of two."""
    at = tl.arange(0, 16)
    block = wide(tl.load(table + tl.program_id(0)), WIDE)
    offset = block
    if stride_block > 7:
        offset = block * stride_block
    tl.store(out + at, tl.load(cache + offset + at))


@triton.jit
def search_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """The id comes out of a `while` loop."""
    at = tl.arange(0, 16)
    low = 0
    high = stride_block
    while low < high:
        middle = (low + high) // 2
        first = tl.load(table + middle)
        low = tl.where(first <= tl.program_id(0), middle + 1, low)
        high = tl.where(first <= tl.program_id(0), high, middle)
    tl.store(out + at, tl.load(cache + wide(low, WIDE) * stride_block + at))


@triton.jit
def early_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """Returns early, so that the rest is a block of its own."""
    at = tl.arange(0, 16)
    block = wide(tl.load(table + tl.program_id(0)), WIDE)
    if block < 0:
        return
    tl.store(out + at, tl.load(cache + block * stride_block + at))


@triton.jit
def innocent_kernel(cache, table, out, stride_block, WIDE: tl.constexpr):
    """32 bits are enough: positions and what divides them, clamps, counters, lanes, values that are no address."""
    at = tl.arange(0, 16)
    begin = tl.program_id(0) * stride_block  # of a split, in positions
    for position in range(begin, tl.minimum(begin + stride_block, tl.load(table)), 16):
        block = tl.load(table + (begin + position) // 16).to(tl.int64)
        value = tl.load(cache + block * stride_block + position % 16 + at * 2)
        tl.store(out + position + at, value * (tl.load(table) * stride_block).to(tl.float32))
