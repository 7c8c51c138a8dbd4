"""The launches that write, copy and gather KV, as values; see `attend_launches`.

All of them move words: up to 16 bytes that no layout tears apart, so that each access of a thread is as wide as the
GPU has it. The strides that a kernel is given are in words, which tells the compiler what divides an address.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from math import gcd
from typing import NamedTuple

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import require
from pagedkv.optimized.kernels.copy_blocks import copy_blocks_kernel
from pagedkv.optimized.kernels.gather import gather_kernel
from pagedkv.optimized.kernels.write_kv import write_kv_kernel
from pagedkv.optimized.attention.tuned import power_of_two
from pagedkv.optimized.launch import Launch
from pagedkv.spec.words import ceil_div

WORD_BYTES = 16
"""The widest access that a thread of a GPU makes."""
PIECES = 64, 512
"""Words that one program moves, at the least and at the most: a word a thread of AMD's wide warps, or more."""


class Plan(NamedTuple):
    """What of a launch depends on layouts alone."""

    configuration: str
    strides: tuple[int, ...]
    pieces: int
    """Programs for each token."""
    constants: dict[str, int]


def write_launch(rows: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor], slot_mapping: Tensor) -> Launch:
    """`write_kv_kernel` over all tokens."""
    key_cache, value_cache = caches
    plan = write_plan(
        str(rows[0].dtype), str(key_cache.dtype), key_cache.itemsize, key_cache.shape, value_cache.shape,
        (*(tensor.stride()[:2] for tensor in rows), *(outer_strides(tensor) for tensor in caches)),
    )  # fmt: skip
    return Launch(
        "write_kv",
        plan.configuration,
        write_kv_kernel,
        (len(slot_mapping), plan.pieces),
        (*rows, *caches, slot_mapping.contiguous(), key_cache.shape[2], *plan.strides),
        plan.constants,
    )


