"""Triton kernels, and nothing else: what surrounds a launch lives in `pagedkv.optimized.attention`.

Common to all: strides are arguments, so that any layout with a contiguous last dimension works; block ids and slots
become 64-bit before they are multiplied; what a mask excludes is never loaded, in K nor in V.

`rows` and `tiles` are what attention is made of: what rows see, and the loop over it. `decode` runs the loop over spans
of the keys, which `merge` joins; `prefill` runs it over all keys at once. A request goes to one or the other by the
number of its query rows, never by its batch.
"""
