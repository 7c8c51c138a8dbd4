"""What can be seen of a manager is so: needs, counters, bytes, snapshots; and what is not to be cached."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec import (
    HOLE, Admit, Append, Config, Fork, Free, Misuse, Ok, Operation, Preempt, Reason, Refused, Reserve, Resume,
)  # fmt: skip

from tests.optimized.feature_programs import (
    FULL, SINKS, WINDOW, AdmitApart, AdmitExternal, Feature, Featured, Invalidate, tables,
)  # fmt: skip
from tests.optimized.lease_programs import Leasing, operation, run
from tests.optimized.manager_programs import CONFIGS

SEEDS = st.integers(0, 2**32)
UNHASHABLE: Any = []
MORE = (AdmitApart, AdmitExternal, Invalidate)
GROUPS: Any = st.sampled_from([None, None, None, (FULL, WINDOW), (SINKS, WINDOW, FULL)])


def made(config: Config, groups: tuple[CacheGroup, ...] | None, **options: Any) -> Featured:
    return Featured(config, **options) if groups is None else Featured(config, groups=groups, **options)


@given(config=CONFIGS, groups=GROUPS, seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_what_is_needed_is_by_how_much_availability_falls(config: Config, groups: Any, seed: int) -> None:
    """Of every operation that goes through; one that needs more than there is is refused. Asking changes nothing."""
    manager, rng = made(config, groups), random.Random(seed)
    for _ in range(50):
        op = operation(rng, manager, MORE)
        asked = op if isinstance(op, Admit | Append | Reserve | Resume) else None
        before, available = manager.snapshot(), manager.available_blocks
        need = need_of(manager, asked) if asked else None
        assert manager.snapshot() == before
        answer = run(manager, op)
        assert asked is None or (need is None) == isinstance(answer, Misuse)
        if need is None or isinstance(answer, Misuse):
            continue
        if isinstance(answer[0], Ok):
            assert manager.available_blocks == available - need
        elif isinstance(answer[0], Refused) and answer[0].reason in (Reason.CAPACITY, Reason.IN_FLIGHT):
            assert need > available
        if need > available:
            assert isinstance(answer[0], Refused)


def need_of(manager: Featured, op: Operation) -> int | None:
    """None where asking is misuse."""
    try:
        return manager.blocks_needed(op)
    except Misuse:
        return None


@pytest.mark.parametrize("op", [Free("a"), Fork("a", "b"), Preempt("a")])
def test_what_takes_no_block_needs_none(op: Any) -> None:
    manager = BlockManager(8, 2)
    manager.admit("a", [1, 2])
    assert manager.blocks_needed(op) == 0


@pytest.mark.parametrize(
    "op",
    [
        Admit("a", (1,)), Admit("b", ()), Admit("b", (1,), "", 2), Append("b", (1,)), Append("a", ()), Reserve("b", 1),
        Reserve("a", 0), Resume("a"), Resume("b"), Admit("b", (1,), UNHASHABLE), Admit(UNHASHABLE, (1,)),
        Append(UNHASHABLE, (1,)),
    ],
)  # fmt: skip
def test_the_need_of_misuse_is_misuse(op: Any) -> None:
    manager = Featured(Config(8, 2))
    manager.admit("a", [1, 2])
    assert isinstance(run(manager, op), Misuse)
    with pytest.raises(Misuse):
        manager.blocks_needed(op)


@given(config=CONFIGS, groups=GROUPS, seed=SEEDS)
@settings(max_examples=80, deadline=None)
def test_statistics_are_counted_by_hand(config: Config, groups: Any, seed: int) -> None:
    """Blocks by what the snapshot says; hits and preemptions by what the operations answered; slots one by one."""
    manager, rng = made(config, groups), random.Random(seed)
    hits = resumed = preemptions = copies = 0
    for _ in range(40):
        op = operation(rng, manager, MORE)
        answer = run(manager, op)
        for one in () if isinstance(answer, Misuse) else answer:
            if isinstance(one, Ok):
                hits += one.cached_tokens if isinstance(op, Admit | AdmitApart | AdmitExternal) else 0
                resumed += one.cached_tokens if isinstance(op, Resume) else 0
                preemptions += isinstance(op, Preempt)
                copies += len(one.copies)
        seen, stats = manager.snapshot(), manager.stats()
        assert seen.references is not None
        assert seen.index is not None
        assert stats.used == len(seen.references)
        assert stats.idle == len(seen.index.keys() - seen.references.keys())
        assert stats.free + stats.used + stats.idle + stats.leased == config.num_blocks
        assert stats.free + stats.idle - stats.held == manager.available_blocks
        assert (stats.hit_tokens, stats.resumed_hit_tokens) == (hits, resumed)
        assert (stats.preemptions, stats.copy_on_writes) == (preemptions, copies)
        written = len(written_slots(manager))
        assert stats.block_utilisation == stats.used / config.num_blocks
        assert stats.slot_utilisation == pytest.approx(written / (config.num_blocks * config.block_size), rel=1e-12)
        assert manager.footprint().empty_slots == stats.used * config.block_size - written


def written_slots(manager: Featured) -> set[int]:
    """Slots of used blocks that hold KV: of positions that are computed, and of blocks that can be found."""
    seen, bs = manager.snapshot(), manager.config.block_size
    assert seen.references is not None
    assert seen.index is not None
    slots = {block * bs + i for block in seen.references.keys() & seen.index.keys() for i in range(bs)}
    for request in seen.tables:
        for table in tables(manager, request):
            positions = range(seen.lengths[request].computed)
            slots |= {table[p // bs] * bs + p % bs for p in positions if table[p // bs] != HOLE}
    return slots


def test_what_preemption_throws_away_and_finds_again_is_no_hit() -> None:
    """https://github.com/vllm-project/vllm/issues/25780: prompts by chance and preemption looked like many hits."""
    manager, rng = BlockManager(64, 4), random.Random(0)
    for request in range(12):
        manager.admit(request, [rng.randrange(10**6) for _ in range(17)])
        manager.commit(request, 17)
        manager.preempt(request, "recompute")
        assert isinstance(manager.resume(request), Ok)
    stats = manager.stats()
    assert (stats.hit_tokens, stats.resumed_hit_tokens) == (0, 12 * 16)


