"""Chapter 3. The state of a pool (layer L1).

Every block is exactly one of

* *used*: some table or pin refers to it, `references[block]` times in all;
* *idle*: nobody refers to it, but the prefix index knows what it holds, so it can be hit or else evicted;
* *free*: neither.

A block that nobody refers to may also be *held*, because steps that were in flight when it was released may still
read it: it can be hit, it cannot be handed out. What is *available* is free or idle, and not held.

A state is a value. Operations take one and return another, so "refused changes nothing" needs no argument. Inside,
an operation fills in a private copy: that is what `operation` makes of a body written as a change.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeAlias

from pagedkv.spec.words import (
    HOLE, Block, Config, Identity, Misuse, Namespace, Ok, Outcome, RequestId, StepId, Token, check_id,
)  # fmt: skip

Residency: TypeAlias = Literal["resident", "recompute", "swap"]


@dataclass(frozen=True)
class Request:
    """One request. `computed <= reserved`; the table has ceil(reserved / block_size) entries while resident."""

    namespace: Namespace
    tokens: tuple[Token, ...]
    reserved: int = 0
    """Positions that have a slot; beyond `length` they are lookahead."""
    computed: int = 0
    """Positions whose KV is written."""
    table: tuple[Block, ...] = ()
    residency: Residency = "resident"
    """"recompute" and "swap" say how a preempted request comes back."""
    saved: tuple[tuple[Token, ...] | None, ...] = ()
    """Swapped out: what each block of the table held; None where it had a hole."""

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def holes(self) -> int:
        """Table entries that the sliding window has released: those after the sinks."""
        return self.table.count(HOLE)


@dataclass
class State:
    """A pool and its requests. Nobody but a body run by `operation` changes one."""

    config: Config
    requests: dict[RequestId, Request] = field(default_factory=dict)
    references: dict[Block, int] = field(default_factory=dict)
    """Table occurrences + pins, of the used blocks."""
    contents: dict[Block, tuple[Token, ...]] = field(default_factory=dict)
    """The tokens whose KV a used or idle block holds, by offset."""
    entries: dict[Block, Identity] = field(default_factory=dict)
    """The prefix index, by block …"""
    index: dict[Identity, Block] = field(default_factory=dict)
    """… and by identity."""
    pins: dict[Identity, tuple[tuple[Block, ...], ...]] = field(default_factory=dict)
    """For each pinned prefix the blocks of each pin, the latest last."""
    steps: dict[StepId, None] = field(default_factory=dict)
    """The steps in flight, in the order in which they began."""
    held: dict[Block, frozenset[StepId]] = field(default_factory=dict)
    """For each held block the steps it waits for."""
    takings: int = 0
    """How many operations have taken or evicted blocks; with `idle_since` it bounds what a silent index may drop."""
    idle_since: dict[Block, int] = field(default_factory=dict)
    """`takings` at the release of each idle block, in the order of release: the least recently used first."""

    def copy(self) -> "State":
        draft = copy(self)
        vars(draft).update({name: dict(value) for name, value in vars(self).items() if isinstance(value, dict)})
        return draft


class Transition(NamedTuple):
    """What an operation makes of a state. `state` is the old one if it was refused."""

    state: State
    outcome: Outcome


P = ParamSpec("P")


def operation(body: Callable[Concatenate[State, P], Outcome]) -> Callable[Concatenate[State, P], Transition]:
    """Turn a change of a private copy into a function on values. A refusal or an exception drops the copy."""

    @wraps(body)
    def on_values(state: State, /, *args: P.args, **kwargs: P.kwargs) -> Transition:
        draft = state.copy()
        outcome = body(draft, *args, **kwargs)
        return Transition(draft if isinstance(outcome, Ok) else state, outcome)

    return on_values


def body_of(op: Callable[..., Transition]) -> Callable[..., Outcome]:
    """The change that `operation` was given; `batch` runs many on one copy."""
    wrapped: Any = op
    body: Callable[..., Outcome] = wrapped.__wrapped__
    return body


def resident(state: State, request: RequestId) -> Request:
    """The request, which must be known and resident."""
    check_id("request", request)
    if request not in state.requests or state.requests[request].residency != "resident":
        raise Misuse("request", request, "the id of a resident request")
    return state.requests[request]


def check_tokens(tokens: tuple[Token, ...], at_least: int = 1) -> None:
    """Tokens are non-negative 32-bit integers, and there are at least so many."""
    legal = isinstance(tokens, tuple) and all(type(token) is int and 0 <= token < 2**31 for token in tokens)
    if not legal or len(tokens) < at_least:
        raise Misuse("tokens", tokens, f"a tuple of tokens, at least {at_least}, each an integer 0..2**31-1")
