"""Calling a subject with an operation given as a value, and naming the law where it differs from the specification."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Final, NamedTuple

from pagedkv.conformance.counted import counted
from pagedkv.spec import (
    HOLE, Admit, Append, Attend, Batch, BeginStep, Block, Commit, Config, EndStep, Evict, Fork, Free, Identity, Lookup,
    Ok, Operation, Outcome, Permute, Pin, Preempt, Reason, Refused, RequestId, Reserve, ResetPrefixIndex, Resume, State,
    Truncate, Unpin, available, permutation,
)  # fmt: skip
from pagedkv.spec.misuse import shown
from pagedkv.spec.subject import BlockManagerSubject, Lengths, Snapshot


class Difference(NamedTuple):
    """The law that is broken, and how."""

    law: str
    detail: str


def subject_call(subject: BlockManagerSubject, operation: Operation, config: Config) -> tuple[Outcome, ...]:
    """Run an operation on a subject: one outcome a row."""
    if isinstance(operation, Batch):
        outcomes = subject.batch(operation.rows)
        return tuple(outcomes) if isinstance(outcomes, Iterable) else outcomes  # what is no sequence is told as such
    return (_call_one(subject, operation, config),)


def _call_one(subject: BlockManagerSubject, operation: Operation, config: Config) -> Outcome:
    match operation:
        case Admit(request, tokens, namespace, None):
            return subject.admit(request, tokens, namespace)
        case Admit(request, tokens, namespace, reserve):
            return subject.admit(request, tokens, namespace, reserve)
        case Reserve(request, length):
            return subject.reserve(request, length)
        case Append(request, tokens):
            return subject.append(request, tokens)
        case Commit(request, computed):
            return subject.commit(request, computed)
        case Fork(parent, child):
            return subject.fork(parent, child)
        case Truncate(request, length):
            return subject.truncate(request, length)
        case Free(request):
            return subject.free(request)
        case Preempt(request, mode):
            return subject.preempt(request, mode)
        case Resume(request):
            return subject.resume(request)
        case Lookup(tokens, namespace):
            return subject.lookup(tokens, namespace)
        case Pin(tokens, namespace):
            return subject.pin(tokens, namespace)
        case Unpin(tokens, namespace):
            return subject.unpin(tokens, namespace)
        case Evict(blocks):
            return subject.evict(blocks)
        case ResetPrefixIndex():
            return subject.reset_prefix_index()
        case BeginStep(step):
            return subject.begin_step(step)
        case EndStep(step):
            return subject.end_step(step)
        case Permute(seed):
            return subject.permute(permutation(seed, config.num_blocks))
        case Attend():
            return Ok()
        case Batch():
            raise AssertionError("subject_call runs batches")


MOST_SHARED: Final = 8
"""Blocks that are told: to write into one of them takes another block."""


def outcome_difference(ours: Outcome, theirs: Outcome) -> Difference | None:
    """Where the subject's answer is not the specification's; which swap block is used is free."""
    match ours, theirs:
        case Refused(reason), Ok():
            scarce = reason in (Reason.CAPACITY, Reason.IN_FLIGHT)
            law = "refusal is required when need > available" if scarce else f"refusal is required: {reason}"
            return Difference(law, f"expected refused: {reason}, answered {_shown(theirs)}")
        case Ok(), Refused(reason):
            law = "refusal is forbidden when need <= available"
            return Difference(law, f"expected {_shown(ours)}, answered refused: {reason}")
        case Refused(reason), Refused(other):
            return None if reason == other else Difference("the reason of a refusal", f"expected {reason}, was {other}")
    assert isinstance(ours, Ok)
    assert isinstance(theirs, Ok)
    for field, law in _LAWS_OF_ANSWERS.items():
        expected, answered = getattr(ours, field), getattr(theirs, field)
        if field in ("copies", "remapped"):
            expected, answered = sorted(expected), sorted(answered)
        if expected != answered:
            return Difference(law, f"{field} is {answered}, expected {expected}")
    return None


def beside(found: Difference, seen: Snapshot, before: State, after: State) -> str:
    """What else there is to see that may explain a wrong answer: blocks that are there, tables that differ."""
    if found.law.startswith("refusal"):
        told = f"; available before: {available(before)} of {counted(before.config.num_blocks, 'blocks')}"
        shared = [f"{block} ({owners} owners)" for block, owners in before.references.items() if owners > 1]
        more = f" and {len(shared) - MOST_SHARED} more" if len(shared) > MOST_SHARED else ""
        return told + (f"; shared before: {', '.join(shared[:MOST_SHARED])}{more}" if shared else "")
    known = {request: table for request, table in seen.tables.items() if request in after.requests}
    wrong = _tables(replace(seen, tables=known), after)
    return f"; {wrong.detail}" if wrong else ""


def _shown(outcome: Ok) -> str:
    """An outcome without the fields that say nothing."""
    said = {f.name: getattr(outcome, f.name) for f in fields(Ok) if getattr(outcome, f.name) != f.default}
    return f"Ok({', '.join(f'{name}={value}' for name, value in said.items())})"


_LAWS_OF_ANSWERS = {
    "cached_tokens": "hits are the longest published prefix, with one token left to compute",
    "slots": "slots are where the table puts the positions",
    "copies": "what several own is copied before it is written",
    "remapped": "deduplication replaces by the same identity",
    "evicted": "evict drops what was asked for, if there is as much",
}


def lru_difference(before: State, after: State, operation: Operation) -> Difference | None:
    """With the policy "lru": what was idle for longer than an evicted block is evicted too.

    Unless it was hit just now, is held, or is an ancestor of a block that was evicted or is still idle: children may
    go before their parents.
    """
    if isinstance(operation, Permute | ResetPrefixIndex):
        return None
    evicted = [block for block in before.idle_since if after.entries.get(block) != before.entries[block]]
    if not evicted:
        return None
    last = list(before.idle_since).index(evicted[-1])
    below = [before.entries[b] for b in evicted] + [after.entries[b] for b in after.idle_since]
    for block in list(before.idle_since)[:last]:
        held = block in before.held and not isinstance(operation, Evict)
        if block in after.idle_since and block not in evicted and not held:
            identity = before.entries[block]
            if not any(_extends(other, identity) for other in below):
                return Difference("lru: the longest idle is evicted first", f"{identity} was spared for {evicted}")
    return None


def _extends(longer: Identity, shorter: Identity) -> bool:
    size = len(shorter.tokens)
    return len(longer.tokens) > size and (longer.namespace, longer.tokens[:size]) == (shorter.namespace, shorter.tokens)


def differences(seen: Snapshot, state: State, asked: Sequence[RequestId] | None) -> Difference | None:
    """Where what is seen of the subject is not the state; `asked`: the requests that it was asked for, None: all."""
    return _requests(seen, state, asked) or _tables(seen, state) or _pool(seen, state)


def _requests(seen: Snapshot, state: State, asked: Sequence[RequestId] | None) -> Difference | None:
    due = set(state.requests) if asked is None else {request for request in asked if request in state.requests}
    if set(seen.lengths) != due:
        return Difference("frame: the known requests", f"{sorted(map(repr, set(seen.lengths) ^ due))}")
    for request, lengths in seen.lengths.items():
        r = state.requests[request]
        expected = Lengths(r.length, r.reserved, r.computed, r.residency == "resident")
        if lengths != expected:
            return Difference("lengths", f"{request!r} has {lengths}, expected {expected}")
        if expected.resident != (request in seen.tables):
            return Difference("resident requests have a table", f"{request!r}: {expected}")
    return None


def _tables(seen: Snapshot, state: State) -> Difference | None:
    for request, table in seen.tables.items():
        expected = state.requests[request].table
        if table == expected:
            continue
        if len(table) != len(expected):
            return Difference("table length is ceil(reserved / block_size)", _table(request, table, expected))
        for block, ours in zip(table, expected, strict=True):
            late = ours == HOLE and 0 <= block < state.config.num_blocks  # dead, and released when the subject likes
            if block != ours and not late:
                return Difference("tables keep their blocks, in order", _table(request, table, expected))
    return None


def _table(request: RequestId, table: tuple[int, ...], expected: tuple[int, ...]) -> str:
    return f"the table of {request!r} is {list(table)}, expected {list(expected)}"


def _pool(seen: Snapshot, state: State) -> Difference | None:
    if seen.available_blocks != available(state):
        blocks = counted(seen.available_blocks, "blocks")
        return Difference("counts add up", f"{blocks} available, expected {available(state)}")
    if seen.references is not None and (references := _without_late(seen, state)) != state.references:
        return Difference("references = table occurrences + pins", f"{references} is not {state.references}")
    if seen.index is not None and dict(seen.index) != state.entries:
        wrong = {b: i for b, i in seen.index.items() if state.entries.get(b) != i}
        return Difference(
            "entries name what their block holds, once it is computed", f"unexpected entries {shown(wrong)}"
        )
    return None


def _without_late(seen: Snapshot, state: State) -> dict[Block, int]:
    """The references that are shown, less those of dead table entries that the subject has not released yet."""
    references = dict(seen.references or {})
    for request, table in seen.tables.items():
        for block, ours in zip(table, state.requests[request].table, strict=True):
            if ours == HOLE != block and block in references:
                references[block] -= 1
    return {block: count for block, count in references.items() if count}
