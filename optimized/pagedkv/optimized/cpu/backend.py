"""The CPU backend: see `pagedkv.optimized.attention.Backend`."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import MOST_POSITIONS, AttentionCall, overlap
from pagedkv.optimized.attention.backends import Copier
from pagedkv.optimized.attention.debug import check_call, check_gather, check_pairs, check_slots
from pagedkv.optimized.cpu.items import merge_through, work_through
from pagedkv.optimized.cpu.moves import (
    Pages, Rows, Written, are_distinct, copy_pairs, gather_rows, merge_rows, write_rows,
)  # fmt: skip
from pagedkv.optimized.cpu.planning import MOST_ROWS, Plan, plan_work, visible_bounds
from pagedkv.optimized.cpu.prefetching import LINE
from pagedkv.optimized.cpu.products import whole_rows
from pagedkv.optimized.cpu.records import record_size
from pagedkv.optimized.cpu.scratch import scratch_size
from pagedkv.optimized.cpu.simd import HAS_DOT
from pagedkv.optimized.cpu.storage import BFLOAT16, FLOAT16, FLOAT32
from pagedkv.optimized.cpu.threads import in_threads
from pagedkv.optimized.cpu.work import Work
from pagedkv.spec.words import Misuse

KINDS: Final = {torch.float32: FLOAT32, torch.float16: FLOAT16, torch.bfloat16: BFLOAT16}
Array: TypeAlias = "np.ndarray[Any, Any]"

PORTION: Final = 2**18
"""Bytes that are worth a thread's while."""
STREAMED: Final = 2**22
"""Bytes. A move of so many or more is written past the caches, since it would fill them."""
KEPT: Final = 2**26
"""Bytes to work in that a thread keeps from call to call."""
MARKS: Final = 64
"""Slots for each that is written, up to which a mark for every slot of the cache is worth it."""
ITEMS: Final = 4
"""That each thread should have, at least, so that they end together."""


