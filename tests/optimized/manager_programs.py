"""Random programs for the block manager: mostly valid, small alphabets, a pool that is nearly always short."""

import random
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from hypothesis import strategies as st
from pagedkv.conformance.differential.compare import subject_call
from pagedkv.optimized.loops.memory import RESIDENT
from pagedkv.optimized.rows import RECOMPUTE, SWAPPED
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec import (
    Admit, Append, Batch, BeginStep, Commit, Config, EndStep, Evict, Fork, Free, Lookup, Operation, Permute, Pin,
    Identity, Misuse, Outcome, Preempt, Refused, Reserve, ResetPrefixIndex, Resume, State, Truncate, Unpin,
)  # fmt: skip
from pagedkv.spec.operations import Row
from pagedkv.spec.state import Request, Residency

CONFIGS = st.builds(
    Config,
    num_blocks=st.integers(1, 9),
    block_size=st.integers(1, 4),
    prefix_cache=st.sampled_from([True, True, True, False]),
    sliding_window=st.sampled_from([None, None, 1, 3, 6]),
    sink_tokens=st.sampled_from([0, 0, 1, 5]),
    max_rollback=st.integers(0, 2),
    swap_blocks=st.integers(0, 5),
    max_requests=st.sampled_from([None, None, 2, 4]),
    overlapped_steps=st.booleans(),
)
NAMES = ("a", "b", "c", "d", "e")
Rng: TypeAlias = random.Random


def _tokens(rng: Rng, most: int) -> tuple[int, ...]:
    count = rng.randint(1, most)
    return tuple(rng.choices((0, 1), (9, 1), k=count))


def _id(rng: Rng, state: State, residency: str = "resident") -> str:
    """Nearly always a request for which the operation is no misuse."""
    fit = [str(name) for name, r in state.requests.items() if residency in (r.residency, "any")]
    if residency == "preempted":
        fit = [str(name) for name, r in state.requests.items() if r.residency != "resident"]
    return rng.choice(fit) if fit and rng.random() < 0.97 else rng.choice(NAMES)


def row(rng: Rng, state: State, kind: int, request: str) -> Row:
    """One row that a batch may hold: 0 append, 1 reserve, 2 commit, 3 free."""
    known = state.requests.get(request)
    bs, length, reserved, computed = state.config.block_size, 1, 1, 0
    if known is not None:
        length, reserved, computed = known.length, known.reserved, known.computed
    if kind == 0:
        return Append(request, _tokens(rng, rng.choice((1, 2, 2 * bs))))
    if kind == 1:
        return Reserve(request, rng.randint(1, length + 2 * bs))
    if kind == 2:
        last = min(length, reserved)
        return Commit(request, last if rng.random() < 0.7 else rng.randint(computed, max(computed, last)))
    return Free(request)


def _admit(rng: Rng, state: State) -> Operation:
    tokens = _tokens(rng, 4 * state.config.block_size)
    reserve = rng.choice((None, None, rng.randint(0, len(tokens))))
    unknown = [name for name in NAMES if name not in state.requests] or list(NAMES)
    return Admit(rng.choice(unknown), tokens, rng.choice(("", "", "", "other")), reserve)


def _batch(rng: Rng, state: State) -> Operation:
    """All resident requests in any order, or any requests, the same perhaps twice."""
    kind = rng.choices((0, 1, 2, 3), (8, 3, 4, 1))[0]
    names = [str(name) for name, r in state.requests.items() if r.residency == "resident"]
    if kind == 3 or not names or rng.random() < 0.3:
        names = [_id(rng, state) for _ in range(rng.randint(1, 3))]
    return Batch(tuple(row(rng, state, kind, name) for name in rng.sample(names, len(names))))


def _truncate(rng: Rng, state: State) -> Operation:
    request = _id(rng, state)
    length = state.requests[request].length if request in state.requests else 1
    return Truncate(request, rng.randint(max(1, length - 5), length))


def _pin(rng: Rng, state: State) -> Operation:
    prefix = _tokens(rng, 4 * state.config.block_size)
    return rng.choice((Lookup(prefix), Pin(prefix), Pin(prefix[:1])))


def _unpin(rng: Rng, state: State) -> Operation:
    pinned = [(p.tokens, p.namespace) for p in state.pins] or [((0,), "")]
    return Unpin(*rng.choice(pinned))


