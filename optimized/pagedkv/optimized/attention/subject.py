"""Our attention as subjects of the conformance kit: by device, and the Triton kernels interpreted."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd
from typing import Any

import torch
from torch import Tensor

from pagedkv.optimized.attention import SPLIT_SIZE, copy_blocks, paged_attention, write_kv
from pagedkv.optimized.attention.arguments import AttentionCall, Mask
from pagedkv.optimized.attention.backends import BackendName, backend_name
from pagedkv.optimized.attention.cutting import (
    DECODE_ROWS,
    Overrides,
    architecture_of,
    cut,
    shape_of,
    workspace_elements,
)
from pagedkv.optimized.attention.tuned import Tiling
from pagedkv.optimized.cpu.work import TILE
from pagedkv.optimized.launch import Launch
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem, RoundingModel
from pagedkv.spec.words import ceil_div

UNIT_ROUNDOFF = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
EVERYTHING = AttentionCapabilities(
    dtypes=("float32", "float16", "bfloat16"), causal_prefill=True, non_causal=True, window=True, softcap=True,
    alibi=True, sinks=True, value_dim=True, returns_lse=True, writes=True, strided=True, padded=True,
    batch_invariant=True,
)  # fmt: skip


class OptimizedAttention:
    """`paged_attention` on a device, by the backend named or that of the device."""

    def __init__(self, device: str = "cpu", backend: BackendName | None = None) -> None:
        self.device = torch.device(device)
        self.backend = backend or backend_name(self.device)
        self.name = f"optimized on {device} ({self.backend})"
        # The torch backend has no splits. Of the kernels the split size is part of the order of summation.
        self.capabilities = replace(EVERYTHING, split_invariant=self.backend == "torch")

    def rounding(self, problem: Problem) -> RoundingModel:
        """By torch a request at a time, on the CPU as `numba_rounding`, on a GPU with weights in the values' dtype."""
        longest, size = max(1, int(problem.seq_lens.max(initial=1))), problem.split_size or SPLIT_SIZE
        if self.backend == "torch":
            return RoundingModel(tile=longest, num_tiles=2)
        if self.backend == "numba":
            return numba_rounding(problem.dtype, problem.query.shape[-1], longest, size)
        query, _, value_cache, block_tables, _ = tensors_of(problem, torch.device("meta"))
        shape = shape_of(query, value_cache, block_tables, block_tables)
        cuts = [cut(kernel, shape, architecture_of(self.device)).tile for kernel in ("decode", "prefill")]
        return triton_rounding(problem, (gcd(cuts[0], size), cuts[1]), size, rounded_weights=True)

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        """See `pagedkv.spec.attention_subject.AttentionSubject`."""
        tensors = tensors_of(problem, self.device)
        mask = mask_of(problem, self.device)
        result = paged_attention(
            *tensors, cu_seqlens_q=cu_seqlens_of(problem, self.device), scale=mask.scale, causal=mask.causal,
            window=mask.window, softcap=mask.softcap, alibi_slopes=mask.alibi_slopes,
            sinks=mask.sinks, return_lse=True, split_size=problem.split_size, backend=self.backend,
        )  # fmt: skip
        return array_of(result[0]), array_of(result[1])

    def write_kv(self, key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any, dtype: str) -> None:
        """In place, on the caller's arrays."""
        caches = [tensor_of(cache, dtype, self.device) for cache in (key_cache, value_cache)]
        rows = [torch.from_numpy(row.astype("float32")).to(self.device) for row in (key, value)]
        slots = torch.from_numpy(slot_mapping.astype("int64")).to(self.device)
        write_kv(rows[0], rows[1], caches[0], caches[1], slots, backend=self.backend)
        for array, cache in zip((key_cache, value_cache), caches, strict=True):
            array[...] = array_of(cache)

    def copy_blocks(self, caches: Sequence[Any], pairs: Any, dtype: str) -> None:
        """In place, on the caller's arrays."""
        tensors = [tensor_of(cache, dtype, self.device) for cache in caches]
        copy_blocks(
            tensors, torch.from_numpy(pairs.astype("int64").reshape(-1, 2)).to(self.device), backend=self.backend
        )
        for array, tensor in zip(caches, tensors, strict=True):
            array[...] = array_of(tensor)


