"""Triton kernels of the device pool; what surrounds a launch lives in `pagedkv.optimized.device`.

What callers pass may begin anywhere, so its alignment is not compiled in. What is: a pool's numbers, the dtypes of what
is passed, what is passed at all, and the power of two of rows.

What depends on the rows before (who of a batch is served, from where on a row takes blocks) is decided by one program
that goes over all rows of a call; the rest by a program for each row. No program reads what another one of its launch
writes. Atomics add, or find a least or a largest number, and what they leave is read behind the launch, or within one
program behind a barrier: so their order cannot be seen. (Who of several programs is the first to lend a block adds one
for the host; which of them that is decides nothing.)

A program is many threads. None reads what another one of them writes, unless a barrier lies between.

A function returns at its end. Triton compiles what stands behind a `return` in a branch, even where no other branch is.

Numbers of rows, blocks and table entries are below 2**30, so that int32 holds them; they become 64-bit where they are
added to a pointer.
"""
