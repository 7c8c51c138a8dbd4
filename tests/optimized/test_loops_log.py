"""A log that is full is a failure inside a loop: the operation is taken back, and tried again with a longer one.

It is the only one that can happen in compiled code, and strikes at any place where a loop writes: so every length of
the log, from one line on, is an experiment.
"""

import random
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedkv.optimized.journal import Journal
from pagedkv.optimized.loops.compiled import IS_COMPILED
from pagedkv.optimized.manager import BlockManager

from tests.optimized import feature_programs
from tests.optimized.atomic_scenarios import BATCHES, EDGES, SCALARS, SHAPES, Operate, copied, lively
from tests.optimized.faults import Fault, at_lines, attempt, damage
from tests.optimized.feature_programs import FULL, SINKS, AdmitApart, AdmitExternal, Featured, Invalidate
from tests.optimized.manager_programs import CONFIGS
from tests.optimized.state_image import answer, differences, image

LONG: Final = 2**12
FEW: Final = 1 if IS_COMPILED else 5
PRIME: Final = 11 if IS_COMPILED else 31
"""Every so many lines are enough: the code is the same, and different operations begin elsewhere."""


def with_room(manager: BlockManager, lines: int = LONG) -> BlockManager:
    """The same manager, whose log has room for so many lines."""
    journal = manager._state.journal
    journal._use(journal.memory._replace(log=np.empty((lines, 2), np.int64)))
    return manager


def short_of(manager: BlockManager) -> BlockManager:
    """A copy of a manager, with a log that is soon full."""
    return with_room(copied(manager), 2)


def resized(lines: Any, count: int) -> Any:
    return np.empty((count, lines.shape[1]), lines.dtype)


def scenarios(shape: str) -> list[tuple[str, Callable[[], BlockManager], Operate]]:
    """Every operation in every way in which it can go: from what it starts, and what it does."""
    result: list[tuple[str, Callable[[], BlockManager], Operate]] = []
    for name, prepare, operate in SCALARS + BATCHES:
        base = lively(**SHAPES[shape])
        prepare(base)
        result.append((name, partial(copied, base), operate))
    return result


EVERY: Final = scenarios("plain") + list(EDGES)


def outcome(manager: BlockManager, operate: Operate) -> tuple[object, dict[str, object]]:
    result = attempt(manager, operate)
    return result, image(manager)


@pytest.mark.parametrize("shape", SHAPES)
def test_one_line_is_as_good_as_many(shape: str) -> None:
    wrong, lengthened = [], 0
    for name, fresh, operate in scenarios(shape) + list(EDGES):
        manager = with_room(fresh(), 1)
        wrong += [name] * (outcome(manager, operate) != outcome(with_room(fresh()), operate))
        lengthened += len(manager._state.journal.memory.log) > 1
    assert not wrong
    assert lengthened > 60


def fails_anywhere(fresh: Callable[[], BlockManager], operate: Operate, first: int = 1, stride: int = 1) -> int:
    """Give the log `first` lines, `first + stride`, … until they are enough. Each time nothing may be left of what has
    been taken back, and trying again must go well. How often it was."""
    base = fresh()
    before, expected = image(base), outcome(with_room(copied(base)), operate)
    for failures, lines in enumerate(count(first, stride)):
        manager = with_room(copied(base), lines)
        if fits(manager, operate):
            assert image(manager) == expected[1]
            return failures
        assert not differences(image(manager), before)
        assert outcome(manager, operate) == expected
    raise AssertionError("it is never enough")


def fits(manager: BlockManager, operate: Operate) -> bool:
    """Whether there is room enough in the log; if there is not, it does not grow either."""
    with patch.object(Journal, "lengthen", side_effect=Fault):
        try:
            attempt(manager, operate)
        except Fault:
            return False
    return True


@pytest.mark.parametrize(("name", "fresh", "operate"), EVERY, ids=[name for name, *_ in EVERY])
def test_a_loop_can_fail_wherever_it_writes(name: str, fresh: Callable[[], BlockManager], operate: Operate) -> None:
    fails_anywhere(fresh, operate)


@pytest.mark.parametrize("shape", sorted(SHAPES.keys() - {"plain"}))
def test_and_under_any_options(shape: str) -> None:
    total = 0
    for number, (_, fresh, operate) in enumerate(scenarios(shape)):
        total += fails_anywhere(fresh, operate, 1 + number % FEW, FEW)
    assert total > 500 / FEW


def test_a_fault_before_or_after_it_was_full_leaves_no_trace() -> None:
    total, wrong = 0, list[str]()
    for number, (name, fresh, operate) in enumerate(EVERY):
        short = partial(short_of, fresh())
        failures, each = damage(short, operate, at_lines("line"), 1 + number % PRIME, PRIME)
        total += failures
        wrong += [f"{name}: {text}" for text in each]
    assert not wrong
    assert total > 500


@given(CONFIGS, st.sampled_from([{}, {"events": True}, {"groups": (FULL, SINKS)}]), st.integers(0, 2**32))
def test_a_program_with_a_short_log_goes_as_one_without(config: Any, options: dict[str, Any], seed: int) -> None:
    rng = random.Random(seed)
    manager, twin = Featured(config, **options), Featured(config, **options)
    for _ in range(30):
        op = feature_programs.operation(rng, manager, (AdmitApart, AdmitExternal, Invalidate))
        with_room(twin, rng.randint(1, 8))
        manager.plan = twin.plan = None
        assert str(feature_programs.run(manager, op)) == str(feature_programs.run(twin, op))
        assert answer(manager, manager.plan) == answer(twin, twin.plan)
        assert not differences(image(manager), image(twin))
    twin.check()


def test_what_only_reads_needs_no_log_and_leaves_no_notes() -> None:
    """An engine may ask a thousand times before it changes anything."""
    manager = with_room(lively(), 0)
    reads: list[Callable[[], object]] = [
        lambda: manager.lookup([1, 2, 3, 4, 9, 9]),
        lambda: manager.rows(["a", "b"]),
        manager.stats,
        manager.snapshot,
        manager.footprint,
        manager.check,
    ]
    for read in reads:
        read()
    before = len(manager._state.journal.notes)
    for read in reads:
        read()
    assert len(manager._state.journal.notes) == before