class InterpretedTritonAttention:
    """The Triton kernels in Triton's interpreter, tiny shapes; operands upcast to float32 unless told otherwise."""

    capabilities = EVERYTHING
    name = "Triton kernels, interpreted"

    def __init__(
        self,
        tile: int = 16,
        split_size: int = 16,
        rows: int = 16,
        run: Callable[[Launch], None] | None = None,
        *,
        upcast: bool = True,
    ) -> None:
        """`split_size`, `rows`: small, so that short requests have several splits, and few rows several blocks of rows.
        `run` runs the programs of a launch, in the order that it likes.

        `upcast=False` multiplies in the dtype of the cache, as on a GPU: weights are rounded to it before they meet V.
        """
        self.tile, self.split_size, self.upcast = tile, split_size, upcast
        self.overrides = Overrides(Tiling(tile, rows, 4, 1), merged=2, programs=8, upcast=upcast)
        self.run = run or Launch.interpret

    def rounding(self, problem: Problem) -> RoundingModel:
        """Weights stay in float32 when operands are upcast."""
        split_size = problem.split_size or self.split_size
        return triton_rounding(problem, (self.tile, self.tile), split_size, rounded_weights=not self.upcast)

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        """See `pagedkv.spec.attention_subject.AttentionSubject`."""
        from pagedkv.optimized.attention.attend_launches import attention_launches  # noqa: PLC0415  # needs Triton

        cpu = torch.device("cpu")
        query, key_cache, value_cache, block_tables, seq_lens = tensors_of(problem, cpu)
        out = query.new_full((*query.shape[:2], value_cache.shape[3]), float("nan"))
        lse = torch.full(query.shape[:2], float("nan"))
        rows, size = cu_seqlens_of(problem, cpu), problem.split_size or self.split_size
        elements = workspace_elements(shape_of(query, value_cache, block_tables, rows), size)
        call = AttentionCall(
            query, key_cache, value_cache, block_tables, seq_lens, rows, mask_of(problem, cpu), out, lse, size,
            torch.full((elements,), float("nan")),
        )  # fmt: skip
        for launch in attention_launches(call, self.overrides):
            self.run(launch)
        return array_of(out), array_of(lse)

    def write_kv(self, key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any, dtype: str) -> None:
        """In place, on the caller's arrays."""
        from pagedkv.optimized.attention.move_launches import write_launch  # noqa: PLC0415  # likewise

        cpu = torch.device("cpu")
        caches = tensor_of(key_cache, dtype, cpu), tensor_of(value_cache, dtype, cpu)
        rows = torch.from_numpy(key.astype("float32")), torch.from_numpy(value.astype("float32"))
        self.run(write_launch(rows, caches, torch.from_numpy(slot_mapping.astype("int64"))))
        key_cache[...], value_cache[...] = array_of(caches[0]), array_of(caches[1])

    def copy_blocks(self, caches: Sequence[Any], pairs: Any, dtype: str) -> None:
        """In place, on the caller's arrays."""
        from pagedkv.optimized.attention.move_launches import copy_groups, copy_launch  # noqa: PLC0415  # likewise

        tensors = [tensor_of(cache, dtype, torch.device("cpu")) for cache in caches]
        for group in copy_groups(tensors, tensors):
            self.run(copy_launch(group, torch.from_numpy(pairs.astype("int64").reshape(-1, 2))))
        for array, tensor in zip(caches, tensors, strict=True):
            array[...] = array_of(tensor)