def _fork(rng: Rng, state: State) -> Operation:
    ready = [str(name) for name, r in state.requests.items() if r.table and r.computed == r.length]
    parent = rng.choice(ready) if ready else _id(rng, state)
    unknown = [name for name in NAMES if name not in state.requests]
    return Fork(parent, rng.choice(unknown or NAMES))


def _step(rng: Rng, state: State) -> Operation:
    if not state.config.overlapped_steps and rng.random() < 0.9:
        return _admit(rng, state)
    name = f"s{rng.randint(0, 3)}"
    return EndStep(name) if name in state.steps else BeginStep(name)


_KINDS: tuple[tuple[int, Callable[[Rng, State], Operation]], ...] = (
    (6, _admit),
    (6, lambda rng, state: row(rng, state, 0, _id(rng, state))),
    (3, lambda rng, state: row(rng, state, 1, _id(rng, state))),
    (8, lambda rng, state: row(rng, state, 2, _id(rng, state))),
    (2, lambda rng, state: row(rng, state, 3, _id(rng, state, "any"))),
    (8, _batch),
    (4, _fork),
    (5, _truncate),
    (2, lambda rng, state: Preempt(_id(rng, state), rng.choice(("recompute", "swap", "swap")))),
    (4, lambda rng, state: Resume(_id(rng, state, "preempted"))),
    (2, _pin),
    (1, _unpin),
    (1, lambda rng, state: Evict(rng.randint(0, 3))),
    (1, lambda rng, state: ResetPrefixIndex() if rng.random() < 0.3 else Evict(1)),
    (4, _step),
    (1, lambda rng, state: Permute(rng.randint(0, 99))),
)


def operation(rng: Rng, state: State) -> Operation:
    """One operation, chosen with the state in view so that most are carried out, or refused; few are misuse."""
    weights = [weight for weight, _ in _KINDS]
    op = rng.choices([make for _, make in _KINDS], weights)[0](rng, state)
    named = getattr(op, "request", getattr(op, "parent", None))
    known = state.requests.get(named)
    fits = known is not None and (known.residency != "resident") == isinstance(op, Resume)
    ready = not isinstance(op, Fork) or (known is not None and known.computed == known.length)
    if isinstance(op, Admit | Free) or named is None or (fits and ready) or rng.random() < 0.1:
        return op
    return _admit(rng, state) if len(state.requests) < len(NAMES) else row(rng, state, 2, _id(rng, state))


RESIDENCY: dict[int, Residency] = {RESIDENT: "resident", RECOMPUTE: "recompute", SWAPPED: "swap"}


def view(subject: OptimizedSubject) -> State:
    """As much of a manager as `operation` looks at, in the words of the specification."""
    state, rows = State(subject.config), subject._state.rows
    for name, row in rows.row_of.items():
        state.requests[name] = Request(
            rows.known(row).namespace,
            tuple(rows.tokens[row, : rows.length[row]].tolist()),
            int(rows.reserved[row]),
            int(rows.computed[row]),
            tuple(rows.tables[0, row, : rows.blocks[row]].tolist()) if rows.state[row] == RESIDENT else (),
            RESIDENCY[int(rows.state[row])],
        )
    for namespace, data in subject._state.pins:
        state.pins[Identity(namespace, tuple(np.frombuffer(data, np.int32).tolist()))] = ()
    state.steps = dict.fromkeys(subject._state.pool.steps)
    return state


def run(subject: OptimizedSubject, op: Operation) -> tuple[Outcome, ...] | Misuse:
    """Carry an operation out: one outcome a row, or the misuse that was raised."""
    try:
        return subject_call(subject, op, subject.config)
    except Misuse as misuse:
        return misuse


def canonical(subject: OptimizedSubject) -> object:
    """Everything that can be seen, with blocks named by where they are used: equal if only placement differs."""
    seen = subject.observe()
    assert seen.index is not None
    assert seen.references is not None
    names: dict[int, int] = {-1: -1}
    for request in sorted(seen.tables, key=str):
        for block in seen.tables[request]:
            names.setdefault(block, len(names))
    tables = {request: tuple(names[block] for block in table) for request, table in seen.tables.items()}
    entries = {identity: names.get(block) for block, identity in seen.index.items()}
    references = {names.get(block, "pinned"): count for block, count in seen.references.items()}
    return tables, seen.lengths, seen.available_blocks, entries, references, subject.stats()


def answer(outcome: Outcome) -> object:
    """An outcome without the places of blocks."""
    if isinstance(outcome, Refused):
        return outcome
    return outcome.cached_tokens, len(outcome.slots), len(outcome.copies), len(outcome.swapped), outcome.evicted
