"""Who computes: the backend named, or the one of the device."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import AttentionCall, require
from pagedkv.optimized.lazy_triton import triton_module
from pagedkv.spec.words import Misuse

BackendName = Literal["torch", "triton"]
Copier: TypeAlias = Callable[[Tensor], None]
"""Runs the copies of pairs (num_pairs, 2) of blocks, int32 or int64."""


class Backend(Protocol):
    """What a backend does; all arguments have been checked."""

    def attend(self, call: AttentionCall) -> None: ...
    def write_kv(self, rows: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor], slot_mapping: Tensor) -> None: ...
    def copier(self, sources: Sequence[Tensor], destinations: Sequence[Tensor]) -> Copier:
        """What copies blocks from each source to the destination at the same place; both may be the same caches."""
        ...

    def gather(
        self, cache: Tensor, block_tables: Tensor, cu_seqlens: Tensor, starts: Tensor | None, out: Tensor
    ) -> None: ...
    def merge(self, outs: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> None: ...


def backend_for(device: torch.device, name: BackendName | None = None) -> Backend:
    """The backend named, or the one of the device. Raises `Misuse` if it cannot serve the device."""
    if name is None:
        name = "triton" if device.type == "cuda" else "torch"
    if name == "torch":
        from pagedkv.optimized.attention.torch_backend import TorchBackend  # noqa: PLC0415  # loaded when it is chosen

        return TorchBackend()
    if name == "triton":
        require(device.type == "cuda", "backend", name, f"'torch' for tensors on {device}; 'triton' needs a GPU")
        triton_module("triton")  # or the error that says what to install
        from pagedkv.optimized.attention.triton_backend import TritonBackend  # noqa: PLC0415  # loaded when it is chosen

        return TritonBackend()
    raise Misuse("backend", name, "'torch', 'triton', or None to follow the device")


def made_current(device: torch.device) -> AbstractContextManager[object]:
    """For as long as it lasts, Triton, which launches on the current device, launches on this one."""
    if device.type != "cuda" or device.index in (None, torch.cuda.current_device()):
        return nullcontext()
    return torch.cuda.device(device)
