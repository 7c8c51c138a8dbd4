"""A plan as bytes is the plan; what is not the bytes of a plan is told apart before anything is made of it."""

import random
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.plan import GroupPlan, StepPlan
from pagedkv.optimized.wire import REASONS, plan_from_bytes, plan_to_bytes
from pagedkv.spec import Config, Misuse, Reason

from tests.optimized.feature_programs import FULL, SINKS, WINDOW, Featured, operation, run


def names(part: StepPlan | GroupPlan) -> list[str]:
    """What a plan, or the part of a group, consists of."""
    return [name for name in type(part).__annotations__ if not name.startswith("_")]


def changed(plan: Any, **values: object) -> Any:
    """The same but for these."""
    return type(plan)(**{name: values.get(name, getattr(plan, name)) for name in names(plan)})


def same(a: object, b: object) -> bool:
    """Equal field by field: values, shapes and dtypes."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, StepPlan | GroupPlan) and type(a) is type(b):
        return all(same(getattr(a, name), getattr(b, name)) for name in names(a))
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def some_plan() -> StepPlan:
    """Three rows, one refused, one that copies, in two groups."""
    manager = BlockManager(12, 2, groups=(FULL, WINDOW))
    manager.admit("a", [1, 2, 3])
    manager.commit("a", 3)
    manager.fork("a", "b")
    manager.admit("c", [4, 5, 6, 7])
    plan = manager.append_batch(["a", "c", "b"], [1] + [2] * 9 + [3], [1, 9, 1])
    assert len(plan.refused) == 1
    assert sum(len(group.copies) for group in plan.groups) == 2
    return plan


@given(seed=st.integers(0, 2**32), groups=st.sampled_from([(FULL,), (FULL, WINDOW), (SINKS, FULL, WINDOW)]))
@settings(max_examples=60, deadline=None)
def test_the_round_trip_is_the_plan(seed: int, groups: tuple[object, ...]) -> None:
    """Every plan of a random program, with refused rows, copies, holes and no rows at all."""
    rng = random.Random(seed)
    manager = Featured(Config(5 * len(groups), rng.randint(1, 4)), groups=groups)
    plans = [manager.append_batch([], []), manager.reserve_batch([], [])]
    for _ in range(40):
        run(manager, operation(rng, manager))
        plans += [] if manager.plan is None else [manager.plan]
    for plan in plans:
        data = plan_to_bytes(plan)
        assert same(plan_from_bytes(data), plan)
        assert plan_to_bytes(plan_from_bytes(data)) == data


def test_the_methods_of_a_plan_are_these() -> None:
    plan = some_plan()
    assert plan.to_bytes() == plan_to_bytes(plan)
    assert same(StepPlan.from_bytes(plan.to_bytes()), plan)


def test_what_is_told_apart_is_told_apart_here() -> None:
    """`same` sees a change of any number, of any shape, and of a reason."""
    plan = some_plan()
    for name in names(plan):
        value = getattr(plan, name)
        if isinstance(value, np.ndarray) and len(value):
            others: list[Any] = [value + 1, value[1:], value.astype(np.int16)]
            assert not any(same(plan, changed(plan, **{name: other})) for other in others)
    assert not same(plan, changed(plan, reasons=(Reason.PINNED,)))
    for name in names(plan.groups[0]):
        value = getattr(plan.groups[0], name)
        first = changed(plan.groups[0], **{name: value + 1})
        assert same(plan, changed(plan, groups=(first, plan.groups[1]))) == (not value.size)
    assert {"rows", "seq_lens", "slot_counts", "refused", "reasons", "update_rows", "groups"} <= set(names(plan))
    assert {"block_tables", "slot_mapping", "copies", "copy_rows"} <= set(names(plan.groups[0]))


def test_what_comes_back_is_ones_own() -> None:
    """Arrays that may be written (what takes them without a copy wants that), and that no bytes change with."""
    data = bytearray(plan_to_bytes(some_plan()))
    plan = plan_from_bytes(bytes(data))
    plan.groups[0].slot_mapping[:] = 0
    plan.rows[:] = 7
    assert same(plan_from_bytes(bytes(data)), some_plan())


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_bytes_will_do(kind: type) -> None:
    assert same(plan_from_bytes(kind(plan_to_bytes(some_plan()))), some_plan())


def test_every_truncation_and_every_addition_is_misuse() -> None:
    data = plan_to_bytes(some_plan())
    for end in range(len(data)):
        with pytest.raises(Misuse, match="data"):
            plan_from_bytes(data[:end])
    with pytest.raises(Misuse, match="data"):
        plan_from_bytes(data + b"\0")


def test_every_damaged_bit_is_misuse() -> None:
    data = plan_to_bytes(some_plan())
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises(Misuse, match="data"):
                plan_from_bytes(bytes(damaged))


@given(data=st.binary(max_size=200), counts=st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_no_other_bytes_are_a_plan(data: bytes, counts: list[int]) -> None:
    """Not even with the right header, and counts that no memory would hold."""
    body = struct.pack("<6Q", *counts) + data
    for forged in (data, plan_to_bytes(some_plan())[:8] + struct.pack("<I", zlib.crc32(body)) + body):
        with pytest.raises(Misuse, match="data"):
            plan_from_bytes(forged)


@pytest.mark.parametrize("data", [None, "PKVP", 3, [1, 2], np.zeros(3)])
def test_what_is_not_bytes_is_misuse(data: object) -> None:
    with pytest.raises(Misuse, match="data"):
        plan_from_bytes(data)  # type: ignore[arg-type]  # which is what the test is about


def test_another_version_is_named() -> None:
    data = plan_to_bytes(some_plan())
    with pytest.raises(Misuse, match="version 1; this is version 2"):
        plan_from_bytes(data[:4] + struct.pack("<I", 2) + data[8:])


def test_an_unknown_reason_is_misuse() -> None:
    data = plan_to_bytes(some_plan())
    at = 12 + 48 + 16  # after the header, the counts, and the copies of two groups
    assert data[at] == REASONS.index(some_plan().reasons[0])
    body = data[12:at] + b"\xff" + data[at + 1 :]
    with pytest.raises(Misuse, match="reasons"):
        plan_from_bytes(data[:8] + struct.pack("<I", zlib.crc32(body)) + body)


def test_every_reason_has_its_byte() -> None:
    assert set(REASONS) == set(Reason)
    assert len(REASONS) == len(Reason)
    assert REASONS.index(Reason.UNSERVABLE) == 0  # in the bytes of plans that others may hold
    assert REASONS.index(Reason.CAPACITY) == 6


def test_the_bytes_stay_what_they_are() -> None:
    """A plan made by hand, byte for byte: whoever changes the format changes the version."""
    one, none = np.array([1], np.int32), np.empty(0, np.int32)
    group = GroupPlan(np.array([[2, 3]], np.int32), np.array([4], np.int64), none.reshape(0, 2), none, none)
    plan = StepPlan(one, one + 4, np.array([1], np.int64), one - 1, (Reason.CAPACITY,), none, none, (group,))
    body = (
        struct.pack("<6QQB", 1, 1, 2, 1, 1, 0, 0, 6) + struct.pack("<iiqi", 1, 5, 1, 0) + struct.pack("<iiq", 2, 3, 4)
    )
    assert plan_to_bytes(plan) == struct.pack("<4sII", b"PKVP", 1, zlib.crc32(body)) + body
