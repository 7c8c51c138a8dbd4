"""The law: an operation happens in whole or not at all, whatever fails inside, and can then be tried again.

Compiled loops are one event, however much they do; `test_loops_uncompiled` has these tests run where each of their
lines is one, and `test_loops_log` lets compiled ones fail. Uncompiled there are so many lines that every third (where
arrays are outgrown, every seventh) has to do: operations begin at different ones, and the code is the same.
"""

import random
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.loops.compiled import IS_COMPILED
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec import Batch, Misuse, Refused

from tests.optimized import lease_programs, lease_scenarios
from tests.optimized.atomic_scenarios import (
    BATCHES, EDGES, SCALARS, SHAPES, Operate, Prepare, computed, copied, lively,
)  # fmt: skip
from tests.optimized.faults import Calls, Fault, at_lines, damage
from tests.optimized.feature_programs import AdmitApart, AdmitExternal, Featured, Invalidate
from tests.optimized.lease_scenarios import LEASES
from tests.optimized.manager_programs import CONFIGS
from tests.optimized.state_image import differences, image

OPERATIONS: Final = SCALARS + LEASES + tuple((f"batch: {name}", prepare, operate) for name, prepare, operate in BATCHES)
OUTGROWN: Final = EDGES + lease_scenarios.EDGES
SOME, FEW, BYTECODES = (1, 1, 3) if IS_COMPILED else (3, 7, 11)
PRIME: Final = 7 if IS_COMPILED else 11
"""Of other shapes every so many events are enough: the code is the same, and different operations begin elsewhere."""


def prepared(shape: str, prepare: Prepare) -> Callable[[], BlockManager]:
    """Makes managers as they are before an operation."""
    base = lively(**SHAPES[shape])
    prepare(base)
    return lambda: copied(base)


@pytest.mark.parametrize(("name", "prepare", "operate"), OPERATIONS, ids=[name for name, *_ in OPERATIONS])
def test_a_fault_at_any_line_leaves_no_trace(name: str, prepare: Prepare, operate: Operate) -> None:
    first = 1 + len(name) % SOME
    failures, wrong = damage(prepared("plain", prepare), operate, at_lines("line"), first, SOME)
    assert not wrong
    assert failures > 10 / SOME


@pytest.mark.parametrize("shape", SHAPES)
def test_nor_as_a_function_returns_under_any_options(shape: str) -> None:
    total, wrong = 0, list[str]()
    for number, (name, prepare, operate) in enumerate(OPERATIONS):
        first = 1 + number % PRIME
        failures, each = damage(prepared(shape, prepare), operate, at_lines("line", "return"), first, PRIME)
        total += failures
        wrong += [f"{name}: {text}" for text in each]
    assert not wrong
    assert total > 1000


@pytest.mark.parametrize(("name", "fresh", "operate"), OUTGROWN, ids=[name for name, *_ in OUTGROWN])
def test_nor_where_arrays_are_outgrown(name: str, fresh: Callable[[], BlockManager], operate: Operate) -> None:
    base = fresh()
    failures, wrong = damage(lambda: copied(base), operate, at_lines("line"), 1 + len(name) % FEW, FEW)
    assert not wrong
    assert failures > 20 / FEW


def test_lines_of_loops_are_reached_as_far_as_they_are_lines() -> None:
    manager, where = lively(), set[str]()
    for at in range(1, 2000, 10):
        try:
            with at_lines("line")(at, Fault()) as countdown:
                manager.append_batch(["a", "b", "c"], [1, 1, 1])
        except Fault:
            where.add(countdown.where.split(":")[0])
    assert ("blocks.py" in where) != IS_COMPILED


def test_nor_when_plans_share_buffers() -> None:
    """A copy has no buffers yet, so these managers are made from the beginning."""

    def fresh() -> BlockManager:
        manager = BlockManager(16, 2, hash_seed=b"atomic")
        for name in "cd":
            computed(manager, name, [1, 2, 3])
        for _ in range(2):
            manager.append_batch(["c", "d"], [1, 2])
        return manager

    failures, wrong = damage(fresh, lambda m: m.append_batch(["c", "d"], [1, 2]), at_lines("line"))
    assert not wrong
    assert failures > 50


@pytest.mark.parametrize("name", ["admit new namespace, evicting", "append copying", "batch: append rows alone"])
def test_nor_between_any_two_instructions(name: str) -> None:
    _, prepare, operate = next(each for each in OPERATIONS if each[0] == name)
    failures, wrong = damage(prepared("plain", prepare), operate, at_lines("opcode"), 1, BYTECODES)
    assert not wrong
    assert failures > 100


CALLS = Calls()