class CpuBackend:
    """Compiled loops, in as many threads as torch has."""

    def attend(self, call: AttentionCall) -> None:
        """Fill `out` and `lse`. Requests are cut into spans of `split_size`; bits depend on that, not on threads."""
        check_call(call)
        query, mask = call.query, call.mask
        lengths = call.seq_lens.numpy().astype(np.int64)
        ends = np.arange(len(lengths) + 1) if call.cu_seqlens_q is None else call.cu_seqlens_q.numpy().astype(np.int64)
        bounds, parts = (np.zeros((len(query), 3), np.int64) for _ in range(2))
        visible_bounds(lengths, ends, mask.causal, mask.window or 0, bounds)
        threads = threads_for(size_of(call, bounds))
        items, tokens, kept = planned(call, ends, bounds, parts, threads)
        slopes, sinks = (None if each is None else each.contiguous() for each in (mask.alibi_slopes, mask.sinks))
        work = work_of(call, slopes, sinks)
        several = max(1, min(threads, len(items)))
        size, records = scratch_size(work), kept * record_size(work.value_dim)
        memory = ROOMS.take(several * size + records)
        place = begin_of(memory)
        work = work._replace(records=place + several * size)
        in_threads(lambda i, next_: work_through(work, items, tokens, bounds, parts, next_, place + i * size), several)
        in_threads(lambda i, next_: merge_through(work, parts, next_, place + i * size), several if kept else 1)
        ROOMS.give_back(memory)

    def write_kv(self, rows: tuple[Tensor, Tensor], caches: tuple[Tensor, Tensor], slot_mapping: Tensor) -> None:
        """Rows to slots; `Misuse` for a slot past the cache or given twice."""
        slots = np.ascontiguousarray(slot_mapping.numpy())
        look_at_slots(slots, slot_mapping, caches[0].shape[0] * caches[0].shape[1])
        given = [row.clone() if any(overlap(row, cache) for cache in caches) else row for row in rows]
        keys, values = (
            Written(pages_of(cache), Rows(*place_of(row, 2)), KINDS[cache.dtype], row.dtype != cache.dtype)
            for row, cache in zip(given, caches, strict=True)
        )
        size = sum(row.nbytes for row in given)
        step = portion(size, 2 * len(slots))
        side_by_side(partial(write_rows, keys, values, slots, step, size >= STREAMED), threads_for(size))

    def copier(self, sources: Sequence[Tensor], destinations: Sequence[Tensor]) -> Copier:
        """`Misuse` for pairs that get in each other's way: without, their order does not matter."""

        def copy(pairs: Tensor) -> None:
            check_pairs(pairs, len(sources[0]), len(destinations[0]), apart=sources is destinations)
            given = np.ascontiguousarray(pairs.numpy(), np.int64)
            for source, target in zip(map(pages_of, sources), map(pages_of, destinations), strict=True):
                size = len(given) * source.block_size * source.num_heads * source.row_size
                side_by_side(partial(copy_pairs, source, target, given, size >= STREAMED), threads_for(size))

        return copy

    def gather(
        self, cache: Tensor, block_tables: Tensor, cu_seqlens: Tensor, starts: Tensor | None, out: Tensor
    ) -> None:
        """Block after block; `Misuse` for what the tables do not hold."""
        check_gather(cache, block_tables, cu_seqlens, starts, len(out))
        ends = cu_seqlens.numpy().astype(np.int64)
        firsts = np.zeros(len(block_tables), np.int64) if starts is None else starts.numpy().astype(np.int64)
        pages, rows, (tables, row) = pages_of(cache), Rows(*place_of(out, 2)), place_of(block_tables, 1)
        step = portion(out.nbytes, len(out))
        run = partial(gather_rows, pages, tables, row, ends, firsts, rows, step, out.nbytes >= STREAMED)
        side_by_side(run, threads_for(out.nbytes))
        out[ends[-1] :] = 0

    def merge(self, outs: Tensor, lses: Tensor, out: Tensor, lse: Tensor) -> None:
        """Row after row; `out` and `lse` are contiguous."""
        outs = outs if outs.stride(-1) == 1 or outs.shape[-1] == 1 else outs.contiguous()
        given, weights = place_of(outs, 3), place_of(lses, 3)
        shape = *outs.shape, KINDS[outs.dtype]
        factors = np.empty(lses.numel(), np.float32)
        run = partial(merge_rows, given, weights, out.data_ptr(), lse.data_ptr(), factors.ctypes.data, shape)
        side_by_side(run, threads_for(outs.nbytes))


