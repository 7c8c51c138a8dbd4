"""Every reachable state of small pools, and every transition out of it, on the real subject.

Most bugs of a block manager need few blocks and few requests. A *slice* is a small pool with a finite alphabet of
moves. Breadth-first search visits each state once up to symmetry: blocks are relabelled by first use, and requests
are interchangeable. From each state every move is made on a copy of the subject (or, if it has no `copy`, on a fresh
one after replaying the path), after relabelling the blocks at random if the subject can, under the full differential
check. The counts are printed and
pinned by tests, so that a slice cannot shrink unnoticed.

Which idle block is evicted under pressure is the subject's choice, and is followed as it is met: the states are those
that the subject under test reaches.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, TypeAlias

from pagedkv.conformance.differential.driver import Differential

from pagedkv.conformance.differential.in_time import in_time
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.shrinking import Excusing, Failure
from pagedkv.conformance.search.slices import SLICES, Slice
from pagedkv.spec import HOLE, Block, Config, Misuse, Operation, Outcome, Permute, Refused, RequestId, State
from pagedkv.spec.subject import Capabilities, SubjectFactory

Key: TypeAlias = tuple[Any, ...]
Program: TypeAlias = tuple[Operation, ...]


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

    Stops at the first violation that `excuse` does not know of (`known.Excuse`).
    """
    rng, start = random.Random(seed), time.perf_counter()
    first = Differential(factory, part.config)
    seen: set[Key] = {canonical(first.state, part.with_tokens)}
    frontier = [first]
    transitions = refused = 0
    failure, excused = None, Counter[str]()

    def report() -> SliceReport:
        visited, seconds = frozenset(() if failure else seen), time.perf_counter() - start
        return SliceReport(part.name, len(seen), transitions, refused, seconds, failure, dict(excused), visited)

    for here in frontier:  # grows while it is walked: breadth first
        for move in part.moves(here.state):
            there, transitions = here, transitions + 1
            try:
                there = here.copy() or _replayed(factory, part.config, here.log)
                outcomes = [_step(there, operation) for operation in (*_relabelling(here, rng), *move)]
            except Violation as violation:
                failure = Failure(part.config, tuple(there.log), violation)
                if excuse is None or (known := excuse(failure)) is None:
                    return report()
                failure, excused[known] = None, excused[known] + 1
                continue
            refused += any(isinstance(o, tuple) and isinstance(o[0], Refused) for o in outcomes)
            key = canonical(there.state, part.with_tokens)
            if key not in seen and (max_states is None or len(seen) < max_states):
                seen.add(key)
                frontier.append(there)
        if progress:
            progress(len(seen), transitions)
    return report()


def _replayed(factory: SubjectFactory, config: Config, program: Sequence[Operation]) -> Differential:
    fresh = Differential(factory, config)
    for operation in program:
        _step(fresh, operation)
    return fresh


def _step(differential: Differential, operation: Operation) -> tuple[Outcome, ...] | Misuse:
    with in_time(operation):
        return differential.step(operation)


def slices_for(capabilities: Capabilities, slices: Iterable[Slice] = tuple(SLICES.values())) -> Iterator[Slice]:
    """The slices that a subject can run."""
    return (part for part in slices if all(getattr(capabilities, need) for need in part.requires))


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
