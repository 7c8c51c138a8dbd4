"""How many blocks fit into the memory that is left for the KV cache."""

from typing import Any

import numpy as np

from pagedkv.optimized.arguments import integer
from pagedkv.spec.words import Misuse

_BYTES = {
    "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "int8": 1, "uint8": 1,
}  # fmt: skip


def num_blocks_for(
    memory_bytes: int, block_size: int, num_layers: int, num_kv_heads: int, head_dim: int, dtype: Any
) -> int:
    """Blocks that fit into `memory_bytes`, which must be what remains beside weights and activations.

    A token takes a key and a value of `head_dim` elements in every head of every layer, so a block takes

        2 * num_layers * num_kv_heads * head_dim * itemsize * block_size   bytes,

    and as many whole blocks fit as that goes into `memory_bytes`. On a tensor-parallel rank, `num_kv_heads` are the
    heads of the rank. `dtype` of the cache: a name such as "bfloat16", a NumPy or a torch dtype.

    13B parameters in the paper (§1, Figure 1): 40 layers, 40 heads of 128 in float16 are 800 KiB a token:

    >>> num_blocks_for(12 * 2**30, block_size=16, num_layers=40, num_kv_heads=40, head_dim=128, dtype="float16")
    983
    """
    integer("memory_bytes", memory_bytes, 0)
    sizes = {"block_size": block_size, "num_layers": num_layers, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
    block_bytes = 2 * itemsize_of(dtype)
    for argument, value in sizes.items():
        block_bytes *= integer(argument, value, 1)
    return int(memory_bytes) // block_bytes


def itemsize_of(dtype: Any) -> int:
    """Bytes of one element of a named, NumPy or torch dtype."""
    name = str(dtype).removeprefix("torch.")
    if name in _BYTES:
        return _BYTES[name]
    try:
        if dtype is not None:  # which NumPy would take for float64
            return int(np.dtype(dtype).itemsize)
    except TypeError:
        pass
    raise Misuse("dtype", dtype, f"a NumPy or torch dtype, or one of {sorted(_BYTES)}")
