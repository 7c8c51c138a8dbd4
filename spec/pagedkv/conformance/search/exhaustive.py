"""Every reachable state of small pools, and every transition out of it, on the real subject.

Most bugs of a block manager need few blocks and few requests. A *slice* is a small pool with a finite alphabet of
moves. Breadth-first search visits each state once up to symmetry: blocks are relabelled by first use, and requests
are interchangeable. From each state every move is made on a copy of the subject (or, if it has no `copy`, on a fresh
one after replaying the path), after relabelling the blocks at random if the subject can, under the full differential
check. The counts are printed and pinned by tests, so that a slice cannot shrink unnoticed.

A state is that of the specification: what a subject keeps beyond it, as the order of its free list, is as the first
path to the state has left it.

Which idle block is evicted under pressure is the subject's choice, and is followed as it is met: the states are those
that the subject under test reaches.
"""

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any, TypeAlias

from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.form import copying
from pagedkv.conformance.differential.violation import COPIED, Violation
from pagedkv.conformance.failures.shrinking import Excusing, Failure
from pagedkv.conformance.failures.text import Program
from pagedkv.conformance.search.slices import SLICES, Slice
from pagedkv.spec import HOLE, Block, Config, Operation, Permute, Refused, RequestId, State
from pagedkv.spec.subject import Capabilities, SubjectFactory

Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class SliceReport:
    """What was visited. `failure` is None if every transition held."""

    name: str
    states: int
    transitions: int
    refused: int
    seconds: float
    failure: Failure | None = None
    """The program that ends in a violation."""
    excused: Mapping[str, int] = field(default_factory=dict)
    """Transitions whose violation was known, and which were not followed, by what is known."""
    visited: frozenset[Key] = frozenset()
    """The states, if all were visited."""
    complete: bool = False
    """Whether that is so: no violation, nothing excused, no limit that was met."""

    @property
    def violation(self) -> Violation | None:
        return self.failure and self.failure.violation