class Id:
    """An id of the caller's, whose comparisons may fail; all of them collide."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        CALLS.tick("__hash__")
        return 1

    def __eq__(self, other: object) -> bool:
        CALLS.tick("__eq__")
        return isinstance(other, Id) and other.name == self.name

    def __repr__(self) -> str:
        CALLS.tick("__repr__")
        return f"Id({self.name})"


A, B, C, NEW = map(Id, "abcn")
OWN_IDS: Final[dict[str, Operate]] = {
    "admit": lambda m: m.admit(NEW, [1, 2, 3, 4, 5]),
    "admit to a known namespace": lambda m: m.admit(NEW, [1, 2, 3, 4, 5], Id("space")),
    "admit to a new namespace": lambda m: m.admit(NEW, [1, 2, 3, 4, 5], Id("elsewhere")),
    "append": lambda m: m.append(A, [1]),
    "commit": lambda m: m.commit(C, 6),
    "fork": lambda m: m.fork(A, NEW),
    "free": lambda m: m.free(A),
    "free many": lambda m: m.free_batch([A, C]),
    "preempt": lambda m: m.preempt(A),
    "resume": lambda m: m.resume(B),
    "pin": lambda m: m.pin([1, 2], Id("space")),
    "unpin": lambda m: m.unpin([1, 2], Id("space")),
    "begin": lambda m: m.begin_step(Id("later")),
    "end": lambda m: m.end_step(Id("step")),
    "append many": lambda m: m.append_batch([A, C], [1, 2]),
    "commit many": lambda m: m.commit_batch([C, A], [6, 4]),
    "invalidate": lambda m: m.invalidate(A, 1),
}


@pytest.mark.parametrize("operation", OWN_IDS)
def test_nor_does_a_failing_id(operation: str) -> None:
    base = BlockManager(12, 2, hash_seed=b"atomic", overlapped_steps=True, events=True)
    computed(base, A, [1, 2, 3, 4], Id("space"))  # type: ignore[arg-type]  # any hashable is a namespace here
    computed(base, B, [1, 2, 5, 6])
    base.preempt(B)
    base.admit(C, [7, 7, 7, 7, 8, 8])
    base.pin([1, 2], Id("space"))
    base.begin_step(Id("step"))
    failures, wrong = damage(lambda: copied(base), OWN_IDS[operation], CALLS.inject)
    assert not wrong
    assert failures


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize("operation", ["admit", "commit", "commit many", "evict", "invalidate", "reset"])
def test_nor_does_a_failing_hash_function(operation: str, collide: bool) -> None:
    def hash_function(parent: bytes, tokens: bytes) -> bytes:
        CALLS.tick("hash_function")
        return b"same" if collide else parent[-8:] + tokens[-8:]

    base = BlockManager(16, 1, hash_function=hash_function, events=True)
    for token in range(4):
        computed(base, token, [9, token, 0], keep=token < 2)
    base.admit("x", [9, 7, 7])
    base.admit("y", [9, 8, 7])
    operate: dict[str, Operate] = {
        "admit": lambda m: m.admit("z", [9, 3, 0, 0]),
        "commit": lambda m: m.commit("x", 3),
        "commit many": lambda m: m.commit_batch(["x", "y"], [3, 2]),
        "evict": lambda m: m.evict(3),
        "invalidate": lambda m: m.invalidate(1, 1),
        "reset": lambda m: (m.reset_prefix_index(), m.take_events())[0],
    }
    failures, wrong = damage(lambda: copied(base), operate[operation], CALLS.inject)
    assert not wrong
    assert failures or operation in ("evict", "invalidate", "reset")  # which need no digest that is not known


FEATURES: Final = (AdmitApart, AdmitExternal, Invalidate)
GROUPS: Final = (CacheGroup(), CacheGroup(3, sink_tokens=1))


@given(CONFIGS, st.sampled_from([{}, {"events": True}, {"groups": GROUPS}]), st.integers(0, 2**32))
def test_a_program_with_faults_goes_as_one_without(config: Any, options: dict[str, Any], seed: int) -> None:
    """What refuses or is misuse leaves no trace either, nor does a fault in it."""
    rng = random.Random(seed)
    manager, twin = Featured(config, **options), Featured(config, **options)
    for _ in range(30):
        op = lease_programs.operation(rng, manager, FEATURES)
        before = image(manager)
        try:
            with at_lines("line", "return")(rng.randint(1, 1000), Fault()):
                one = lease_programs.run(manager, op)
        except Fault:
            assert not differences(image(manager), before)
            one = lease_programs.run(manager, op)
        other = lease_programs.run(twin, op)
        assert str(one) == str(other)
        refused = isinstance(one, tuple) and all(isinstance(each, Refused) for each in one)
        if isinstance(one, Misuse) or (refused and not isinstance(op, Batch)):
            assert not differences(image(manager), before)
        assert not differences(image(manager), image(twin))
    manager.check()