@lru_cache(maxsize=256)  # the layers of a model are alike, and so are its steps
def write_plan(
    source: str, target: str, itemsize: int, keys: torch.Size, values: torch.Size, strides: tuple[tuple[int, ...], ...]
) -> Plan:
    """Of `write_launch`, by dtypes, bytes of an element of the caches, shapes of the caches and strides of all."""
    size, num_kv_heads, head_dim = keys[1:]
    steps = [stride for each in strides for stride in each]
    lanes = gcd(WORD_BYTES // itemsize, head_dim, values[3], *steps)
    words = num_kv_heads * max(head_dim, values[3]) // lanes
    piece = piece_of(words)
    names = f"{source} into {target}".replace("torch.", "")
    constants = {
        "BLOCK_SIZE": size, "KEY_WORDS": head_dim // lanes, "VALUE_WORDS": values[3] // lanes, "LANES": lanes,
        "PIECE": piece, "num_warps": warps_for(piece),
    }  # fmt: skip
    configuration = f"{names} head_dim={head_dim} words of {lanes * itemsize} bytes"
    return Plan(configuration, tuple(step // lanes for step in steps), ceil_div(words, piece), constants)


class CopyGroup(NamedTuple):
    """Pairs of caches whose blocks lie alike, and which therefore share a launch."""

    source_addresses: Tensor
    destination_addresses: Tensor
    """(num_caches,) int64, on the device; see `address_table`."""
    shape: tuple[int, int, int]
    """(block_size, num_heads, words) of a block."""
    lanes: int
    """Pairs of bytes in a word."""
    strides: tuple[int, ...]
    """Of block, token and head in words, of the sources, then of the destinations."""
    reached: tuple[Tensor, ...]


def copy_groups(sources: Sequence[Tensor], destinations: Sequence[Tensor]) -> list[CopyGroup]:
    """What can be prepared of copies from each source to the destination at the same place in the other list.

    A table of addresses serves any number of tensors, wherever they lie, by one compiled kernel. Offsets from a common
    base would ask for one allocation; an argument for each tensor would mean a kernel for each number of layers.
    """
    alike: dict[tuple[tuple[int, int, int], int, tuple[int, ...]], list[tuple[Tensor, Tensor]]] = {}
    for pair in zip(sources, destinations, strict=True):
        size, heads, dim = pair[0].shape[1:]
        itemsize = pair[0].itemsize
        steps = [stride * itemsize for tensor in pair for stride in outer_strides(tensor)]
        word = gcd(WORD_BYTES, dim * itemsize, *steps, *(tensor.data_ptr() for tensor in pair))
        strides = tuple(step // word for step in steps)
        alike.setdefault(((size, heads, dim * itemsize // word), word // 2, strides), []).append(pair)
    groups = []
    for (shape, lanes, strides), pairs in alike.items():
        tables = [address_table(tuple(t.data_ptr() for t in side), side[0].device) for side in zip(*pairs, strict=True)]
        reached = tuple({id(tensor): tensor for pair in pairs for tensor in pair}.values())
        groups.append(CopyGroup(tables[0], tables[1], shape, lanes, strides, reached))
    return groups


@cache
def address_table(addresses: tuple[int, ...], device: torch.device) -> Tensor:
    """Addresses where a kernel can read them. Making one waits for the device, so each is made once: by what it holds,
    so that an old one is never wrong. It is kept for good: a captured CUDA graph may read it."""
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    allowed = "caches already copied in before the capture began, or a BlockCopier made before it"
    require(not capturing, "caches", "new to copy_blocks, while a CUDA graph is captured", allowed)
    return torch.tensor(addresses, dtype=torch.int64, device=device)


def copy_launch(group: CopyGroup, pairs: Tensor) -> Launch:
    """`copy_blocks_kernel` over all pairs of blocks of a group."""
    size, num_heads, words = group.shape
    total = size * num_heads * words
    piece = piece_of(total)
    return Launch(
        "copy_blocks",
        f"words of {2 * group.lanes} bytes, {words} a head",
        copy_blocks_kernel,
        (len(pairs), len(group.source_addresses), ceil_div(total, piece)),
        (group.source_addresses, group.destination_addresses, pairs.contiguous(), *group.strides),
        {
            "BLOCK_SIZE": size, "NUM_HEADS": num_heads, "WORDS": words, "LANES": group.lanes, "PIECE": piece,
            "num_warps": warps_for(piece),
        },
        group.reached,
    )  # fmt: skip


def gather_launch(
    cache: Tensor, block_tables: Tensor, cu_seqlens: Tensor, starts: Tensor | None, out: Tensor
) -> Launch:
    """`gather_kernel` over all rows of `out`."""
    plan = gather_plan(str(cache.dtype), cache.itemsize, cache.shape[1:], outer_strides(cache), outer_strides(out))
    count = len(block_tables)
    return Launch(
        "gather",
        plan.configuration,
        gather_kernel,
        (ceil_div(len(out), plan.constants["ROWS"]), plan.pieces),
        (
            cache, block_tables, cu_seqlens.contiguous(), None if starts is None else starts.contiguous(), out,
            count, len(out), count.bit_length(), block_tables.stride(0), *plan.strides,
        ),
        plan.constants,
    )  # fmt: skip


@lru_cache(maxsize=256)
def gather_plan(
    dtype: str, itemsize: int, shape: torch.Size, from_strides: tuple[int, ...], to_strides: tuple[int, ...]
) -> Plan:
    """Of `gather_launch`, by dtype, bytes of an element, shape of a block, strides of the cache and of the output."""
    size, num_heads, dim = shape
    lanes = gcd(WORD_BYTES // itemsize, dim, *from_strides, *to_strides)
    words = num_heads * dim // lanes
    piece = min(PIECES[1], power_of_two(words))
    constants = {
        "BLOCK_SIZE": size, "NUM_HEADS": num_heads, "WORDS": dim // lanes, "LANES": lanes,
        "ROWS": PIECES[1] // piece, "PIECE": piece, "num_warps": warps_for(PIECES[1]),
    }  # fmt: skip
    configuration = f"{dtype.removeprefix('torch.')} head_dim={dim} words of {lanes * itemsize} bytes"
    strides = tuple(stride // lanes for stride in (*from_strides, *to_strides))
    return Plan(configuration, strides, ceil_div(words, piece), constants)


def outer_strides(tensor: Tensor) -> tuple[int, ...]:
    """The strides of all dimensions but the last, in elements; 0 where a dimension has no second element."""
    strides = zip(tensor.stride()[:-1], tensor.shape, strict=False)
    return tuple([stride if length > 1 else 0 for stride, length in strides])


def piece_of(words: int) -> int:
    """Words that one program moves, of `words` in all."""
    return max(PIECES[0], min(PIECES[1], power_of_two(words)))


def warps_for(piece: int) -> int:
    """At least one word a thread, also where a warp is 64 threads: else accesses were narrower than a word."""
    return min(4, piece // 64)