def run(
    factory: SubjectFactory,
    part: Slice,
    *,
    seed: int = 0,
    max_states: int | None = None,
    excuse: Excusing | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SliceReport:
    """Visit a slice on a subject. `max_states` stops early (a sample, not a proof).

    Stops at the first violation that `excuse` does not know of (`known.Excuse`). Raises `Misuse` if the subject does
    not have the slice's pool.
    """
    visit = _Visit(factory, part, random.Random(seed), max_states, excuse)
    try:
        first = Differential(factory, part.config)
    except Violation as violation:
        visit.failure = Failure(part.config, (), violation)
        return visit.report()
    visit.seen.add(canonical(first.state, part.with_tokens))
    frontier = deque([first])
    while frontier and visit.failure is None:  # breadth first; a subject is let go once all its moves were made
        here = frontier.popleft()
        for move in part.moves(here.state):
            if found := visit.make(here, move):
                frontier.append(found)
            if visit.failure:
                break
        if progress:
            progress(len(visit.seen), visit.transitions)
    return visit.report()


@dataclass
class _Visit:
    """What a visit has seen so far."""

    factory: SubjectFactory
    part: Slice
    rng: random.Random
    max_states: int | None
    excuse: Excusing | None
    start: float = field(default_factory=time.perf_counter)
    seen: set[Key] = field(default_factory=set)
    transitions: int = 0
    refused: int = 0
    failure: Failure | None = None
    """The first that is not known: it ends the visit."""
    excused: Counter[str] = field(default_factory=Counter)
    limited: bool = False
    """Whether a state was left out for `max_states`."""

    def make(self, here: Differential, move: Program) -> Differential | None:
        """Make one move, and return where it leads if nobody has been there."""
        there, self.transitions = here, self.transitions + 1
        try:
            there = here.copy() or _replayed(self.factory, self.part.config, here.log)
            outcomes = [there.step(operation) for operation in (*_relabelling(here, self.rng), *move)]
        except Violation as violation:
            judged = _judged(self.factory, here, there, violation)
            failure = Failure(self.part.config, tuple(there.log), judged)
            if self.excuse is None or (known := self.excuse(failure)) is None:
                self.failure = failure
            else:
                self.excused[known] += 1
            return None
        self.refused += any(isinstance(o, tuple) and isinstance(o[0], Refused) for o in outcomes)
        key = canonical(there.state, self.part.with_tokens)
        if key in self.seen:
            return None
        self.limited |= self.max_states is not None and len(self.seen) >= self.max_states
        if self.limited:
            return None
        self.seen.add(key)
        return there

    def report(self) -> SliceReport:
        """What was visited."""
        complete = not (self.failure or self.excused or self.limited)
        return SliceReport(
            name=self.part.name, states=len(self.seen), transitions=self.transitions, refused=self.refused,
            seconds=time.perf_counter() - self.start, failure=self.failure, excused=dict(self.excused),
            visited=frozenset(self.seen if complete else ()), complete=complete,
        )  # fmt: skip


def _judged(factory: SubjectFactory, here: Differential, there: Differential, violation: Violation) -> Violation:
    """The violation, or that of `copy`: if copies break the law every time, and what never was copied does not."""
    if copying(here.subject) is None or violation.law == COPIED:
        return violation
    if any(_breaks(lambda: _replayed(factory, there.config, there.log)) for _ in range(2)):
        return violation
    if not _breaks(lambda: _continued(here, there.log[len(here.log) :])):
        return violation  # the subject does not do the same every time
    detail = f"a copy and its original are not independent: on a copy, and not on a fresh subject, {violation.law}"
    return Violation(COPIED, f"{detail}: {violation.detail}", violation.operation)


def _continued(here: Differential, operations: Sequence[Operation]) -> None:
    there = here.copy() or here
    for operation in operations:
        there.step(operation)


def _breaks(run: Callable[[], object]) -> bool:
    try:
        run()
    except Violation:
        return True
    return False


def _replayed(factory: SubjectFactory, config: Config, program: Sequence[Operation]) -> Differential:
    fresh = Differential(factory, config)
    for operation in program:
        fresh.step(operation)
    return fresh


def slices_for(capabilities: Capabilities) -> list[Slice]:
    """The slices that a subject can run, but for those that another one contains; in pools as it has them."""
    possible = {name: part for name, part in SLICES.items() if not lacks(capabilities, part)}
    return [for_subject(part, capabilities) for part in possible.values() if part.unless not in possible]


def for_subject(part: Slice, capabilities: Capabilities) -> Slice:
    """A slice whose pool publishes and deduplicates as the subject does."""
    return replace(part, config=replace(part.config, publish=capabilities.publish, dedup=capabilities.dedup))


def lacks(capabilities: Capabilities, part: Slice) -> list[str]:
    """What a slice requires and a subject does not declare."""
    return [need for need in part.requires if not getattr(capabilities, need)]


def unvisited(capabilities: Capabilities, parts: Iterable[Slice]) -> list[str]:
    """What a subject declares and none of these slices is about."""
    about = {need for part in parts for need in part.requires}
    return [name for name, value in vars(capabilities).items() if value is True and name not in about]


def canonical(state: State, with_tokens: bool) -> Key:
    """The state up to relabelling of blocks and of requests: the least of its descriptions."""
    descriptions = (_description(state, order, with_tokens) for order in permutations(state.requests))
    return min(descriptions, key=repr)  # repr orders anything


def _description(state: State, order: tuple[RequestId, ...], with_tokens: bool) -> Key:
    label: dict[Block, int] = {}

    def name(block: Block) -> int:
        return HOLE if block == HOLE else label.setdefault(block, len(label))

    requests = []
    for request in order:
        r = state.requests[request]
        table = tuple(name(b) for b in r.table)
        text = (r.namespace, r.tokens) if with_tokens else ()
        requests.append((r.length, r.reserved, r.computed, r.residency, table, text, tuple(c is None for c in r.saved)))
    for block in sorted(state.entries, key=lambda b: repr(state.entries[b])):
        name(block)
    pins = sorted((repr(k), tuple(tuple(name(b) for b in blocks) for blocks in v)) for k, v in state.pins.items())
    entries = sorted((name(b), repr(identity)) for b, identity in state.entries.items())
    held = sorted((name(b) if b in label else -2, tuple(sorted(map(str, s)))) for b, s in state.held.items())
    return (tuple(requests), tuple(entries), tuple(pins), tuple(held), tuple(state.steps))


def _relabelling(here: Differential, rng: random.Random) -> Program:
    return (Permute(rng.randrange(1 << 30)),) if here.capabilities.permute and not here.state.steps else ()
