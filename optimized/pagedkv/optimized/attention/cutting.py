"""How the kernels cut a call into programs, tiles and splits: from its shape and the card, never from what it holds."""

from dataclasses import replace
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import torch
from torch import Tensor

from pagedkv.optimized.attention.tuned import Tiling, power_of_two, tiling
from pagedkv.spec.words import ceil_div

DECODE_ROWS = 8
"""Query rows of a request that `decode` takes, at the most: one, or drafted tokens to verify."""
PROGRAMS_A_PROCESSOR = 16
"""Programs of `decode` that a launch has about, at the most, before they take several splits each."""
MAX_SPLITS = 64
"""Of a request: a longer one has longer splits. It bounds what the partial results take."""
MERGED = 16
"""Splits that `merge` takes in one go."""
LARGEST_SPLIT = 2**30
"""Positions: sums with it stay below what 32 bits count."""


class Shape(NamedTuple):
    """What of a call decides its constants and grids."""

    num_requests: int
    total_q: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    block_size: int
    positions: int
    """What a row of the block tables holds."""
    dtype: str
    several: bool
    """A request may have another number of query rows than one."""

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.num_q_heads // self.num_kv_heads


class Overrides(NamedTuple):
    """What is made otherwise than usual: tests make everything small, the interpreter needs float32."""

    tiling: Tiling | None = None
    """In place of that of the table."""
    merged: int = MERGED
    programs: int | None = None
    """As many as the device makes use of."""
    upcast: bool = False


NO_OVERRIDES = Overrides()


class Plan(NamedTuple):
    """How `decode` cuts a call: the layout of its partial results among it."""

    most: int
    """Query rows of a request, at the most."""
    split_size: int
    num_splits: int
    by_row: bool
    """Partial results lie by row of the query; else there are `most` rows a request."""
    parts: int
    """Partial results: rows * num_q_heads * num_splits, 0 if there is one split."""


def shape_of(query: Tensor, v_cache: Tensor, block_tables: Tensor, cu_seqlens_q: Tensor | None) -> Shape:
    """The shape of a call."""
    (total_q, num_q_heads, head_dim), (_, size, num_kv_heads, value_dim) = query.shape, v_cache.shape
    num_requests, width = block_tables.shape
    dtype = str(query.dtype).removeprefix("torch.")
    return Shape(
        num_requests, total_q, num_q_heads, num_kv_heads, head_dim, value_dim, size, width * size, dtype,
        cu_seqlens_q is not None,
    )  # fmt: skip


@lru_cache(maxsize=64)
def programs_for(device: torch.device) -> int:
    """Programs of `decode` that a device makes use of; it decides no bit."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 128
    return PROGRAMS_A_PROCESSOR * int(processors)


def word_of(tensor: Tensor) -> int:
    """The elements, in at most 16 bytes, of which the last dimension and all strides of a tensor are multiples."""
    return gcd(16 // tensor.itemsize, tensor.shape[-1], *tensor.stride()[:-1])


@lru_cache(maxsize=64)
def architecture_of(device: torch.device) -> str:
    """The name that `tiles.csv` has for a device; "any" for one without Triton kernels of its own."""
    if device.type != "cuda":
        return "any"
    properties = torch.cuda.get_device_properties(device)
    amd: str = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
    return amd.partition(":")[0] or "sm_{}{}".format(*torch.cuda.get_device_capability(device))


def cut(kernel: str, shape: Shape, architecture: str, given: Tiling | None = None) -> Tiling:
    """The tiling of a kernel for a shape, the table's unless given, with rows for a whole group at least."""
    dim = max(shape.head_dim, shape.value_dim)
    found = given or tiling(kernel, architecture, shape.dtype, dim, shape.group, shape.block_size)
    return replace(found, rows=max(found.rows, 16, power_of_two(shape.group)))


def plan_of(shape: Shape, split_size: int) -> Plan:
    """How `decode` cuts a call of a shape."""
    split_size = min(split_size, LARGEST_SPLIT)
    most = DECODE_ROWS if shape.several else 1
    num_splits = min(MAX_SPLITS, max(1, ceil_div(shape.positions, split_size)))
    rows = (shape.num_requests + shape.several) * most
    by_row = shape.total_q <= rows
    parts = min(shape.total_q, rows) * shape.num_q_heads * num_splits if num_splits > 1 else 0
    return Plan(most, split_size, num_splits, by_row, parts)


def workspace_elements(shape: Shape, split_size: int) -> int:
    """float32 elements that the partial results of a call take: an output, a maximum and a sum each."""
    return plan_of(shape, split_size).parts * (shape.value_dim + 2)


def filling_split_size(shape: Shape, num_processors: int) -> int:
    """A split size with which `decode` has about two programs a processor, whatever the batch: bits depend on it."""
    plan = plan_of(shape, max(16, shape.positions))
    rows = (shape.num_requests + shape.several) * max(1, ceil_div(plan.most * shape.group, 16))
    splits = max(1, 2 * num_processors // max(1, rows * shape.num_kv_heads))
    return 64 * max(1, ceil_div(ceil_div(shape.positions, splits), 64))


def turns(most: int, programs: int, wanted: int) -> int:
    """Programs that share the work of one, of which there are `programs`: what brings them to `wanted`, or `most`."""
    return min(most, max(1, ceil_div(wanted, max(1, programs))))
