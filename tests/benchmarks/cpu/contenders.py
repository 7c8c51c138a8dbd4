"""Who computes it: each is a function without arguments that does it once, and returns what it has made."""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pagedkv.optimized import paged_attention
from pagedkv.optimized.cpu.compiler import compiled
from pagedkv.optimized.cpu.threads import in_threads
from pagedkv.optimized.cpu.simd import VECTOR, load, maximum, splat, top
from tests.benchmarks.cpu.shapes import Inputs

Contender: TypeAlias = Callable[[], Any]

SWEPT: Final = 2**28
"""Bytes that are read between one contender and the next: more than the caches of two cores have."""


def ours(given: Inputs) -> Contender:
    """`paged_attention`, checks and all."""
    tensors = given.query, given.k_cache, given.v_cache, given.block_tables, given.seq_lens
    return partial(paged_attention, *tensors, cu_seqlens_q=given.cu_seqlens_q, backend="numba")


def sdpa(given: Inputs) -> Contender:
    """torch's scaled_dot_product_attention on contiguous tensors, which nobody has to gather.

    In a decode the query heads of a group are rows of their KV head, which is several times quicker than `enable_gqa`.
    """
    keys, values = given.contiguous()
    batch, rows, heads, dim = given.shape.batch, given.shape.rows, *given.query.shape[1:]
    attention = torch.nn.functional.scaled_dot_product_attention
    if rows == 1:
        query = given.query.view(batch, keys.shape[1], -1, dim)
        return lambda: attention(query, keys, values).view(batch, heads, -1)
    query = given.query.view(batch, rows, heads, dim).transpose(1, 2).contiguous()
    return lambda: attention(query, keys, values, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(0, 1)


@compiled
def look_at(place: int, size: int) -> np.float32:
    """Read `size` bytes, a vector at a time, two vectors under way."""
    a = b = splat(np.float32(0))
    for at in range(place, place + size, 2 * VECTOR):
        a, b = maximum(load(at), a), maximum(load(at + VECTOR), b)
    largest: np.float32 = top(maximum(a, b))
    return largest


def read_all(*tensors: Tensor) -> None:
    """From their beginning to their end, in as many threads as torch has."""
    threads = torch.get_num_threads()
    unit = threads * 2 * VECTOR

    def look(i: int, _: int) -> None:
        for tensor in tensors:
            size = tensor.nbytes // unit * 2 * VECTOR
            look_at(tensor.data_ptr() + i * size, size)

    in_threads(look, threads)


def read(given: Inputs) -> Contender:
    """Read both caches, and do nothing with them: what memory gives. Of torch's threads each has its part."""
    return partial(read_all, given.k_cache, given.v_cache)


def in_turn(contenders: Mapping[str, Contender], rounds: int) -> dict[str, float]:
    """The median seconds of each, over rounds in which each runs once, beginning with another one each time.

    Before each the caches are swept, as nobody finds a layer's keys and values there that other layers came after.
    """
    names, times = list(contenders), {name: [0.0] * rounds for name in contenders}
    other = torch.ones(SWEPT, dtype=torch.uint8)
    for name in names:
        contenders[name]()
    for turn in range(rounds):
        for i in range(len(names)):
            name = names[(turn + i) % len(names)]
            read_all(other)
            start = perf_counter()
            contenders[name]()
            times[name][turn] = perf_counter() - start
    return {name: median(each) for name, each in times.items()}
