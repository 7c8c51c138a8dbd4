"""The operations of the device pool on the CPU: plain loops over plain arrays, compiled where numba is installed.

A batch equals its rows one by one, in the order given, and so it is written here. The kernels of
`pagedkv.optimized.kernels.pool` come to the same state by sums over all rows at once, down to the order of the free
list. Like those of the block manager, these loops make no arrays, and nothing checks an index.
"""
