"""An interrupt that strikes while an operation is being taken back, and calls from inside an operation.

Whatever has been left half undone is finished by whoever comes next, before anything else.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

import numpy as np
import pytest
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec import Misuse

from tests.optimized.faults import Fault, Operate, attempt, ours
from tests.optimized.state_image import differences, image

TAKING_BACK: Final = frozenset({"roll_back", "forget", "lengthen", "_resize", "_use", "_take_back", "run", "undo"})
"""Functions in which it strikes; all of them, also where another exception is being handled."""


@contextmanager
def struck(at: int) -> Iterator[list[str]]:
    """Raise `Fault` at the `at`-th line of these functions; where that was, or nothing."""
    where, count = list[str](), 0

    def within(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        if frame.f_code.co_name == "run" and sys.exc_info()[0] is not None:
            return within  # no interrupt can strike there, and a raise would leave the exception where it is
        count += event == "line"
        if count == at and not where:
            where.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            raise Fault
        return within

    def enter(frame: FrameType, event: str, arg: object) -> Any:
        return within if frame.f_code.co_name in TAKING_BACK and ours(frame.f_code) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield where
    finally:
        sys.settrace(before)


def fresh(log: int = 1000) -> BlockManager:
    """Four requests of seven tokens, of which six are computed; and a log with so many lines."""
    manager = BlockManager(32, 2, events=True, hash_seed=b"seed")
    for request in range(4):
        manager.admit(request, [request, 1, 2, 3, 4, 5, 6])
        manager.commit(request, 6)
    journal = manager._state.journal
    journal._use(journal.memory._replace(log=np.empty((log, 2), np.int64)))
    return manager


WAYS: Final[dict[str, tuple[Operate, int]]] = {
    "a misuse after a part": (lambda m: m.commit_batch([0, 1, 2, 3], [7, 7, 7, 99]), 1000),
    "a log that is full": (lambda m: m.free_batch([0, 1, 2]), 4),
    "a log that is full twice": (lambda m: m.free_batch([3, 2, 1, 0]), 1),
    "a log that is full, then a misuse": (lambda m: m.commit_batch([0, 1, 2, 3], [7, 7, 7, 99]), 2),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_was_cut_off_while_it_was_taken_back_is_taken_back(way: str) -> None:
    operate, log = WAYS[way]
    before, twin = image(fresh()), fresh()
    answer = attempt(twin, operate)
    after, strikes = image(twin), 0
    while True:
        manager = fresh(log)
        with suppress(Fault), struck(strikes + 1) as where:
            attempt(manager, operate)
        if not where:
            break
        strikes += 1
        assert not differences(image(manager), before), where
        manager.check()
        assert attempt(manager, operate) == answer, where
        assert not differences(image(manager), after), where
    assert strikes > 15


@pytest.mark.parametrize("way", WAYS)
def test_it_may_be_cut_off_again_and_again(way: str) -> None:
    """At every line of taking it back in turn, until it is done."""
    operate, log = WAYS[way]
    manager, before = fresh(log), image(fresh())
    for at in range(1, 60):
        with suppress(Fault), struck(at):
            attempt(manager, operate)
        with suppress(Fault), struck(at):
            manager.lookup([1])
    manager.lookup([1])
    if way.endswith("misuse") or way.startswith("a misuse"):
        assert not differences(image(manager), before)
    manager.check()


INSIDE: Final[dict[str, Callable[[BlockManager], object]]] = {
    "free": lambda m: m.free(1),
    "admit": lambda m: m.admit("x", [5]),
    "commit_batch": lambda m: m.commit_batch([1], [7]),
    "take_events": lambda m: m.take_events(),
    "lookup": lambda m: m.lookup([1, 2]),
    "check": lambda m: m.check(),
}


@pytest.mark.parametrize("call", INSIDE)
def test_a_call_from_inside_an_operation_is_misuse_and_changes_nothing(call: str) -> None:
    """From a hash function, or an id's own methods."""
    manager, seen = fresh(), list[Misuse]()
    manager.admit("new", [99, 98, 97, 96])
    before = image(manager)

    def callback(parent: bytes, tokens: bytes) -> bytes:
        try:
            INSIDE[call](manager)
        except Misuse as misuse:
            seen.append(misuse)
            raise
        return b"never"

    own, manager._state.paths._hash = manager._state.paths._hash, callback
    with pytest.raises(Misuse, match="one operation of a manager at a time"):
        manager.commit_batch([0, "new"], [7, 4])
    assert len(seen) == 1
    manager._state.paths._hash = own
    assert not differences(image(manager), before)
    manager.commit_batch([0, "new"], [7, 4])
    manager.check()


def test_another_manager_may_be_called_from_inside() -> None:
    other = fresh()

    class Caller:
        def __hash__(self) -> int:
            other.lookup([1])
            other.append(0, [1])
            return 1

    fresh().admit(Caller(), [1, 2])
    other.check()
