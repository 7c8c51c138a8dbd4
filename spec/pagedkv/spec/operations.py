"""Chapter 11. Operations as values.

An operation is a frozen dataclass, so that a program is a list: it can be generated, shrunk, written to a trace and
replayed on any implementation. The fields are the arguments of the operation of the same name.
"""

from dataclasses import dataclass
from typing import TypeAlias

from pagedkv.spec.words import Namespace, PreemptMode, RequestId, StepId, Token


@dataclass(frozen=True)
class Admit:
    request: RequestId
    tokens: tuple[Token, ...]
    namespace: Namespace = ""
    reserve: int | None = None
    """Positions to give slots to; None: the whole prompt."""


@dataclass(frozen=True)
class Reserve:
    request: RequestId
    length: int


@dataclass(frozen=True)
class Append:
    request: RequestId
    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class Commit:
    request: RequestId
    computed: int


@dataclass(frozen=True)
class Fork:
    parent: RequestId
    child: RequestId


@dataclass(frozen=True)
class Truncate:
    request: RequestId
    length: int


@dataclass(frozen=True)
class Free:
    request: RequestId


@dataclass(frozen=True)
class Preempt:
    request: RequestId
    mode: PreemptMode = "recompute"


@dataclass(frozen=True)
class Resume:
    request: RequestId


@dataclass(frozen=True)
class Lookup:
    tokens: tuple[Token, ...]
    namespace: Namespace = ""


@dataclass(frozen=True)
class Pin:
    tokens: tuple[Token, ...]
    namespace: Namespace = ""


@dataclass(frozen=True)
class Unpin:
    tokens: tuple[Token, ...]
    namespace: Namespace = ""


@dataclass(frozen=True)
class Evict:
    blocks: int


@dataclass(frozen=True)
class ResetPrefixIndex:
    pass


@dataclass(frozen=True)
class BeginStep:
    step: StepId


@dataclass(frozen=True)
class EndStep:
    step: StepId


@dataclass(frozen=True)
class Permute:
    seed: int
    """Draws the bijection; physical ids stay out of traces."""


Row: TypeAlias = Append | Reserve | Commit | Free


@dataclass(frozen=True)
class Batch:
    """Rows of one kind; the batch equals its rows in order, and a refused row leaves the others to go on."""

    rows: tuple[Row, ...]
    step: StepId | None = None
    """A label for the forward that the plan is for; it begins nothing."""


@dataclass(frozen=True)
class Attend:
    """A forward over the last `query_lens[i]` positions of `requests[i]`; it reads and changes nothing."""

    requests: tuple[RequestId, ...]
    query_lens: tuple[int, ...]


Operation: TypeAlias = (
    Admit | Reserve | Append | Commit | Fork | Truncate | Free | Preempt | Resume | Lookup | Pin | Unpin | Evict
    | ResetPrefixIndex | BeginStep | EndStep | Permute | Batch | Attend
)  # fmt: skip


def rows_of(operation: Operation) -> tuple[Operation, ...]:
    """The rows of a batch; any other operation is its own row."""
    return operation.rows if isinstance(operation, Batch) else (operation,)


def requests_of(operation: Operation) -> tuple[RequestId, ...]:
    """The requests that an operation names, each once."""
    if isinstance(operation, Batch):
        return tuple(dict.fromkeys(row.request for row in operation.rows))
    if isinstance(operation, Attend):
        return operation.requests
    names = ("parent", "child", "request")
    return tuple(dict.fromkeys(getattr(operation, name) for name in names if hasattr(operation, name)))
