"""Triton kernels of the device pool; what surrounds a launch lives in `pagedkv.optimized.device`.

What callers pass may begin anywhere, so its alignment is not compiled in: a kernel is compiled once for a pool, and
again for each power of two of rows.

What depends on the rows before (who of a batch is served, from where on a row takes blocks) is decided by one program
that goes over all rows of a call; the rest by a program for each row. No program reads what another one of its launch
writes. Atomics add, or find a least or a largest number, so that their order cannot be seen, and nothing reads what
they leave before the launch has ended, or, within one program, a barrier.

Numbers of rows, blocks and table entries are below 2**30, so that int32 holds them; they become 64-bit where they are
added to a pointer.
"""
