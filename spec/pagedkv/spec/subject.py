"""Chapter 14. Subjects: what an implementation shows, so that it can be held against this specification.

A *subject* is an implementation under test. A `BlockManagerSubject` needs no tensors and an `AttentionSubject` needs
no allocator. A frozen `Capabilities` names what a subject has: an undeclared capability generates no test and is
listed as not tested; a declared one that saw no event fails the run. (Kernels: see `attention_subject`.)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from pagedkv.spec.operations import Row
from pagedkv.spec.words import (
    Block, Config, Identity, Misuse, Namespace, Outcome, PreemptMode, RequestId, StepId, Token,
)  # fmt: skip


@dataclass(frozen=True)
class Capabilities:
    """What a subject declares. The defaults declare the least: admit, append, commit and free, and of `Config` the
    fields num_blocks, block_size and max_requests."""

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
    """`Snapshot.index` is given. Without it hits are held to must <= cached <= may, and a subject must keep the entries
    of idle blocks that it does not take."""
    publish: Literal["commit", "schedule"] = "commit"
    dedup: bool = False
    preempt: bool = False
    """`preempt(mode="recompute")` and `resume`."""
    swap: bool = False
    sliding_window: bool = False
    sink_tokens: bool = False
    """A window may keep the positions at the beginning (attention has learned `sinks`, which are something else)."""
    overlapped_steps: bool = False
    permute: bool = False
    batch: bool = False
    policy: Literal["any", "lru"] = "any"

    def __post_init__(self) -> None:
        """Refuses what means nothing."""
        for name, values in (("publish", ("commit", "schedule")), ("policy", ("any", "lru"))):
            if (value := getattr(self, name)) not in values:
                raise Misuse(name, value, f"one of {', '.join(values)}")
        for name, value in vars(self).items():
            if name not in ("publish", "policy") and type(value) is not bool:
                raise Misuse(name, value, "True or False")
        for name, needed in (("evict", "reports_index"), ("sink_tokens", "sliding_window")):
            if getattr(self, name) and not getattr(self, needed):
                raise Misuse(name, True, f"False, unless {needed} is declared, too")


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
    """Of resident requests. `HOLE` where a window has released a block; a dead one may stand there until it is."""
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
