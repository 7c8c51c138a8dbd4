"""SGLang's `RadixCache` over its paged allocator as a subject, driven as its scheduler drives both (SGLang 0.5.23).

A prompt is matched, its node locked, pages are freed by `evict_to_free_tokens` and taken by `alloc_extend`. `commit` is
`checkpoint`, which puts the full pages that are computed into the tree and frees what was there already (`dedup`). What
is in the tree and not locked counts as available, as it does in the scheduler's budget. Namespaces are `extra_key`.

A match splits nodes and refreshes when they were used, so LRU is not claimed: with us a lookup is no use. The tree
evicts whole leaves, in which there may be more pages than were asked for, so `evict` is not claimed either.
"""

import itertools
from array import array
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from pagedkv.conformance.adapters import third_party
from pagedkv.conformance.adapters.scheduler import Entry, Scheduled
from pagedkv.spec import Block, Config, Copy, Identity, Ok, Outcome, Token, ceil_div
from pagedkv.spec.state import check_tokens
from pagedkv.spec.subject import Capabilities
from pagedkv.spec.words import Namespace, check_id

PACKAGE = "sglang==0.5.23"
ROWS = 32
"""Of the table from requests to tokens: more than a program has requests."""


def _module(name: str) -> Any:
    return third_party(f"sglang.srt.mem_cache.{name}", PACKAGE)


class SglangSubject(Scheduled):
    """Radix tree, allocator and the table from requests to tokens, on the CPU."""

    capabilities = Capabilities(
        reserve=True, prefix_cache=True, lookup=True, preempt=True, dedup=True, reports_index=True
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        torch, size = third_party("torch", PACKAGE), config.block_size
        self._tensor = torch.tensor
        self._prefixes, self._radix = _module("base_prefix_cache"), _module("radix_cache")
        arguments = {"dtype": torch.float16, "device": "cpu", "kvcache": None, "need_sort": False}
        self.allocator: Any = (
            _module("allocator.paged").PagedTokenToKVPoolAllocator(config.num_blocks * size, size, **arguments)
            if size > 1
            else _module("allocator.token").TokenToKVPoolAllocator(config.num_blocks, **arguments)
        )
        slots = (config.num_blocks + 1) * size
        self.rows: Any = _module("memory_pool").ReqToTokenPool(ROWS, slots, "cpu", enable_memory_saver=False)
        self.tree: Any = self._radix.RadixCache(
            _module("cache_init_params").CacheInitParams(
                disable=not config.prefix_cache,
                req_to_token_pool=self.rows,
                token_to_kv_pool_allocator=self.allocator,
                page_size=size,
            )
        )

    def _key(self, namespace: Namespace, tokens: tuple[Token, ...]) -> Any:
        return self._radix.RadixKey(array("q", tokens), None if namespace == "" else repr(namespace))

    def _match(self, namespace: Namespace, tokens: tuple[Token, ...]) -> Any:
        key = self._key(namespace, tokens)
        return self.tree.match_prefix(self._prefixes.MatchPrefixParams(key=key))

    def enter(self, entry: Entry, reserve: int) -> int | None:
        match = self._match(entry.namespace, entry.tokens[:-1])  # one token is left to compute
        cached = match.device_prefix_len
        lock = self.tree.lock(match.last_device_node)
        (row,) = self.rows.alloc_rows(1)
        self.rows.write((row, slice(0, cached)), self.tree.path_device_indices(match.last_device_node))
        if not self._extend(row, cached, max(reserve, cached)):
            self.tree.unlock(lock)
            self.rows.free_slots.append(row)
            return None
        entry.handle = _request(entry, row, lock, match.last_device_node, cached)
        return int(cached)

    def _extend(self, row: int, start: int, end: int) -> bool:
        """Slots for the positions start..end-1 of a row. False: there are too few pages, and nothing has changed."""
        size = self.config.block_size
        pages = ceil_div(end, size) - ceil_div(start, size)
        if pages > self.available():
            return False
        if end <= start:
            return True
        self.allocator.evict_to_free_tokens(self.tree, pages * size)
        if size == 1:
            taken = self.allocator.alloc(end - start)
        else:
            last = int(self.rows.req_to_token[row, start - 1]) if start else -1
            starts, ends = self._tensor([start]), self._tensor([end])
            taken = self.allocator.alloc_extend(starts, starts, ends, ends, self._tensor([last]), end - start)
        self.rows.write((row, slice(start, end)), taken)
        return True

    def grow(self, entry: Entry, tokens: tuple[Token, ...], length: int) -> bool:
        return self._extend(entry.handle.kv.req_pool_idx, entry.reserved, length)

    def written(self, entry: Entry, computed: int) -> tuple[Copy, ...]:
        before, request = self.table(entry), entry.handle
        request.full_untruncated_fill_ids = array("q", entry.tokens)
        if computed > entry.computed:
            self.tree.checkpoint(request, up_to=computed)
        return tuple(Copy(old, new) for old, new in zip(before, self.table(entry), strict=True) if old != new)

    def leave(self, entry: Entry, preempted: bool) -> None:
        request = entry.handle
        self.tree.free_kv_row(request.kv, [(request.kv.cache_protected_len, entry.reserved)])
        self.tree.unlock(request.lock)
        self.rows.free_slots.append(request.kv.req_pool_idx)

    def table(self, entry: Entry) -> tuple[Block, ...]:
        return self._pages(self.rows.req_to_token[entry.handle.kv.req_pool_idx, : entry.reserved])

    def _pages(self, slots: Any) -> tuple[Block, ...]:
        """Page 0 takes the writes of padding."""
        size = self.config.block_size
        return tuple(slot // size - 1 for slot in slots[::size].tolist())

    def available(self) -> int:
        return int(self.allocator.available_size() + self.tree.evictable_size()) // self.config.block_size

    def index(self) -> Mapping[Block, Identity]:
        return dict(self._below(self.tree.root_node, ()))

    def _below(self, node: Any, path: tuple[Token, ...]) -> Iterator[tuple[Block, Identity]]:
        size = self.config.block_size
        for child in node.children.values():
            longer = path + tuple(child.key.token_ids)
            namespace = "" if child.key.extra_key is None else child.key.extra_key[1:-1]
            for page, end in zip(self._pages(child.value), itertools.count(len(path) + size, size), strict=False):
                yield page, Identity(namespace, longer[:end])
            yield from self._below(child, longer)

    def lookup(self, tokens: tuple[Token, ...], namespace: Namespace = "") -> Outcome:
        check_tokens(tuple(tokens), at_least=0)
        check_id("namespace", namespace)
        return Ok(cached_tokens=int(self._match(namespace, tuple(tokens)).device_prefix_len))


def _request(entry: Entry, row: int, lock: Any, node: Any, cached: int) -> SimpleNamespace:
    """What the tree asks of SGLang's `Req`."""
    return SimpleNamespace(
        kv=SimpleNamespace(
            req_pool_idx=row, cache_protected_len=cached, cache_inserted_len=0, swa_evict_floor=0,
            get_evicted_seqlen=lambda component: 0, swa_dead_lo=lambda page_size: 0,
        ),
        full_untruncated_fill_ids=array("q", entry.tokens), origin_input_ids=entry.tokens, priority=0, cache_salt=None,
        extra_key=None if entry.namespace == "" else repr(entry.namespace), lock=lock, last_node=node,
    )  # fmt: skip