def numba_rounding(dtype: str, head_dim: int, longest: int, split_size: int) -> RoundingModel:
    """How the loops of the CPU round: tiles of a span are summed in order, then spans."""
    from pagedkv.optimized.cpu.backend import in_pairs  # noqa: PLC0415  # needs numba

    tiles = max(ceil_div(longest, TILE), ceil_div(min(split_size, longest), TILE) + ceil_div(longest, split_size))
    rounded = in_pairs(getattr(torch, dtype), head_dim)
    return RoundingModel(tile=TILE, num_tiles=tiles + 1, u_weights=UNIT_ROUNDOFF[dtype] if rounded else 0.0)


def triton_rounding(
    problem: Problem, tiles: tuple[int, int], split_size: int, *, rounded_weights: bool
) -> RoundingModel:
    """How `decode_kernel` with `merge_kernel`, and `prefill_kernel`, round; `tiles` are those of the two."""
    longest = max(1, int(problem.seq_lens.max(initial=1)))
    splits = ceil_div(longest, split_size)
    levels = ceil_div(min(longest, split_size), min(tiles[0], split_size)) + splits + 2
    tile = tiles[0]
    if problem.query_lens.max(initial=0) > DECODE_ROWS:
        levels, tile = max(levels, ceil_div(longest, tiles[1]) + 1), max(tiles)
    return RoundingModel(
        tile=tile,
        num_tiles=levels,
        u_accumulate=2.0**-22 if rounded_weights else 2.0**-24,
        u_weights=UNIT_ROUNDOFF[problem.dtype] if rounded_weights else 0.0,
    )


def tensor_of(array: Any, dtype: str, device: torch.device) -> Tensor:
    """An array as a tensor with the same strides, in its dtype (bfloat16 travels as float32)."""
    tensor = torch.from_numpy(array)
    if dtype == "bfloat16" and tensor.dtype == torch.float32:  # by bits, so that a NaN stays the one it was
        tensor = (tensor.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)
    if device.type == "cpu" and tensor.dtype == getattr(torch, dtype) and tensor.stride() == strides_of(array):
        return tensor
    converted = torch.empty_strided(array.shape, strides_of(array), dtype=getattr(torch, dtype), device=device)
    return converted.copy_(tensor)


def strides_of(array: Any) -> tuple[int, ...]:
    """The strides of an array in elements."""
    return tuple(stride // array.itemsize for stride in array.strides)


def array_of(tensor: Tensor) -> Any:
    """A tensor as an array; bfloat16 travels as float32."""
    tensor = tensor.cpu()
    if tensor.dtype == torch.bfloat16:
        return (tensor.view(torch.int16).to(torch.int32) << 16).view(torch.float32).numpy()
    return tensor.numpy()


def tensors_of(problem: Problem, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """query, key cache, value cache, block tables, sequence lengths."""
    floats = [tensor_of(a, problem.dtype, device) for a in (problem.query, problem.key_cache, problem.value_cache)]
    integers = [torch.from_numpy(a.astype("int32")).to(device) for a in (problem.block_tables, problem.seq_lens)]
    return floats[0], floats[1], floats[2], integers[0], integers[1]


def cu_seqlens_of(problem: Problem, device: torch.device) -> Tensor | None:
    """Where the query rows of each request begin, and where the last ones end; None for one row each (decode)."""
    if (problem.query_lens == 1).all() and len(problem.query) == len(problem.query_lens):
        return None
    cu_seqlens = torch.zeros(len(problem.query_lens) + 1, dtype=torch.int32)
    cu_seqlens[1:] = torch.from_numpy(problem.query_lens).cumsum(0)
    return cu_seqlens.to(device)


def mask_of(problem: Problem, device: torch.device) -> Mask:
    """The options of a problem."""
    slopes, sinks = (
        None if a is None else torch.from_numpy(a.astype("float32")).to(device)
        for a in (problem.alibi_slopes, problem.sinks)
    )
    return Mask(problem.scale, problem.causal, problem.window, problem.softcap, slopes, sinks)
