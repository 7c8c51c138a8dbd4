"""Chapter 12. Programs: applying operations given as values, one by one or in a batch.

A step of a serving engine touches hundreds of requests. A *batch* equals its rows in order: a refused row leaves the
others to go on, and misuse in any row, judged in row order, changes nothing at all. The copies that its rows ask for
run together before its writes. That is sound, since a copied block keeps an owner, so no row can take it.

>>> from pagedkv.spec import Append, Batch, Config, State, admit, commit, fork
>>> s, _ = admit(State(Config(num_blocks=4, block_size=4)), "a", (1, 2))
>>> s, _ = commit(s, "a", 2)
>>> s, _ = fork(s, "a", "b")
>>> s, outcomes = apply(s, Batch((Append("a", (3,)), Append("b", (4,)))))
>>> [len(o.copies) for o in outcomes], s.requests["a"].table, s.requests["b"].table  # one copies, one writes in place
([1, 0], (1,), (0,))
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from pagedkv.spec.admission import admit
from pagedkv.spec.blocks import CANONICAL, Choices
from pagedkv.spec.growth import append, commit, reserve
from pagedkv.spec.operations import (
    Admit, Append, Attend, Batch, BeginStep, Commit, EndStep, Evict, Fork, Free, Lookup, Operation, Permute, Pin,
    Preempt, Reserve, ResetPrefixIndex, Resume, Row, Truncate, Unpin,
)  # fmt: skip
from pagedkv.spec.prefix import evict, lookup, pin, reset_prefix_index, unpin
from pagedkv.spec.residency import begin_step, end_step, permute, preempt, resume
from pagedkv.spec.sharing import fork, free, truncate
from pagedkv.spec.state import State, Transition, body_of, resident
from pagedkv.spec.words import Block, Misuse, Ok, Outcome, RequestId


class Run(NamedTuple):
    """The state after an operation, and one outcome a row (one, if it is no batch)."""

    state: State
    outcomes: tuple[Outcome, ...]


def attend(state: State, requests: tuple[RequestId, ...], query_lens: tuple[int, ...]) -> Transition:
    """A forward over the last positions of some requests: it reads, and changes nothing. See `attention`."""
    if len(query_lens) != len(requests):
        raise Misuse("query_lens", query_lens, f"one for each of the {len(requests)} requests")
    for request, rows in zip(requests, query_lens, strict=True):
        computed = resident(state, request).computed
        if not 0 <= rows <= computed:
            raise Misuse("query_lens", rows, f"0..{computed}, the computed positions of {request!r}")
    return Transition(state, Ok())


def permutation(seed: int, num_blocks: int) -> list[Block]:
    """The bijection that `Permute(seed)` stands for in a pool of `num_blocks`."""
    return random.Random(seed).sample(range(num_blocks), num_blocks)


def apply(state: State, operation: Operation, choices: Choices = CANONICAL) -> Run:
    """Apply one operation given as a value. Raises `Misuse`; a refusal is an outcome."""
    if isinstance(operation, Batch):
        return batch(state, operation.rows, choices)
    after, outcome = _apply_one(state, operation, choices)
    return Run(after, (outcome,))


def batch(state: State, rows: Sequence[Row], choices: Choices = CANONICAL) -> Run:
    """Rows of one kind, in order, on one copy of the state (each body checks before it changes anything)."""
    if not rows or len({type(row) for row in rows}) != 1 or not isinstance(rows[0], Row):
        raise Misuse("rows", rows, "at least one row, all append, all reserve, all commit or all free")
    draft = state.copy()
    return Run(draft, tuple(_run_row(draft, row, choices) for row in rows))


def _run_row(draft: State, row: Row, choices: Choices) -> Outcome:
    match row:
        case Append(request, tokens):
            return body_of(append)(draft, request, tokens, choices)
        case Reserve(request, length):
            return body_of(reserve)(draft, request, length, choices)
        case Commit(request, computed):
            return body_of(commit)(draft, request, computed, choices)
        case Free(request):
            return body_of(free)(draft, request)


def _apply_one(state: State, operation: Operation, choices: Choices) -> Transition:
    match operation:
        case Admit(request, tokens, namespace, reserved):
            return admit(state, request, tokens, namespace, reserved, choices)
        case Reserve(request, length):
            return reserve(state, request, length, choices)
        case Append(request, tokens):
            return append(state, request, tokens, choices)
        case Commit(request, computed):
            return commit(state, request, computed, choices)
        case Fork(parent, child):
            return fork(state, parent, child)
        case Truncate(request, length):
            return truncate(state, request, length)
        case Free(request):
            return free(state, request)
        case Preempt(request, mode):
            return preempt(state, request, mode)
        case Resume(request):
            return resume(state, request, choices)
        case Lookup(tokens, namespace):
            return lookup(state, tokens, namespace, choices)
        case Pin(tokens, namespace):
            return pin(state, tokens, namespace, choices)
        case Unpin(tokens, namespace):
            return unpin(state, tokens, namespace)
        case Evict(blocks):
            return evict(state, blocks, choices)
        case ResetPrefixIndex():
            return reset_prefix_index(state)
        case BeginStep(step):
            return begin_step(state, step)
        case EndStep(step):
            return end_step(state, step)
        case Permute(seed):
            return permute(state, permutation(seed, state.config.num_blocks))
        case Attend(requests, query_lens):
            return attend(state, requests, query_lens)
        case Batch():
            raise AssertionError("apply runs batches")
