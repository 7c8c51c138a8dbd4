"""Chapter 14. Subjects: what an implementation shows, so that it can be held against this specification.

A *subject* is an implementation under test. A `BlockManagerSubject` needs no tensors and an `AttentionSubject` needs
no allocator. A frozen `Capabilities` names what a subject has: an undeclared capability generates no test and is
listed as not exercised; a declared one that saw no event fails the run.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from pagedkv.spec.operations import Row
from pagedkv.spec.words import (
    Block, Config, Identity, Namespace, Outcome, PreemptMode, RequestId, StepId, Token,
)  # fmt: skip


@dataclass(frozen=True)
class Capabilities:
    """What a subject declares. The defaults declare the least: admit, append, commit and free."""

    fork: bool = False
    truncate: bool = False
    reserve: bool = False
    """Partial admission (`admit(..., reserve=n)`) and `reserve`: chunked prefill, lookahead."""
    prefix_cache: bool = False
    lookup: bool = False
    pins: bool = False
    evict: bool = False
    """`evict` and `reset_prefix_index`; needs `reports_index`, for which entries go is free."""
    reports_index: bool = False
    """`Snapshot.index` is given; without it hits are held to must <= cached <= may."""
    publish: Literal["commit", "schedule"] = "commit"
    dedup: bool = False
    preempt: bool = False
    """`preempt(mode="recompute")` and `resume`."""
    swap: bool = False
    sliding_window: bool = False
    overlapped_steps: bool = False
    permute: bool = False
    batch: bool = False
    policy: Literal["any", "lru"] = "any"


@dataclass(frozen=True)
class Lengths:
    """`computed <= reserved`, both 0 while a request is preempted for recomputation."""

    length: int
    reserved: int
    computed: int
    resident: bool = True


@dataclass(frozen=True)
class Snapshot:
    """What can be seen of a subject. None: the subject cannot show it, which is weaker and no failure."""

    tables: Mapping[RequestId, tuple[Block, ...]]
    """Of resident requests; `HOLE` where a window has released a block."""
    lengths: Mapping[RequestId, Lengths]
    """Of all requests, preempted ones too."""
    available_blocks: int
    references: Mapping[Block, int] | None = None
    """Table occurrences + pins, of blocks that have any."""
    index: Mapping[Block, Identity] | None = None
    """The prefix index: the identity stored for each indexed block."""


class BlockManagerSubject(Protocol):
    """A block manager under test. Operations mean what the chapters say; misuse raises `Misuse`.

    Operations that `capabilities` does not declare are never called, and may be missing.
    """

    @property
    def capabilities(self) -> Capabilities: ...
    def admit(
        self, request: RequestId, tokens: Sequence[Token], namespace: Namespace = "", reserve: int | None = None
    ) -> Outcome: ...
    def reserve(self, request: RequestId, length: int) -> Outcome: ...
    def append(self, request: RequestId, tokens: Sequence[Token]) -> Outcome: ...
    def commit(self, request: RequestId, computed: int) -> Outcome: ...
    def fork(self, parent: RequestId, child: RequestId) -> Outcome: ...
    def truncate(self, request: RequestId, length: int) -> Outcome: ...
    def free(self, request: RequestId) -> Outcome: ...
    def preempt(self, request: RequestId, mode: PreemptMode = "recompute") -> Outcome: ...
    def resume(self, request: RequestId) -> Outcome: ...
    def lookup(self, tokens: Sequence[Token], namespace: Namespace = "") -> Outcome: ...
    def pin(self, tokens: Sequence[Token], namespace: Namespace = "") -> Outcome: ...
    def unpin(self, tokens: Sequence[Token], namespace: Namespace = "") -> Outcome: ...
    def evict(self, blocks: int) -> Outcome: ...
    def reset_prefix_index(self) -> Outcome: ...
    def begin_step(self, step: StepId) -> Outcome: ...
    def end_step(self, step: StepId) -> Outcome: ...
    def permute(self, new_block: Sequence[Block]) -> Outcome:
        """Relabel: what block `b` held, block `new_block[b]` holds."""
        ...

    def batch(self, rows: Sequence[Row]) -> Sequence[Outcome]:
        """Rows of one kind, in order. Misuse in any row changes nothing at all."""
        ...

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        """What can be seen. With `requests`: tables and lengths of those of them that are known, no references and no
        index, so that it is cheap."""
        ...


SubjectFactory: TypeAlias = Callable[[Config], BlockManagerSubject]
"""Makes a subject with an empty pool. `module:factory` on the command line names one."""


@dataclass(frozen=True)
class AttentionCapabilities:
    """What an attention implementation declares."""

    dtypes: tuple[str, ...] = ("float32",)
    """Of query, keys and values as stored: "float32", "float16", "bfloat16"."""
    causal_prefill: bool = False
    """Several query rows a request, bottom-right aligned; without it, one row (decode)."""
    non_causal: bool = False
    window: bool = False
    softcap: bool = False
    alibi: bool = False
    sinks: bool = False
    returns_lse: bool = False
    writes: bool = False
    """`write_kv` and `copy_blocks`."""
    strided: bool = False
    """Caches with any strides and a contiguous last dimension."""
    batch_invariant: bool = False
    split_invariant: bool = False
    """The bits do not depend on the split size."""


@dataclass(frozen=True)
class RoundingModel:
    """What the rounding bound must know of an implementation (`pagedkv.spec.bound`)."""

    tile: int
    """Tokens summed in one go, at the most."""
    num_tiles: int
    """Tiles and merge levels a token's weight passes through, at the most."""
    u_accumulate: float = 2.0**-24
    u_exp: float = 2.0**-22
    """Relative error of one exponential."""
    u_weights: float = 0.0
    """Rounding of the softmax weights before they meet V; 0: they stay in the accumulator's format."""
    lse_merge: bool = False
    """Partial results are merged through their log-sum-exp."""


