"""Random programs for what only the optimized manager has: cache groups, sinks, events, do-not-cache, KV from
elsewhere. They add to the programs of `manager_programs`; one vocabulary, so that every law sees every operation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from pagedkv.conformance.differential.compare import subject_call
from pagedkv.optimized.external import Invalidated
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.plan import StepPlan
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec import (
    Append, Block, Config, Copy, Identity, Misuse, Ok, Operation, Outcome, Refused, Reserve,
)  # fmt: skip
from pagedkv.spec.operations import Row

from tests.optimized import manager_programs
from tests.optimized.manager_programs import NAMES, Rng

SEED = b"features"


@dataclass(frozen=True)
class AdmitApart:
    """admit that does not read, or not write, the cache."""

    request: str
    tokens: tuple[int, ...]
    read_cache: bool
    write_cache: bool


@dataclass(frozen=True)
class AdmitExternal:
    request: str
    tokens: tuple[int, ...]
    external: int
    reserve: int | None


@dataclass(frozen=True)
class Invalidate:
    request: str
    from_position: int


Feature: TypeAlias = Operation | AdmitApart | AdmitExternal | Invalidate
Answer: TypeAlias = tuple[Outcome | Invalidated, ...] | Misuse


class Featured(OptimizedSubject):
    """A manager with any options, whose batches work with groups, and which keeps what its last batch planned."""

    def __init__(self, config: Config, **options: Any) -> None:
        if "groups" not in options:
            options |= {"sliding_window": config.sliding_window, "sink_tokens": config.sink_tokens}
        for name in ("prefix_cache", "max_rollback", "swap_blocks", "max_requests", "overlapped_steps"):
            options[name] = getattr(config, name)
        BlockManager.__init__(self, config.num_blocks, config.block_size, hash_seed=SEED, **options)
        self.plan: StepPlan | None = None

    def batch(self, rows: Sequence[Row]) -> Sequence[Outcome]:
        self.plan = None
        if {type(row) for row in rows} == {Append}:
            appends = cast(Sequence[Append], rows)
            counts = [len(row.tokens) for row in appends]
            tokens = [token for row in appends for token in row.tokens]
            self.plan = self.append_batch([row.request for row in rows], tokens, counts)
        elif {type(row) for row in rows} == {Reserve}:
            self.plan = self.reserve_batch(
                [row.request for row in rows], [row.length for row in cast(Sequence[Reserve], rows)]
            )
        return super().batch(rows) if self.plan is None else outcomes(self.plan)


def outcomes(plan: StepPlan) -> list[Outcome]:
    """A plan row by row, as the scalar operations answer: slots and copies of one group after another."""
    refused = dict(zip(plan.refused.tolist(), plan.reasons, strict=True))
    result: list[Outcome] = []
    for i, (end, count) in enumerate(zip(np.cumsum(plan.slot_counts).tolist(), plan.slot_counts.tolist(), strict=True)):
        if i in refused:
            result.append(Refused(refused[i]))
            continue
        slots = [slot for group in plan.groups for slot in group.slot_mapping[end - count : end].tolist()]
        copies = [Copy(*c) for group in plan.groups for c in group.copies[group.copy_rows == i].tolist()]
        result.append(Ok(slots=tuple(slots), copies=tuple(copies)))
    return result


def tables(manager: BlockManager, request: object) -> tuple[tuple[Block, ...], ...]:
    """The block tables of a request, one of each group."""
    rows = manager._state.rows
    row = rows.row_of[request]
    return tuple(tuple(table[row, : rows.blocks[row]].tolist()) for table in rows.tables)


def entries(manager: BlockManager) -> dict[tuple[int, Identity], Block]:
    """What can be found: (group, identity) -> block."""
    index = manager.snapshot().index
    assert index is not None
    num_groups, entry = len(manager.groups), manager._state.index.entry
    return {(int(entry[block]) % num_groups, identity): block for block, identity in index.items()}


def forget(manager: BlockManager, blocks: Iterable[Block]) -> None:
    """Drop the entries of just these blocks, as if each had been evicted."""
    manager._state.journal.begin()
    manager._state.pool.drop_entries(np.array([*blocks], np.int64))
    manager._state.journal.open = False
    manager.check()


def operation(rng: Rng, manager: OptimizedSubject, more: tuple[type, ...] = ()) -> Feature:
    """One operation; now and then one of these features."""
    state = manager_programs.view(manager)
    unknown = [name for name in NAMES if name not in state.requests]
    tokens = tuple(rng.choices((0, 1), (9, 1), k=rng.randint(1, 4 * state.config.block_size)))
    kind = rng.choice(more) if more and rng.random() < 0.25 else None
    if kind is AdmitApart and unknown:
        return AdmitApart(rng.choice(unknown), tokens, rng.random() < 0.5, rng.random() < 0.5)
    if kind is AdmitExternal and unknown:
        external = rng.randint(0, len(tokens))
        return AdmitExternal(rng.choice(unknown), tokens, external, rng.choice((None, external)))
    resident = [str(name) for name, request in state.requests.items() if request.residency == "resident"]
    if kind is Invalidate and resident:
        name = rng.choice(resident)
        return Invalidate(name, rng.randint(0, state.requests[name].length))
    return manager_programs.operation(rng, state)


def run(manager: OptimizedSubject, op: Feature) -> Answer:
    """Carry an operation out: one answer a row, or the misuse that was raised."""
    try:
        match op:
            case AdmitApart(request, tokens, reads, writes):
                return (manager.admit(request, tokens, read_cache=reads, write_cache=writes),)
            case AdmitExternal(request, tokens, external, reserve):
                return (manager.admit_external(request, tokens, external, reserve=reserve),)
            case Invalidate(request, position):
                return (manager.invalidate(request, position),)
            case _:
                return subject_call(manager, op, manager.config)
    except Misuse as misuse:
        return misuse


def drain(manager: BlockManager) -> None:
    """Everybody goes; then every block is available, and holds a request that needs them all."""
    for step in list(manager._state.pool.steps):
        manager.end_step(step)
    for request in list(manager._state.rows.row_of):
        manager.free(request)
    for (namespace, data), stack in list(manager._state.pins.items()):
        for _ in stack:
            manager.unpin(np.frombuffer(data, np.int32), namespace)
    manager.check()
    config = manager.config
    assert manager.available_blocks == config.num_blocks
    positions = config.num_blocks // len(manager.groups) * config.block_size
    if positions:
        assert isinstance(manager.admit("all", [7] * positions), Ok)
        manager.free("all")


FULL, WINDOW, SHORT, SINKS = CacheGroup(), CacheGroup(4), CacheGroup(1), CacheGroup(3, sink_tokens=2)