def threads_for(size: int) -> int:
    """How many are worth starting to move `size` bytes."""
    return max(1, min(torch.get_num_threads(), size // PORTION))


def portion(size: int, rows: int) -> int:
    """How many of rows that have `size` bytes together are worth a thread's while."""
    return max(1, PORTION * rows // max(1, size))


def side_by_side(run: Callable[[int], None], threads: int) -> None:
    """run(the address of a counter) in some threads."""
    in_threads(lambda _, counter: run(counter), threads)


def look_at_slots(slots: Array, slot_mapping: Tensor, num_slots: int) -> None:
    """`check_slots`; where slots are many, a mark for each is quicker than putting them in order."""
    if num_slots > MARKS * len(slots) or not are_distinct(slots, np.zeros(num_slots, np.bool_)):
        check_slots(slot_mapping, num_slots)


def pages_of(cache: Tensor) -> Pages:
    """A cache as loops see it."""
    place, block, token, head = place_of(cache, 3)
    return Pages(place, block, token, head, cache.shape[1], cache.shape[2], cache.shape[3] * cache.itemsize)


def size_of(call: AttentionCall, bounds: Array) -> int:
    """Bytes that are read; a product of float32 counts as one, so that many rows of few positions are work, too."""
    pairs = int((bounds[:, 1] - bounds[:, 0]).sum())
    dims = call.k_cache.shape[3] + call.v_cache.shape[3]
    return pairs * dims * max(call.k_cache.shape[2] * call.k_cache.itemsize, call.query.shape[1] // 4)


def planned(call: AttentionCall, ends: Array, bounds: Array, parts: Array, threads: int) -> tuple[Array, Array, int]:
    """(items, the tokens that they list, how many records are kept). With few items, each has fewer heads."""
    heads = call.k_cache.shape[2]
    group, tables = call.query.shape[1] // heads, call.block_tables
    table = tables.data_ptr(), tables.stride(0) * tables.itemsize, call.k_cache.shape[1]
    lists, counts = np.empty((len(ends), 5), np.int64), np.zeros(2, np.int64)

    def plan(items: Array, tokens: Array, most: int) -> int:
        made = Plan(items, tokens, counts, heads, group, most)
        kept: int = plan_work(made, bounds, ends, parts, lists, min(call.split_size, MOST_POSITIONS), table)
        return kept

    none, nobody, most = np.empty((0, 9), np.int64), np.empty(0, np.int64), heads
    plan(none, nobody, most)
    if counts[0] < ITEMS * threads and threads > 1:
        most = max(1, heads * int(counts[0]) // (ITEMS * threads))
        plan(none, nobody, most)
    items, tokens = np.empty((counts[0], 9), np.int64), np.empty(counts[1], np.int64)
    return items, tokens, plan(items, tokens, most)


def in_pairs(dtype: torch.dtype, head_dim: int) -> bool:
    """Whether pairs of numbers are multiplied at once. Weights are then rounded to bfloat16 before they meet values."""
    return HAS_DOT and dtype is torch.bfloat16 and head_dim % 2 == 0


def work_of(call: AttentionCall, slopes: Tensor | None, sinks: Tensor | None) -> Work:
    """The call as numbers, but for where records are kept."""
    query, keys, values, tables, mask = call.query, call.k_cache, call.v_cache, call.block_tables, call.mask
    heads = keys.shape[2]
    group = query.shape[1] // heads
    numbers: list[Any] = [
        KINDS[query.dtype], in_pairs(query.dtype, query.shape[2]), query.shape[2], values.shape[3], heads, group,
        keys.shape[1], *place_of(query, 2),
        *place_of(keys, 3), *place_of(values, 3), *place_of(tables, 1), *place_of(call.out, 2), *place_of(call.lse, 2),
        float(mask.scale), float(mask.softcap), 0 if slopes is None else slopes.data_ptr(),
        0 if sinks is None else sinks.data_ptr(), max(MOST_ROWS, whole_rows(group)), 0,
    ]  # fmt: skip
    return Work(*numbers)


def place_of(tensor: Tensor, steps: int) -> tuple[int, ...]:
    """Its address, and the first of its strides in bytes. Raises `Misuse` if it holds no memory."""
    place = tensor.data_ptr()
    if place == 0 and tensor.numel():
        raise Misuse(
            "tensor", tuple(tensor.shape), "one that holds memory: that of this one is freed, or was never there"
        )
    return place, *(stride * tensor.itemsize for stride in tensor.stride()[:steps])


class Rooms(threading.local):
    """Memory that calls from one thread work in. A call takes it: one in the midst of another, from the handler of a
    signal for example, finds none and makes its own."""

    memory = np.empty(0, np.uint8)

    def take(self, size: int) -> Array:
        """At least `size` bytes from the beginning of a cache line on: see `begin_of`."""
        memory = self.memory
        if memory.nbytes < size + LINE:
            return np.empty(size + LINE, np.uint8)
        self.memory = Rooms.memory
        return memory

    def give_back(self, memory: Array) -> None:
        """For the next call, up to `KEPT` bytes."""
        if self.memory.nbytes < memory.nbytes <= KEPT:
            self.memory = memory


def begin_of(memory: Array) -> int:
    """The address of its first whole cache line."""
    place: int = memory.ctypes.data
    return (place + LINE - 1) // LINE * LINE


ROOMS: Final = Rooms()
