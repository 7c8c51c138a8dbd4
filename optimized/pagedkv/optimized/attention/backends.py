"""Who computes: the backend named, or the one of the device."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import AttentionCall, require
from pagedkv.optimized.cpu import missing, warmup
from pagedkv.optimized.lazy_triton import triton_module
from pagedkv.spec.words import Misuse

BackendName = Literal["numba", "torch", "triton"]
Copier: TypeAlias = Callable[[Tensor], None]
"""Runs the copies of pairs (num_pairs, 2) of blocks, int32 or int64."""


class Backend(Protocol):
    """What a backend does. Shapes, dtypes, strides and devices have been checked; values of integers have not.

    Tensors are the caller's, and are needed until a call returns, on a GPU until what it launched has run. Caches are
    (num_blocks, block_size, num_kv_heads, dim).
    """

    def attend(self, call: AttentionCall) -> None:
        """Write `call.out` (total_q, num_q_heads, value_dim) and `call.lse` (total_q, num_q_heads) float32, rows of
        padding left as they are."""
        ...

    def write_kv(self, rows: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor], slot_mapping: Tensor) -> None:
        """Keys and values (num_tokens, num_kv_heads, dim), float32 or of the caches' dtype, to slots (num_tokens,) of
        both caches, int64; those < 0 are skipped."""
        ...

    def copier(self, sources: Sequence[Tensor], destinations: Sequence[Tensor]) -> Copier:
        """What copies blocks from each source to the destination at the same place; both may be the same caches. It
        holds on to the tensors."""
        ...

    def gather(
        self, cache: Tensor, block_tables: Tensor, cu_seqlens: Tensor, starts: Tensor | None, out: Tensor
    ) -> None:
        """Positions starts[r], … of each request r to rows cu_seqlens[r]..cu_seqlens[r + 1] - 1 of `out` (total,
        num_kv_heads, dim); zeros to those behind the last."""
        ...

    def merge(self, outs: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> None:
        """Parts (num_parts, total_q, num_q_heads, value_dim) and (num_parts, total_q, num_q_heads) become one."""
        ...


def backend_for(device: torch.device, name: BackendName | None = None) -> Backend:
    """The backend named, or the one of the device. Raises `Misuse` if it cannot serve the device."""
    name = backend_name(device) if name is None else name
    require(isinstance(name, str), "backend", name, "a name, or None to follow the device")
    if name == "torch":
        from pagedkv.optimized.attention.torch_backend import TorchBackend  # noqa: PLC0415  # loaded when it is chosen

        return TorchBackend()
    if name == "numba":
        require(device.type == "cpu", "backend", name, f"'torch' for tensors on {device}; 'numba' serves the CPU")
        return numba_backend()
    if name == "triton":
        require(device.type == "cuda", "backend", name, f"'torch' for tensors on {device}; 'triton' needs a GPU")
        triton_module("triton")  # or the error that says what to install
        from pagedkv.optimized.attention.triton_backend import TritonBackend  # noqa: PLC0415  # loaded when it is chosen

        return TritonBackend()
    raise Misuse("backend", name, "'numba', 'torch', 'triton', or None to follow the device")


def backend_name(device: torch.device) -> BackendName:
    """That of the device."""
    return "triton" if device.type == "cuda" else for_the_cpu() if device.type == "cpu" else "torch"


@cache
def for_the_cpu() -> BackendName:
    """Compiled loops where they can run; otherwise torch, which is said once."""
    lacking = missing()
    if lacking is None:
        return "numba"
    logging.getLogger("pagedkv").warning("attention on the CPU is torch's, and so slower: it lacks %s", lacking)
    return "torch"


@cache
def numba_backend() -> Backend:
    """The compiled loops, compiled. Raises `ModuleNotFoundError` without numba, `Misuse` where they cannot run."""
    lacking = missing()
    if find_spec("numba") is None:
        raise ModuleNotFoundError(f'backend "numba" lacks {lacking}', name="numba")
    require(lacking is None, "backend", "numba", f"'torch': it lacks {lacking}")
    warmup()
    from pagedkv.optimized.cpu.backend import CpuBackend  # noqa: PLC0415  # needs numba

    return CpuBackend()


def made_current(device: torch.device) -> AbstractContextManager[object]:
    """For as long as it lasts, Triton, which launches on the current device, launches on this one."""
    if device.type != "cuda" or device.index in (None, torch.cuda.current_device()):
        return nullcontext()
    return torch.cuda.device(device)
