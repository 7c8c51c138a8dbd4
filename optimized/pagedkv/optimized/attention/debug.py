"""What tensors of integers must hold, looked at: by the CPU backend always, on a GPU in debug mode only.

Shapes and dtypes are known on the host; values on a GPU are not, and to see them is to wait for the device. With
`PAGEDKV_DEBUG=1` in the environment when this is imported, every public function looks, wherever its tensors lie, and
raises the same `Misuse` as on the CPU, before anything is written. A call reduces its laws to one small tensor on the
device and waits for it once. A CUDA graph cannot capture that.

The laws are written once, in what NumPy and torch have in common: a tensor on the CPU is looked at as the NumPy array
that it is, which takes a third of the time on a small batch.
"""

import os
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import AttentionCall, require

DEBUG: Final = os.environ.get("PAGEDKV_DEBUG", "0") not in ("", "0")
"""Whether values on a GPU are looked at."""

Array: TypeAlias = Any
"""A NumPy array, or a tensor that is not on the CPU; what they share has no type."""


class Law(NamedTuple):
    """What must hold of an argument."""

    holds: Array
    """0-dimensional, bool."""
    argument: str
    values: Array
    allowed: str
    bad: Array | None = None
    """Which of the values to show; None: all."""


def require_laws(*laws: Law) -> None:
    """One transfer from the device, whatever the number of laws. Raises `Misuse` for the first that is broken."""
    holds = [law.holds for law in laws]
    for law, held in zip(laws, torch.stack(holds).tolist() if isinstance(holds[0], Tensor) else holds, strict=True):
        if not held:
            shown = law.values if law.bad is None else law.values[law.bad]
            require(False, law.argument, shown.tolist(), law.allowed)


def check_slots(slot_mapping: Tensor, num_slots: int) -> None:
    """Slots >= 0 are distinct and below `num_slots`."""
    slots = array_of(slot_mapping)
    ordered = ascending(slots)
    below = ordered[:-1]
    bad = ((ordered[1:] == below) & (below >= 0)).any() | (ordered[-1:] >= num_slots).any()
    allowed = f"distinct slots below {num_slots}, or < 0 to skip"
    require_laws(Law(~bad, "slot_mapping", slots, allowed, slots >= 0))


def check_pairs(pairs: Tensor, num_sources: int, num_destinations: int, *, apart: bool) -> None:
    """Where a source is >= 0, both blocks exist and the destination stands in no other pair.

    With `apart`, sources and destinations lie in the same pool, and no destination is a source either.
    """
    given = array_of(pairs.long())
    kept, destinations = given[:, 0] >= 0, given[:, 1]
    outside = (given[:, 0] >= num_sources) | kept & ((destinations < 0) | (destinations >= num_destinations))
    # Each block twice, a source one more: in order, a destination that stands there again is 0 or 1 before another.
    # Of pairs that are skipped, the sources become -1, and the destinations blocks that are in nobody's way.
    doubled = given * 2
    aside = 2 * (num_sources + num_destinations + counting(len(given), given))
    doubled[:, 0] = kept * (doubled[:, 0] + 2) - 1
    doubled[:, 1] = kept * doubled[:, 1] + ~kept * aside
    ordered = ascending(doubled.reshape(-1) if apart else doubled[:, 1])
    again = (ordered[1:] - ordered[:-1] <= 1) & (ordered[:-1] % 2 == 0)
    most = f"sources 0..{num_sources - 1} or < 0 to skip, destinations 0..{num_destinations - 1}, distinct"
    allowed = f"{most}{' and no sources' if apart else ''}"
    require_laws(Law(~(outside.any() | again.any()), "pairs", given, allowed))


def check_call(call: AttentionCall) -> None:
    """`cu_seqlens_q`, `seq_lens` and `block_tables` of `paged_attention` fit each other and the cache."""
    lengths, tables, window = array_of(call.seq_lens), array_of(call.block_tables), call.mask.window
    num_blocks, size = call.k_cache.shape[:2]
    most = tables.shape[1] * size
    outside = (lengths < 0) | (lengths > most)
    laws = [Law(~outside.any(), "seq_lens", lengths, f"0..{most}, what block_tables hold", outside)]
    rows, end = 1, lengths
    if call.cu_seqlens_q is not None:
        cu_seqlens = array_of(call.cu_seqlens_q)
        laws.insert(0, rising("cu_seqlens_q", cu_seqlens, len(call.query)))
        rows = cu_seqlens[1:] - cu_seqlens[:-1]
        end = lengths * (rows > 0)
    first = None if window is None else (lengths - rows - window + 1)[:, None]
    require_laws(*laws, reading(tables, first, end, size, num_blocks))


def check_gather(cache: Tensor, block_tables: Tensor, cu_seqlens: Tensor, starts: Tensor | None, num_rows: int) -> None:
    """`cu_seqlens`, `starts` and `block_tables` of `gather_kv` fit each other and the cache."""
    tables, ends = array_of(block_tables), array_of(cu_seqlens)
    num_blocks, size = cache.shape[:2]
    most = tables.shape[1] * size
    counts = ends[1:] - ends[:-1]
    first = counts * 0 if starts is None else array_of(starts.long())  # a sum with it fits
    end = first + counts
    fit = ((counts <= 0) | (first >= 0) & (end <= most)).all()  # where there are no rows, nobody reads a start
    name, shown = ("cu_seqlens", ends) if starts is None else ("starts", first)
    require_laws(
        rising("cu_seqlens", ends, num_rows),
        Law(fit, name, shown, f"positions 0..{most}, what block_tables hold"),
        reading(tables, first[:, None], end * (counts > 0), size, num_blocks),
    )


def rising(name: str, cu_seqlens: Array, most: int) -> Law:
    """Rows are counted from 0 to at most `most`, never falling."""
    holds = (cu_seqlens[0] == 0) & (cu_seqlens[-1] <= most) & (cu_seqlens[1:] >= cu_seqlens[:-1]).all()
    return Law(holds, name, cu_seqlens, f"from 0 to at most {most}, never falling")


def reading(tables: Array, first: Array, end: Array, size: int, num_blocks: int) -> Law:
    """Positions first..end-1 of each request lie in blocks that exist; `first` (num_requests, 1) or None: 0."""
    column = counting(tables.shape[1], tables) * size
    bad = ((tables < 0) | (tables >= num_blocks)) & (column < end[:, None])
    if first is not None:
        bad &= column + size > first
    allowed = f"block ids 0..{num_blocks - 1} where positions are seen"
    return Law(~bad.any(), "block_tables", tables, allowed, bad)


def array_of(tensor: Tensor) -> Array:
    """The same values, no copy."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def ascending(values: Array) -> Array:
    """Sorted."""
    return values.sort().values if isinstance(values, Tensor) else np.sort(values)


def counting(count: int, beside: Array) -> Array:
    """0, 1, …, count - 1, where `beside` lies."""
    return torch.arange(count, device=beside.device) if isinstance(beside, Tensor) else np.arange(count)