@dataclass(frozen=True)
class Problem:
    """One launch of attention over a paged cache. Arrays are NumPy; bfloat16 travels as float32 of bfloat16 values.

    `query` (total_q, num_q_heads, head_dim); `key_cache`, `value_cache` (num_blocks, block_size, num_kv_heads,
    head_dim); `block_tables` (num_requests, max_blocks) int32; `seq_lens` (num_requests,) int32;
    `query_lens` (num_requests,) int32.
    """

    query: Any
    key_cache: Any
    value_cache: Any
    block_tables: Any
    seq_lens: Any
    query_lens: Any
    scale: float
    dtype: str = "float32"
    causal: bool = True
    window: int | None = None
    """Positions that a row sees, itself included; None: all."""
    softcap: float = 0.0
    alibi_slopes: Any = None
    """(num_q_heads,) float32 or None."""
    sinks: Any = None
    """(num_q_heads,) float32 or None."""
    split_size: int | None = None
    options: Mapping[str, Hashable] = field(default_factory=dict)


class AttentionSubject(Protocol):
    """An attention implementation under test."""

    @property
    def name(self) -> str: ...
    @property
    def capabilities(self) -> AttentionCapabilities: ...
    def rounding(self, problem: Problem) -> RoundingModel: ...
    def attend(self, problem: Problem) -> tuple[Any, Any]:
        """(output (total_q, num_q_heads, head_dim), lse (total_q, num_q_heads) float32 or None), as NumPy arrays."""
        ...

    def write_kv(self, key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any, dtype: str) -> None:
        """Write rows (num_tokens, num_kv_heads, head_dim) at their slots, in place; slots < 0 are skipped."""
        ...

    def copy_blocks(self, caches: Sequence[Any], pairs: Any, dtype: str) -> None:
        """Copy whole blocks in place, `pairs` (num_pairs, 2) of source, destination, in each cache."""
        ...