def test_utilisation_is_that_of_the_pool() -> None:
    """https://github.com/vllm-project/vllm/issues/20302: a usage that was wrong. Idle blocks are not in use."""
    manager = BlockManager(8, 4)
    manager.admit("a", range(6))
    assert (manager.stats().block_utilisation, manager.stats().slot_utilisation) == (2 / 8, 0.0)
    manager.commit("a", 6)
    assert (manager.stats().block_utilisation, manager.stats().slot_utilisation) == (2 / 8, 6 / 32)
    manager.fork("a", "b")
    assert (manager.stats().block_utilisation, manager.stats().slot_utilisation) == (2 / 8, 6 / 32)
    manager.free_batch(["a", "b"])
    assert (manager.stats().block_utilisation, manager.stats().slot_utilisation) == (0.0, 0.0)


def test_the_footprint_grows_with_what_it_counts() -> None:
    """Longer tables, longer prompts, more paths, and a larger pool: each in its own number, and all in the sum."""
    small = BlockManager(1000, 1)
    first = small.footprint()
    assert BlockManager(2000, 1).footprint().bookkeeping_bytes > first.bookkeeping_bytes
    small.admit("a", range(900))
    second = small.footprint()
    assert second.tables_bytes - first.tables_bytes >= 4 * 900
    assert second.tokens_bytes - first.tokens_bytes >= 4 * 900 - 4 * 256 * 16
    assert second.empty_slots == 900
    small.commit("a", 900)
    third = small.footprint()
    assert third.index_bytes - second.index_bytes >= 4 * 900
    assert third.empty_slots == 0
    plan = small.append_batch(["a"], [1])
    assert small.footprint().tables_bytes - third.tables_bytes >= plan.block_tables.nbytes
    for seen in (first, second, third):
        parts = (seen.tables_bytes, seen.tokens_bytes, seen.index_bytes, seen.bookkeeping_bytes)
        assert seen.total_bytes == sum(parts)
        assert min(parts) > 0


@given(config=CONFIGS, seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_a_snapshot_is_a_value(config: Config, seed: int) -> None:
    """Later operations do not touch it, and writing into it does not touch the manager."""
    manager, rng = made(config, None), random.Random(seed)
    kept: list[tuple[Any, str]] = []
    for _ in range(30):
        run(manager, operation(rng, manager, MORE))
        kept.append((manager.snapshot(), repr(manager.snapshot())))
    assert all(repr(seen) == text for seen, text in kept)
    last: Any = manager.snapshot()
    last.references.clear()
    last.index.clear()
    last.tables.clear()
    assert repr(manager.snapshot()) == kept[-1][1]


def test_a_snapshot_of_some_shows_them_only() -> None:
    manager = BlockManager(8, 2)
    manager.admit("a", [1, 2])
    manager.admit("b", [3])
    seen = manager.snapshot(["b", "nobody"])
    assert list(seen.tables) == list(seen.lengths) == ["b"]
    assert (seen.references, seen.index, seen.available_blocks) == (None, None, 6)


# Do not cache.


@given(config=CONFIGS, seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_who_does_not_read_finds_nothing_and_who_does_not_write_is_not_found(config: Config, seed: int) -> None:
    """For the whole life of a request, over preemption and in its forks. Each request has its own first token."""
    manager, rng = made(config, None), random.Random(seed)
    apart = {name: (rng.random() < 0.5, rng.random() < 0.5) for name in "abcde"}
    born: dict[object, str] = {}
    for _ in range(50):
        op: Feature | Leasing = operation(rng, manager)
        if isinstance(op, Admit):
            name = str(op.request)
            op = AdmitApart(name, (10 + ord(name), *op.tokens[1:]), *apart[name])
        answer = run(manager, op)
        if isinstance(answer, Misuse) or not isinstance(answer[0], Ok):
            continue
        match op:
            case AdmitApart(request):
                born[request] = request
                assert apart[request][0] or answer[0].cached_tokens == 0
            case Fork(parent, child):
                born[child] = born[parent]
            case Resume(request):
                assert apart[born[request]][0] or answer[0].cached_tokens == 0
        index = manager.snapshot().index
        assert index is not None
        written_by = {chr(identity.tokens[0] - 10) for identity in index.values() if identity.tokens[0] > 10}
        assert all(apart[name][1] for name in written_by)
