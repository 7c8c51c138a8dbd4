"""What callers of the device pool may pass: shapes, dtypes and devices, which the host knows. What lies in a tensor is
answered row by row, on the device."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pagedkv.optimized.arguments import flag, integer, optional
from pagedkv.optimized.device.state import MOST, PoolShape
from pagedkv.spec.words import Misuse

INTEGERS = (torch.int32, torch.int64)


def pool_shape(
    num_blocks: int, block_size: int, num_rows: int, max_blocks: int,
    sliding_window: int | None, sink_tokens: int, max_rollback: int, leased: bool,
) -> PoolShape:  # fmt: skip
    """The numbers of a pool, checked."""
    shape = PoolShape(
        integer("num_blocks", num_blocks, 1, MOST),
        integer("block_size", block_size, 1, MOST),
        integer("num_rows", num_rows, 1, MOST),
        integer("max_blocks", max_blocks, 1, MOST),
        optional("sliding_window", sliding_window, 1, MOST),
        integer("sink_tokens", sink_tokens, 0, MOST),
        integer("max_rollback", max_rollback, 0, MOST),
        flag("leased", leased),
    )
    if shape.num_rows * shape.max_blocks > MOST:
        raise Misuse("num_rows * max_blocks", shape.num_rows * shape.max_blocks, f"at most {MOST} table entries")
    if shape.max_blocks * shape.block_size > MOST:
        raise Misuse("max_blocks * block_size", shape.max_blocks * shape.block_size, f"at most {MOST} positions")
    return shape


def check_vector(name: str, value: object, device: torch.device, length: int | None = None) -> Tensor:
    """A vector of int32 or int64 on the pool's device, of this length if one is given."""
    tensor = _vector(name, value, device, length)
    if tensor.dtype not in INTEGERS:
        raise Misuse(f"{name}.dtype", tensor.dtype, "torch.int32 or torch.int64")
    return tensor


def check_rows(name: str, value: object, device: torch.device, shape: PoolShape) -> Tensor:
    """Rows of a call: so many that their table entries have numbers in int32."""
    tensor, most = check_vector(name, value, device), 2**31 // shape.max_blocks
    if len(tensor) > most:
        raise Misuse(f"{name}.shape", tuple(tensor.shape), f"at most {most} rows with tables of {shape.max_blocks}")
    return tensor


def check_tables(value: object, device: torch.device, rows: int) -> Tensor:
    """Block tables, a row of int32 for each row that is asked for."""
    if not isinstance(value, Tensor):
        raise Misuse("block_tables", value, f"a torch.Tensor, not {type(value).__name__}")
    if value.device != device or value.dtype != torch.int32:
        raise Misuse("block_tables", (value.dtype, value.device), f"torch.int32 on {device}")
    if value.dim() != 2 or len(value) != rows:
        raise Misuse("block_tables.shape", tuple(value.shape), f"({rows}, width), a row for each")
    return value


def check_caches(caches: Sequence[Tensor], device: torch.device, num_blocks: int) -> list[Tensor]:
    """Tensors of so many blocks each that can be written, every one of them once."""
    found: dict[tuple[object, ...], Tensor] = {}
    for i, cache in enumerate(caches):
        if not isinstance(cache, Tensor) or cache.device != device or cache.requires_grad:
            raise Misuse(f"caches[{i}]", cache, f"a torch.Tensor on {device} that needs no gradient")
        if cache.dim() < 1 or len(cache) != num_blocks:
            raise Misuse(f"caches[{i}].shape", tuple(cache.shape), f"({num_blocks}, ...)")
        found[cache.data_ptr(), cache.shape, cache.stride(), cache.dtype] = cache
    return list(found.values())


def check_where(value: object, device: torch.device, length: int) -> Tensor | None:
    """A vector of bool, or None: all rows."""
    if value is None:
        return None
    tensor = _vector("where", value, device, length)
    if tensor.dtype != torch.bool:
        raise Misuse("where.dtype", tensor.dtype, "torch.bool")
    return tensor


def _vector(name: str, value: object, device: torch.device, length: int | None) -> Tensor:
    if not isinstance(value, Tensor):
        raise Misuse(name, value, f"a torch.Tensor, not {type(value).__name__}")
    if value.device != device:
        raise Misuse(f"{name}.device", value.device, f"{device}, as the pool's")
    if value.dim() != 1 or (length is not None and len(value) != length):
        allowed = "one dimension" if length is None else f"({length},), one for each row"
        raise Misuse(f"{name}.shape", tuple(value.shape), allowed)
    return value
