"""Chapter 10. Residency and steps: preempt, resume, begin_step, end_step, permute.

When blocks run out a request can lose residency and keep its tokens (paper §4.5). *Recompute* forgets the KV, and the
request comes back like a new prompt, hits included. *Swap* saves its blocks, in bounded space, and brings private
copies back byte for byte. A step is one forward of the model. Where the next step is planned while one is in flight
(`overlapped_steps`), what is released meanwhile is *held*: it may be hit, and is not handed out until every step begun
before the release has ended. append, fork and truncate are legal in flight; a swap-out reads its blocks after the steps
in flight that write them. Without overlapped steps execution is stream-ordered and nothing is held.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from pagedkv.spec.admission import enter
from pagedkv.spec.blocks import CANONICAL, Choices, refusal, take
from pagedkv.spec.sharing import drop_table
from pagedkv.spec.state import Request, State, operation, resident
from pagedkv.spec.words import (
    HOLE, Block, Misuse, Ok, Outcome, PreemptMode, Reason, Refused, RequestId, StepId, check_id,
)  # fmt: skip

T = TypeVar("T")


@operation
def preempt(state: State, request: RequestId, mode: PreemptMode = "recompute") -> Outcome:
    """The request loses its blocks. With "swap" each is saved first: refused if the swap space does not suffice."""
    r = resident(state, request)
    if mode not in ("recompute", "swap"):
        raise Misuse("mode", mode, "'recompute' or 'swap'")
    gone = replace(r, table=(), reserved=0, computed=0, residency="recompute")
    if mode == "swap":
        saved = tuple(None if block == HOLE else state.contents[block] for block in r.table)
        if len(r.table) - r.holes > state.config.swap_blocks - swap_in_use(state):
            return Refused(Reason.SWAP_SPACE)
        gone = replace(r, table=(), residency="swap", saved=saved)
    drop_table(state, request)
    state.requests[request] = gone
    return Ok()


@operation
def resume(state: State, request: RequestId, choices: Choices = CANONICAL) -> Outcome:
    """A preempted request comes back: by recomputation as `admit` would let it in, or from swap as it was.

    What comes from swap is private: it uses no hits, and its blocks are not indexed again. Recomputation asks for the
    whole length at once, window or not: a text that outgrew the pool behind its window comes back only from swap.
    """
    check_id("request", request)
    if request not in state.requests or state.requests[request].residency == "resident":
        raise Misuse("request", request, "the id of a preempted request")
    r = state.requests[request]
    if r.residency == "recompute":
        return enter(state, request, r, r.length, choices)
    live = [i for i, content in enumerate(r.saved) if content is not None]
    if refused := refusal(state, need=len(live), total=len(live), entering=True):
        return refused
    table = tuple(HOLE if i not in live else take(state, request, i, choices) for i in range(len(r.saved)))
    for i in live:
        state.contents[table[i]] = r.saved[i] or ()
    state.takings += bool(live)
    state.requests[request] = replace(r, table=table, residency="resident", saved=())
    return Ok()


def swap_in_use(state: State) -> int:
    """Blocks of swap space taken."""
    return sum(content is not None for r in state.requests.values() for content in r.saved)


@operation
def begin_step(state: State, step: StepId) -> Outcome:
    """A forward is launched. Any block released before it ends is held for it, also one first taken meanwhile: what a
    forward reads is not asked."""
    check_id("step", step)
    if not state.config.overlapped_steps:
        raise Misuse("step", step, "no step at all: execution is stream-ordered unless overlapped_steps is set")
    if step in state.steps:
        raise Misuse("step", step, "a step that is not in flight")
    state.steps[step] = None
    return Ok()


@operation
def end_step(state: State, step: StepId) -> Outcome:
    """The forward has ended. Blocks that waited only for it are available.

    >>> from pagedkv.spec import Config, admit, free
    >>> s, _ = admit(State(Config(num_blocks=1, block_size=4, overlapped_steps=True)), "a", (1, 2))
    >>> s, _ = begin_step(s, "s1")
    >>> s, _ = free(s, "a")
    >>> admit(s, "b", (3,)).outcome  # the block is free, but s1 may still read it
    Refused(reason=<Reason.IN_FLIGHT: 'in_flight'>)
    >>> s, _ = end_step(s, "s1")
    >>> admit(s, "b", (3,)).outcome
    Ok(cached_tokens=0, slots=(), copies=(), remapped=(), swapped=(), evicted=0)
    """
    check_id("step", step)
    if step not in state.steps:
        raise Misuse("step", step, "a step in flight")
    del state.steps[step]
    waiting = {block: steps - {step} for block, steps in state.held.items()}
    state.held = {block: steps for block, steps in waiting.items() if steps}
    return Ok()


@operation
def permute(state: State, new_block: Sequence[Block]) -> Outcome:
    """Relabel the blocks: what block b held, block new_block[b] holds. Nothing that can be observed changes."""
    legal = isinstance(new_block, Sequence) and all(type(block) is int for block in new_block)
    if not legal or sorted(new_block) != list(range(state.config.num_blocks)):
        raise Misuse("new_block", new_block, f"a permutation of 0..{state.config.num_blocks - 1}")
    if state.steps:
        raise Misuse("new_block", new_block, f"no permutation while steps {list(state.steps)} are in flight")

    def moved(by_block: dict[Block, T]) -> dict[Block, T]:
        return {new_block[block]: value for block, value in by_block.items()}

    def row(r: Request) -> Request:
        return replace(r, table=tuple(HOLE if block == HOLE else new_block[block] for block in r.table))

    state.requests = {request: row(r) for request, r in state.requests.items()}
    state.references, state.contents = moved(state.references), moved(state.contents)
    state.entries, state.idle_since = moved(state.entries), moved(state.idle_since)
    state.index = {identity: block for block, identity in state.entries.items()}
    state.pins = {k: tuple(tuple(new_block[b] for b in blocks) for blocks in v) for k, v in state.pins.items()}
    return Ok()
