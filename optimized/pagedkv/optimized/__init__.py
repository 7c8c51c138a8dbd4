"""The production implementation: a block manager over arrays, and attention over the paged cache.

`BlockManager`, what it hands out and `num_blocks_for` need NumPy only, and are compiled where numba is installed.
`paged_attention` and all that comes with it (`pagedkv.optimized.attention`) needs torch, and on a GPU Triton. Names are
loaded when they are first used, so that the manager can be imported where torch is not installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagedkv.optimized.attention import (
        BlockCopier, PreparedAttention, SwapSpace, block_tables_of, copy_blocks, csr_of, flash_attn_varlen_func,
        flash_attn_with_kvcache, gather_kv, merge_attention, paged_attention, prepare_attention, workspace_size,
        write_kv,
    )  # fmt: skip
    from pagedkv.optimized.device import (
        CounterMirror, DecodeStep, DeviceExchange, DevicePool, PoolPlan, RowOutcome,
    )  # fmt: skip
    from pagedkv.optimized.events import BlocksRemoved, BlocksStored, IndexCleared
    from pagedkv.optimized.groups import CacheGroup
    from pagedkv.optimized.hashing import prefix_digests
    from pagedkv.optimized.manager import BlockManager
    from pagedkv.optimized.plan import StepPlan
    from pagedkv.optimized.sizing import num_blocks_for
    from pagedkv.optimized.warm import warm_up

__all__ = [
    "BlockCopier", "BlockManager", "BlocksRemoved", "BlocksStored", "CacheGroup", "CounterMirror", "DecodeStep",
    "DeviceExchange", "DevicePool", "IndexCleared", "PoolPlan", "PreparedAttention", "RowOutcome", "StepPlan",
    "SwapSpace", "block_tables_of", "copy_blocks", "csr_of", "flash_attn_varlen_func", "flash_attn_with_kvcache",
    "gather_kv", "merge_attention", "num_blocks_for", "paged_attention", "prefix_digests", "prepare_attention",
    "warm_up", "workspace_size", "write_kv",
]  # fmt: skip

_HOME = dict.fromkeys(__all__, "attention") | {
    "BlockManager": "manager",
    "CacheGroup": "groups",
    "StepPlan": "plan",
    "num_blocks_for": "sizing",
    "prefix_digests": "hashing",
    "warm_up": "warm",
    **dict.fromkeys(
        ("CounterMirror", "DecodeStep", "DeviceExchange", "DevicePool", "PoolPlan", "RowOutcome"), "device"
    ),
    **dict.fromkeys(("BlocksRemoved", "BlocksStored", "IndexCleared"), "events"),
}


def __getattr__(name: str) -> Any:
    """Load a name from its module. Raises `ModuleNotFoundError` with the extra to install if torch is missing."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        message = f'pagedkv.optimized.{name} needs torch: pip install "pagedkv[torch]"'
        raise ModuleNotFoundError(message, name="torch") from missing


def __dir__() -> list[str]:
    """For completion: the public names, loaded or not."""
    return sorted({*globals(), *__all__})
