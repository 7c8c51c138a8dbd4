"""The `PagedAttentionCache` of transformers' continuous batching as a subject, driven as its scheduler drives it.

One full attention layer, so that a sector is a block. `commit` is the end of a forward: `mark_complete_blocks` hashes
what has become full, and a block that is there already takes the place of its duplicate (`dedup`). Blocks that are kept
for their contents count as available: they are evicted, all of them, when that makes room. Preemption is what
`OffloadingManager` does where there is no CPU space: `free_blocks(no_cache=True)`.

It has no namespaces. So each namespace has token ids of its own here, and that they are kept apart is not tested. Its
sliding layers keep a ring of window positions, whose table is no table of ours, and its CPU offload pins memory, for
which a GPU is needed: neither is declared. Its forks copy a partly filled block at once: `TransformersForking`.
"""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pagedkv.conformance.adapters import third_party
from pagedkv.conformance.adapters.scheduler import Entry, Scheduled
from pagedkv.spec import (
    Block, Config, Copy, Identity, Misuse, Ok, Outcome, Reason, Refused, RequestId, Token,
)  # fmt: skip
from pagedkv.spec.state import check_tokens
from pagedkv.spec.subject import Capabilities
from pagedkv.spec.words import Namespace, check_id

PACKAGE = "transformers==5.24.0 torch==2.13.0"


class TransformersSubject(Scheduled):
    """Prefix sharing on, all in view."""

    capabilities = Capabilities(
        reserve=True, prefix_cache=True, lookup=True, preempt=True, dedup=True, reports_index=True
    )
    forgets_on_preemption = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        allocators = _module("cache_allocators.cache_allocator")
        self._hash, self._state = allocators.compute_block_hash, _module("requests").RequestState
        self.cache = _module("cache").PagedAttentionCache(
            third_party("transformers", PACKAGE).LlamaConfig(
                num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, hidden_size=32, head_dim=32
            ),
            third_party("transformers", PACKAGE).ContinuousBatchingConfig(
                page_size=config.block_size, num_blocks=config.num_blocks, max_batch_tokens=8, max_memory_percent=0.9,
                allow_block_sharing=config.prefix_cache,
            ),
            "cpu",
            _module("distributed").DistributedHelper(None, None),
        )  # fmt: skip
        self.pages = self.cache.cache_allocators["full_attention"]
        self._names, self._token_ids = itertools.count(), dict[tuple[Namespace, Token], int]()
        self.identities: dict[int, Identity] = {}
        """What each block hash that was computed stands for."""

    def _ids(self, namespace: Namespace, tokens: tuple[Token, ...]) -> list[int]:
        known = self._token_ids
        return [known.setdefault((namespace, token), len(known)) for token in tokens]

    def _room(self, entry: Entry, length: int) -> bool:
        """Slots up to `length`, after an eviction if that helps."""
        state = entry.handle
        past, new = state.current_len(), length - state.current_len()
        need = self.pages.needs_new_blocks(state.request_id, past, new)
        if need > self.available():
            return False
        if not self.cache.can_store_request_tokens(state, new, dry_run=True):
            self.cache.evict_cached_blocks()
        stored: bool = self.cache.can_store_request_tokens(state, new)
        return stored

    def enter(self, entry: Entry, reserve: int) -> int | None:
        ids = self._ids(entry.namespace, entry.tokens)
        state = entry.handle = self._state(request_id=str(next(self._names)), initial_tokens=ids)
        cached = state.position_offset = self.cache.search_prefix_match(state.request_id, ids)
        if not self._room(entry, max(reserve, cached)):
            self.cache.free_blocks(state.request_id)
            return None
        return int(cached)

    def grow(self, entry: Entry, tokens: tuple[Token, ...], length: int) -> bool:
        if not self._room(entry, length):
            return False
        entry.handle.generated_tokens.extend(self._ids(entry.namespace, tokens))
        return True

    def written(self, entry: Entry, computed: int) -> tuple[Copy, ...]:
        state, before = entry.handle, self.table(entry)
        full = self.cache.count_new_complete_blocks(state, computed - entry.computed)
        state.position_offset = computed
        self._remember(entry, computed)
        self.cache.mark_complete_blocks(state, full)
        return tuple(Copy(old, new) for old, new in zip(before, self.table(entry), strict=True) if old != new)

    def _remember(self, entry: Entry, computed: int) -> None:
        ids, size, parent = self._ids(entry.namespace, entry.tokens), self.config.block_size, None
        for end in range(size, computed + 1, size):
            parent = self._hash(parent, ids[end - size : end])
            self.identities[parent] = Identity(entry.namespace, entry.tokens[:end])

    def leave(self, entry: Entry, preempted: bool) -> None:
        self.cache.free_blocks(entry.handle.request_id, no_cache=preempted and self.forgets_on_preemption)

    def table(self, entry: Entry) -> tuple[Block, ...]:
        return tuple(block - self._first for block in self.pages.block_table.get(entry.handle.request_id, ()))

    @property
    def _first(self) -> int:
        """Blocks of the two sectors that are never handed out."""
        return int(self.cache.pool.num_reserved_sectors * self.pages.blocks_per_sector)

    def available(self) -> int:
        pool, pages = self.cache.pool, self.pages
        free = pool.num_free_sectors * pages.blocks_per_sector + pool.count_free_blocks(pages.index)
        return int(free + len(pages.ledger.cached_blocks))

    def index(self) -> Mapping[Block, Identity]:
        found = self.pages.ledger.block_to_hash.items()
        return {block - self._first: self.identities[block_hash] for block, block_hash in found}

    def lookup(self, tokens: tuple[Token, ...], namespace: Namespace = "") -> Outcome:
        check_tokens(tuple(tokens), at_least=0)
        check_id("namespace", namespace)
        ids = [*self._ids(namespace, tuple(tokens)), 0]  # a match leaves one token to compute
        sharing = self.cache.use_prefix_sharing
        return Ok(cached_tokens=self.config.block_size * len(self.pages.match_prefix_blocks(ids)) if sharing else 0)


class TransformersKeeping(TransformersSubject):
    """A preempted request leaves its full blocks in the index, as a finished one does."""

    forgets_on_preemption = False


class TransformersForking(TransformersKeeping):
    """With forks, which `prepare_fork_request` makes."""

    capabilities = replace(TransformersSubject.capabilities, fork=True)

    def fork(self, parent: RequestId, child: RequestId) -> Outcome:
        source = self._resident(parent)
        check_id("child", child)
        if child in self.entries:
            raise Misuse("child", child, "the id of no known request")
        if source.computed != source.length:
            raise Misuse("parent", parent, f"a request computed to its end; {source.computed} of {source.length} are")
        if (
            self.config.max_requests is not None
            and sum(e.resident for e in self.entries.values()) >= self.config.max_requests
        ):
            return Refused(Reason.MAX_REQUESTS)
        name, copies = str(next(self._names)), {"full_attention": (list[int](), list[int]())}
        if not self.cache.prepare_fork_request(source.handle, [name], copies):
            return Refused(Reason.CAPACITY)
        self.cache.perform_cache_copy(copies)
        state = self._state(request_id=name, initial_tokens=self._ids(source.namespace, source.tokens))
        state.position_offset = source.computed
        self.entries[child] = replace(source, reserved=source.length, handle=state)
        return Ok()


def _module(name: str) -> Any:
    return third_party(f"transformers.generation.continuous_batching.{name}", PACKAGE)
