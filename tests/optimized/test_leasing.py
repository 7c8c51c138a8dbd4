"""Blocks on lease are nobody else's until they come back; a request that comes back has what the device has made."""

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.optimized.leasing import Leased
from pagedkv.spec import HOLE, Config, Identity, Misuse, Ok, Reason, Refused
from pagedkv.spec.subject import Lengths, Snapshot

from tests.optimized.atomic_scenarios import copied
from tests.optimized.feature_programs import AdmitApart, AdmitExternal, Featured, Invalidate, tables
from tests.optimized.lease_programs import Adopt, Answer, Lease, ReturnLease, adoption, drain, operation, run
from tests.optimized.manager_programs import CONFIGS
from tests.optimized.state_image import differences, image

SEEDS = st.integers(0, 2**32)
MORE = (AdmitApart, AdmitExternal, Invalidate)


def blocks_of(outcome: object) -> tuple[int, ...]:
    assert isinstance(outcome, Leased)
    return outcome.blocks


def in_use(seen: Snapshot) -> set[int]:
    """The blocks of requests, and those that can be found."""
    assert seen.references is not None
    assert seen.index is not None
    return {block for table in seen.tables.values() for block in table} | seen.references.keys() | seen.index.keys()


class Ledger:
    """A manager, the blocks that by its own answers are leased, and a mirror of the tables by what plans say."""

    def __init__(self, manager: Featured) -> None:
        self.manager, self.leased = manager, set[int]()
        self.mirror = np.full((64, 64), 99, np.int32)

    def step(self, op: Any) -> Answer:
        manager, before, available = self.manager, self.manager.snapshot(), self.manager.available_blocks
        whole, manager.plan = image(manager), None
        answer = run(manager, op)
        if isinstance(answer, Misuse) or (isinstance(op, Lease | Adopt) and isinstance(answer[0], Refused)):
            assert not differences(image(manager), whole)
        elif isinstance(op, Lease):
            self.has_leased(op, before, available, answer[0])
        elif isinstance(op, ReturnLease):
            assert len({*op.blocks}) == len(op.blocks)
            assert self.leased.issuperset(op.blocks)
            self.leased -= {*op.blocks}
            held = manager._state.pool.steps and len(op.blocks)
            assert manager.available_blocks == available + len(op.blocks) - (held or 0)
        elif isinstance(op, Adopt):
            self.has_adopted(op, before)
        elif type(op).__name__ == "Permute":
            self.leased = {*manager._state.pool.leased.tolist()}
        self.agrees()
        return answer

    def has_leased(self, op: Lease, before: Snapshot, available: int, answer: object) -> None:
        given = blocks_of(answer)
        assert len({*given}) == len(given) == op.blocks == available - self.manager.available_blocks
        assert before.references is not None
        assert not (self.leased | before.references.keys()) & {*given}
        self.leased |= {*given}

    def has_adopted(self, op: Adopt, before: Snapshot) -> None:
        seen, length, bs = self.manager.snapshot(), len(op.tokens), self.manager.config.block_size
        old, others = before.tables[op.request], {**before.tables, op.request: ()}
        taken = {block for i, block in enumerate(op.table) if i >= len(old) or block != old[i]} - {HOLE}
        assert taken <= self.leased
        self.leased -= taken
        assert seen.lengths[op.request] == Lengths(length, length, length, True)
        dead = self.manager._state.windows.holes(0, length)
        sinks = self.manager._state.rows.sinks[0]
        table = [HOLE if sinks <= i < sinks + dead else block for i, block in enumerate(op.table)]
        assert seen.tables == {**others, op.request: tuple(table)}
        info = self.manager._state.rows.known(self.manager._state.rows.row_of[op.request])
        first, present = before.lengths[op.request].computed // bs, {*(seen.index or {}).values()}
        for end in range(first + 1, length // bs + 1) if info.publishes else ():
            assert HOLE in op.table or Identity(info.namespace, op.tokens[: end * bs]) in present

    def agrees(self) -> None:
        manager, stats, seen = self.manager, self.manager.stats(), self.manager.snapshot()
        manager.check()
        assert not self.leased & in_use(seen)
        assert stats.leased == len(self.leased)
        assert stats.free + stats.used + stats.idle + stats.leased == manager.config.num_blocks
        assert manager.available_blocks == stats.free + stats.idle - stats.held
        assert 0 <= manager.footprint().empty_slots <= stats.used * manager.config.block_size
        if manager.plan is not None:
            self.mirror[manager.plan.update_rows, manager.plan.update_columns] = manager.plan.update_blocks
            for request, table in seen.tables.items():
                row = manager._state.rows.row_of[request]
                assert self.mirror[row, : len(table)].tolist() == list(table)


@given(CONFIGS, SEEDS)
@settings(deadline=None)
def test_leased_blocks_are_nobody_elses_until_they_come_back(config: Config, seed: int) -> None:
    rng, ledger = random.Random(seed), Ledger(Featured(config, events=seed % 2 == 0))
    for _ in range(60):
        ledger.step(operation(rng, ledger.manager, MORE))
    drain(ledger.manager)


def test_such_programs_see_everything() -> None:
    seen = set[str]()
    for seed in range(60):
        config = Config(8, 2, overlapped_steps=seed % 2 == 0, sliding_window=(None, None, 3)[seed % 3])
        rng, ledger = random.Random(seed), Ledger(Featured(config))
        for _ in range(60):
            op = operation(rng, ledger.manager, MORE)
            answer = ledger.step(op)
            if isinstance(op, Lease | ReturnLease | Adopt):
                kind = str(answer).split("=")[0] if isinstance(answer, Misuse) else str(answer[0])
                seen.add(f"{type(op).__name__} {kind.split('(')[0]} {getattr(answer, 'argument', '')}")
                seen.add("holes" if isinstance(op, Adopt) and HOLE in op.table else "")
                seen.add(str(getattr(answer[0], "reason", "")) if isinstance(answer, tuple) else "")
    assert {
        "Lease Leased ", "Lease Refused ", "ReturnLease Ok ", "ReturnLease blocks blocks", "Adopt Ok ", "holes",
        "Adopt table table", "Adopt tokens tokens", "capacity", "in_flight", "unservable",
    } <= seen  # fmt: skip


@given(CONFIGS, SEEDS)
@settings(deadline=None)
def test_a_lease_takes_what_an_admission_would(config: Config, seed: int) -> None:
    """The same blocks, entries lost in the same order, the same reasons."""
    rng, manager = random.Random(seed), Featured(config, events=True)
    for _ in range(rng.randint(0, 50)):
        run(manager, operation(rng, manager, MORE))
    twin, count = copied(manager), rng.randint(1, config.num_blocks + 1)
    admitted = twin.admit("new", [3] * (count * config.block_size), "nowhere", read_cache=False, write_cache=False)
    leased = manager.lease(count)
    if isinstance(leased, Refused):
        assert admitted in (leased, Refused(Reason.MAX_REQUESTS))
    elif admitted != Refused(Reason.MAX_REQUESTS):
        assert leased.blocks == tables(twin, "new")[0]
        assert manager.take_events() == twin.take_events()
        assert manager.snapshot().index == twin.snapshot().index


@given(CONFIGS, SEEDS)
@settings(deadline=None)
def test_who_comes_back_is_as_who_never_left(config: Config, seed: int) -> None:
    """As one that has appended the same tokens here, and computed them: what can be found, and what is available."""
    rng, manager = random.Random(seed), Featured(config)
    for _ in range(rng.randint(5, 50)):
        run(manager, operation(rng, manager, MORE))
    resident = [*manager.snapshot().tables]
    if not resident:
        return
    op, twin = adoption(rng, manager, str(rng.choice(resident))), copied(manager)
    if isinstance(run(manager, op), Misuse):
        return
    known = twin.snapshot().lengths[op.request].length
    twin.return_lease(twin._state.pool.leased)
    evicted = twin.stats().evictions
    new = op.tokens[known:]
    grown = twin.append(op.request, new) if new else twin.reserve(op.request, known)
    if not isinstance(grown, Ok) or twin.stats().evictions > evicted:
        return  # held blocks: these come back, too
    twin.commit(op.request, len(op.tokens))
    manager.return_lease(manager._state.pool.leased)
    twin.check()
    one, other = manager.snapshot(), twin.snapshot()
    assert one.lengths[op.request].computed == other.lengths[op.request].computed == len(op.tokens)
    assert one.index is not None
    assert other.index is not None
    mine, theirs = {*one.index.values()}, {*other.index.values()}
    assert mine <= theirs
    assert HOLE in op.table or mine == theirs  # what has died on the device can no longer be found
    if not manager._state.pool.steps and len(op.tokens) >= other.lengths[op.request].reserved:
        assert manager.available_blocks >= twin.available_blocks
