"""Problems as tensors of torch, and back: what every adapter of a kernel starts from and ends with."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from pagedkv.conformance.adapters import third_party
from pagedkv.spec.attention_subject import Problem
from pagedkv.spec.words import ceil_div

UNIT_ROUNDOFF = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Of weights that are rounded to the dtype before they meet the values."""


class Launch(NamedTuple):
    """A problem's arrays as tensors: the caches with the strides that they have, the integers as int32."""

    query: Any
    key_cache: Any
    value_cache: Any
    block_tables: Any
    seq_lens: Any
    cu_seqlens_q: Any
    """(num_requests + 1,): where the rows of each request begin, and where the last ones end."""


def launch_of(problem: Problem, device: str = "cpu") -> Launch:
    """The tensors of a problem. float32 and float16 on the CPU share the memory of the arrays."""
    torch = third_party("torch", "torch")
    ends = np.concatenate([[0], np.cumsum(problem.query_lens)])
    return Launch(
        *(tensor_of(a, problem.dtype, device) for a in (problem.query, problem.key_cache, problem.value_cache)),
        *(torch.from_numpy(a.astype(np.int32)).to(device) for a in (problem.block_tables, problem.seq_lens, ends)),
    )


def tensor_of(array: Any, dtype: str, device: str = "cpu") -> Any:
    """An array as a tensor in `dtype` with the same strides; bfloat16 travels as float32."""
    torch = third_party("torch", "torch")
    tensor = torch.from_numpy(array)
    kind = getattr(torch, dtype)
    if tensor.dtype == kind and device == "cpu":
        return tensor
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=kind, device=device)
    return made.copy_(tensor)


def array_of(tensor: Any) -> Any:
    """A tensor as an array; bfloat16 becomes float32."""
    torch = third_party("torch", "torch")
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def optional(array: Any, device: str = "cpu") -> Any:
    """Slopes or sinks as a float32 tensor; None stays None."""
    torch = third_party("torch", "torch")
    return None if array is None else torch.from_numpy(np.asarray(array, np.float32)).to(device)


class Gathered(NamedTuple):
    """What one request attends with."""

    rows: slice
    """Of the query."""
    key: Any
    value: Any
    """(positions, num_kv_heads, dim), from the first block on that a row sees."""
    mask: Any
    """(rows, positions) bool: which of them a row sees."""


def gathered(problem: Problem, launch: Launch) -> Iterator[Gathered]:
    """Each request by itself. Blocks that a window hides from all of its rows are not touched."""
    size = problem.key_cache.shape[1]
    for index, length in enumerate(problem.seq_lens.tolist()):
        rows = slice(int(launch.cu_seqlens_q[index]), int(launch.cu_seqlens_q[index + 1]))
        first = length - (rows.stop - rows.start) - (problem.window or length) + 1
        hidden = 0 if problem.window is None else max(0, first) // size
        table = launch.block_tables[index, hidden : ceil_div(length, size)].long()
        key, value = (
            cache[table].flatten(0, 1)[: length - hidden * size] for cache in (launch.key_cache, launch.value_cache)
        )
        yield Gathered(rows, key, value, seen(problem, rows.stop - rows.start, length)[:, hidden * size :])


def seen(problem: Problem, rows: int, length: int) -> Any:
    """(rows, length) bool: which positions the last `rows` of a request see; window inclusive, bottom-right aligned."""
    torch = third_party("torch", "torch")
    row, position = torch.arange(rows)[:, None] + length - rows, torch.arange(length)[None, :]
    mask = torch.ones(rows, length, dtype=torch.bool)
    if problem.causal:
        mask &= position <= row
    if problem.window is not None:
        mask &= (row - position).abs() < problem.window
    return mask


def slots_of(problem: Problem, request: int, first: int = 0) -> Any:
    """The slots of a request's positions from `first` on, int64, for kernels that address tokens and not blocks."""
    size, positions = problem.key_cache.shape[1], np.arange(first, int(problem.seq_lens[request]))
    return problem.block_tables[request, positions // size].astype(np.int64) * size + positions % size


class Reading:
    """A subject that declares no `writes`: nobody calls these."""

    def write_kv(self, key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any, dtype: str) -> None:
        """Not declared."""
        raise NotImplementedError

    def copy_blocks(self, caches: Sequence[Any], pairs: Any, dtype: str) -> None:
        """Not declared."""
        raise NotImplementedError


def installed_version(package: str) -> str:
    """Of a distribution; "not installed" where it is not."""
    metadata = import_module("importlib.metadata")
    try:
        return str(metadata.version(package))
    except metadata.PackageNotFoundError:
        return "not installed"
