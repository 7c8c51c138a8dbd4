"""vLLM's `KVCacheManager`, driven the way vLLM's own scheduler drives it (vLLM 0.32.0, `vllm/v1/core/sched`).

One group of full-attention layers, prefix caching on, the default hash (sha256), no statistics and no events. Where
there was a choice it is the cheaper one for vLLM: one `SamplingParams` serves all requests, and the second look at
the free blocks that the scheduler makes on admission (`full_sequence_must_fit`) is left out, since whole prompts are
allocated anyway. What the scheduler and the worker do around it (block tables, slots) is not part of it.

vLLM keeps one block for itself, the null block: it gets one more than asked for.
"""

from collections.abc import Sequence
from typing import Any

import torch
from vllm.sampling_params import SamplingParams  # type: ignore[import-not-found]  # only in .venv-peer
from vllm.utils.hashing import get_hash_fn_by_name  # type: ignore[import-not-found]  # only in .venv-peer
from vllm.v1.core.kv_cache_manager import KVCacheManager  # type: ignore[import-not-found]  # only in .venv-peer
from vllm.v1.core.kv_cache_utils import (  # type: ignore[import-not-found]  # only in .venv-peer
    get_request_block_hasher,
    init_none_hash,
)
from vllm.v1.kv_cache_interface import (  # type: ignore[import-not-found]  # only in .venv-peer
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.request import Request, RequestStatus  # type: ignore[import-not-found]  # only in .venv-peer

from tests.benchmarks.peer.interface import BLOCK_SIZE, Entry, Int32

MAX_MODEL_LEN = 1 << 20

_hash = get_hash_fn_by_name("sha256")
init_none_hash(_hash)
_HASHER = get_request_block_hasher(BLOCK_SIZE, _hash)
_SAMPLING = SamplingParams(max_tokens=MAX_MODEL_LEN)


def make_manager(num_blocks: int, prefix_cache: bool = True) -> Any:
    """A `KVCacheManager` with `num_blocks` usable blocks."""
    spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=8, head_size=128, dtype=torch.bfloat16)
    config = KVCacheConfig(num_blocks + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    return KVCacheManager(
        config,
        max_model_len=MAX_MODEL_LEN,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        enable_caching=prefix_cache,
    )


def make_request(name: int, tokens: list[int], hashed: bool = True) -> Any:
    """A `Request`; its constructor computes the hashes of the full blocks."""
    return Request(str(name), tokens, _SAMPLING, None, block_hasher=_HASHER if hashed else None)


def admit(manager: Any, request: Any) -> int | None:
    """Slots for all tokens of a waiting request. How many of them were cached; `None`: not enough blocks."""
    blocks, cached, _ = manager.get_computed_blocks(request)
    if manager.allocate_slots(request, request.num_tokens - cached, cached, blocks) is None:
        return None
    request.status = RequestStatus.RUNNING
    request.num_computed_tokens = request.num_tokens
    return int(cached)


class VllmManager:
    """vLLM's manager behind the interface of the replay. A handle is the `Request`."""

    def __init__(self, num_blocks: int) -> None:
        self.manager = make_manager(num_blocks)

    @property
    def available_blocks(self) -> int:
        return int(self.manager.block_pool.get_num_free_blocks())

    def native(self, tokens: Int32) -> list[int]:
        listed: list[int] = tokens.tolist()
        return listed

    def arrive(self, name: int, prompt: list[int]) -> Any:
        return make_request(name, prompt)

    def enter(self, ticket: Any) -> Entry | None:
        return self.again(ticket, None)

    def again(self, handle: Any, token: int | None) -> Entry | None:
        cached = admit(self.manager, handle)  # a token without a slot is known to it since it was sampled
        return None if cached is None else Entry(handle, cached)

    def decode(self, handles: Sequence[Any], tokens: Int32) -> list[int]:
        allocate, refused = self.manager.allocate_slots, []
        for i, request in enumerate(handles):
            if allocate(request, 1) is None:
                refused.append(i)
            else:
                request.num_computed_tokens += 1
        return refused

    def commit(self, handles: Sequence[Any], lengths: Int32) -> None:
        """Nothing: `allocate_slots` publishes the blocks of a step when it is scheduled."""

    def sampled(self, handles: Sequence[Any], tokens: Int32) -> None:
        for request, token in zip(handles, tokens.tolist(), strict=True):
            request.append_output_token_ids(token)

    def preempt(self, handle: Any) -> None:
        self.manager.free(handle)
        handle.status = RequestStatus.PREEMPTED
        handle.num_computed_tokens = 0
        handle.num_preemptions += 1

    def leave(self, handles: Sequence[Any]) -> None:
        for request in handles:
            self.manager.free(request)
