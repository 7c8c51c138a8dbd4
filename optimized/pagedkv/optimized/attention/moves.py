"""What moves KV within a cache: writing new rows to slots, copying blocks. See also `gathering` and `swapping`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import (
    check_cache, check_caches, check_dense, check_no_gradient, check_tensors, on_device, require,
)  # fmt: skip
from pagedkv.optimized.attention.backends import BackendName, Copier, backend_for
from pagedkv.optimized.attention.tracing import is_traced

FITTING: set[tuple[object, bool]] = set()
"""Layouts of arguments that `write_kv` has checked: the layers of a model are alike, and to look here is quicker."""
MOST_FITTING = 4096


def write_kv(
    key: Tensor,
    value: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    backend: BackendName | None = None,
) -> None:
    """Write row t of `key` and `value` (num_tokens, num_kv_heads, dim) to slot_mapping[t] (int64), in place.

    A slot is block * block_size + offset; rows with a slot < 0 are skipped. Rows are rounded to the caches' dtype, to
    nearest, ties to even. Slots are distinct and inside the cache; on a GPU nobody looks. Raises `Misuse`.
    """
    if is_traced(key, value, k_cache, v_cache, slot_mapping):
        torch.ops.pagedkv.write_kv.default(key, value, k_cache, v_cache, slot_mapping, backend=backend)
        return
    tensors = {"k_cache": k_cache, "v_cache": v_cache, "key": key, "value": value, "slot_mapping": slot_mapping}
    check_tensors(**tensors)
    layout = tuple([(t.shape, t.stride(), t.dtype, t.device, t.requires_grad, t.is_neg()) for t in tensors.values()])
    if (layout, torch.is_grad_enabled()) not in FITTING:
        check_write(key, value, k_cache, v_cache, slot_mapping)
        if len(FITTING) >= MOST_FITTING:
            FITTING.clear()
        FITTING.add((layout, torch.is_grad_enabled()))
    backend_for(k_cache.device, backend).write_kv((key, value), (k_cache, v_cache), slot_mapping)


def check_write(key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> None:
    """The arguments of `write_kv` fit each other; it looks at layouts alone."""
    check_caches(k_cache, v_cache, written=True)
    require(slot_mapping.dim() == 1, "slot_mapping.shape", tuple(slot_mapping.shape), "(num_tokens,)")
    for name, rows, cache in (("key", key, k_cache), ("value", value, v_cache)):
        shape = (slot_mapping.shape[0], *cache.shape[2:])
        require(tuple(rows.shape) == shape, f"{name}.shape", tuple(rows.shape), f"{shape}")
        allowed = f"{' or '.join(dict.fromkeys(('torch.float32', str(cache.dtype))))}"
        require(rows.dtype in (torch.float32, cache.dtype), f"{name}.dtype", rows.dtype, allowed)
        check_dense(name, rows)
        check_no_gradient(name, rows)
        on_device(name, rows, k_cache.device)
    require(slot_mapping.dtype == torch.int64, "slot_mapping.dtype", slot_mapping.dtype, "int64")
    on_device("slot_mapping", slot_mapping, k_cache.device)


def check_pools(caches: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Caches to be written, with equally many blocks, on one device: what holds of the first holds of all."""
    several = isinstance(caches, Sequence)
    require(several, "caches", f"a {type(caches).__name__}", "a sequence of caches, such as [k_cache, v_cache]")
    for i, cache in enumerate(caches):
        check_cache(f"caches[{i}]", cache, written=True)
        on_device(f"caches[{i}]", cache, caches[0].device)
        blocks = len(caches[0])
        require(len(cache) == blocks, f"caches[{i}].shape", tuple(cache.shape), f"{blocks} blocks, as in caches[0]")
    return tuple(caches)


class BlockCopier:
    """Copies of whole blocks within each of some caches, prepared: one launch a call, and hardly any work on the host.

    `caches`: tensors (num_blocks, block_size, num_kv_heads, dim), say keys and values of all layers, with equally many
    blocks and on one device; dims, dtypes and strides may differ. A kernel reaches them through a table of their
    addresses, since they are tensors of their own as a rule: caches whose blocks lie alike share a launch, so that the
    keys and values of a model are one or two. The table is made here, which waits for the device once. The caches are
    kept as long as the copier. Raises `Misuse`.
    """

    def __init__(self, caches: Sequence[Tensor], *, backend: BackendName | None = None) -> None:
        self.caches = check_pools(caches)
        self._backend = backend
        self._is_traced = is_traced(*self.caches)
        self._copy: Copier | None = None
        if self.caches:
            self._copy = backend_for(self.caches[0].device, backend).copier(self.caches, self.caches)

    def __call__(self, pairs: Tensor) -> None:
        """`copy_blocks` with these caches: no synchronisation, and safe to capture in a CUDA graph."""
        if self._is_traced or is_traced(pairs):
            torch.ops.pagedkv.copy_blocks.default(list(self.caches), pairs, backend=self._backend)
            return
        check_tensors(pairs=pairs)
        shape = tuple(pairs.shape)
        require(pairs.dtype in (torch.int32, torch.int64), "pairs.dtype", pairs.dtype, "int32 or int64")
        require(len(shape) == 2 and shape[1] == 2, "pairs.shape", shape, "(num_pairs, 2)")
        if self._copy is not None:
            on_device("pairs", pairs, self.caches[0].device)
            self._copy(pairs)


def copy_blocks(caches: Sequence[Tensor], pairs: Tensor, *, backend: BackendName | None = None) -> None:
    """Copy whole blocks within each cache, in place, byte for byte. `pairs` (num_pairs, 2) int32 or int64: source,
    destination.

    The caches (keys and values of all layers, say) have equally many blocks, and lie on one device: one launch for all
    that lie alike. All copies happen as if at once: destinations are distinct, and none is a source. A pair with a
    source < 0 is skipped, so that a plan can be padded. On the CPU a bad pair is `Misuse`; on a GPU nobody looks.
    The first call with these caches waits for the device; `BlockCopier` prepares that, and the checks, once.
    """
    if is_traced(pairs, *(caches if isinstance(caches, list | tuple) else ())):
        torch.ops.pagedkv.copy_blocks.default(list(caches), pairs, backend=backend)
        return
    BlockCopier(caches, backend=backend)(pairs)
