"""Who computes: the backend named, or the one of the device."""

from typing import Literal, Protocol

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import AttentionCall, require
from pagedkv.optimized.lazy_triton import triton_module
from pagedkv.spec.words import Misuse

BackendName = Literal["torch", "triton"]


class Backend(Protocol):
    """What a backend does; all arguments have been checked."""

    def attend(self, call: AttentionCall) -> None: ...
    def write_kv(self, rows: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor], slot_mapping: Tensor) -> None: ...
    def copy_blocks(self, cache: Tensor, pairs: Tensor) -> None: ...


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
