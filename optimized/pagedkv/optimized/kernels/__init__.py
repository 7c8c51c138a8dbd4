"""Triton kernels, and nothing else: what surrounds a launch lives in `pagedkv.optimized.attention`.

Common to all: strides are arguments, so that any layout with a contiguous last dimension works; block ids and slots
become 64-bit before they are multiplied; what a mask excludes is never loaded, in K nor in V.
"""
