"""The launches that write, copy and gather KV, as values; see `attend_launches`."""

from torch import Tensor

from pagedkv.optimized.kernels.copy_blocks import copy_blocks_kernel
from pagedkv.optimized.kernels.write_kv import write_kv_kernel
from pagedkv.optimized.launch import Launch
from pagedkv.spec.words import ceil_div

PIECE = 1024
"""Elements that one program writes or copies, at the most."""


def write_launch(rows: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor], slot_mapping: Tensor) -> Launch:
    """`write_kv_kernel` over all tokens."""
    key, value = rows
    key_cache, value_cache = caches
    size, num_kv_heads, head_dim = key_cache.shape[1:]
    value_dim = value_cache.shape[3]
    elements = num_kv_heads * max(head_dim, value_dim)
    piece = min(PIECE, power_of_two(elements))
    strides = (*key.stride()[:2], *value.stride()[:2], *key_cache.stride()[:3], *value_cache.stride()[:3])
    return Launch(
        "write_kv",
        f"{str(key.dtype).removeprefix('torch.')} into {str(key_cache.dtype).removeprefix('torch.')}",
        write_kv_kernel,
        (len(slot_mapping), ceil_div(elements, piece)),
        (key, value, key_cache, value_cache, slot_mapping.contiguous(), num_kv_heads, *strides),
        {"BLOCK_SIZE": size, "HEAD_DIM": head_dim, "VALUE_DIM": value_dim, "PIECE": piece, "num_warps": 4},
    )


def copy_launch(cache: Tensor, pairs: Tensor) -> Launch:
    """`copy_blocks_kernel` over all pairs of one cache."""
    size, num_heads, dim = cache.shape[1:]
    piece = min(PIECE, power_of_two(size * num_heads * dim))
    constants = {"BLOCK_SIZE": size, "NUM_HEADS": num_heads, "DIM": dim, "PIECE": piece, "num_warps": 4}
    grid = (len(pairs), ceil_div(size * num_heads * dim, piece))
    configuration = str(cache.dtype).removeprefix("torch.")
    args = (cache, pairs.contiguous(), *cache.stride()[:3])
    return Launch("copy_blocks", configuration, copy_blocks_kernel, grid, args, constants)


def power_of_two(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()
