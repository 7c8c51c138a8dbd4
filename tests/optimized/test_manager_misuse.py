"""What can never be right raises `Misuse`, which names the argument, and changes nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec import Append, Commit, Config, Misuse, Ok, Reserve

CALLS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "admit known": ("request", lambda m: m.admit("a", [1])),
    "admit preempted": ("request", lambda m: m.admit("p", [1])),
    "admit unhashable": ("request", lambda m: m.admit([], [1])),
    "admit nothing": ("tokens", lambda m: m.admit("n", [])),
    "admit negative token": ("tokens", lambda m: m.admit("n", [1, -1])),
    "admit bool": ("tokens", lambda m: m.admit("n", [True])),
    "admit float": ("tokens", lambda m: m.admit("n", [1.0])),
    "admit text": ("tokens", lambda m: m.admit("n", "12")),
    "admit number": ("tokens", lambda m: m.admit("n", 5)),
    "admit float array": ("tokens", lambda m: m.admit("n", np.ones(3))),
    "admit 2-D array": ("tokens", lambda m: m.admit("n", np.ones((3, 1), np.int32))),
    "admit token past int32": ("tokens", lambda m: m.admit("n", [2**31])),
    "admit token past int64": ("tokens", lambda m: m.admit("n", [2**63])),
    "admit unhashable namespace": ("namespace", lambda m: m.admit("n", [1], [])),
    "admit reserve past the end": ("reserve", lambda m: m.admit("n", [1], "", 2)),
    "admit negative reserve": ("reserve", lambda m: m.admit("n", [1], "", -1)),
    "admit reserve bool": ("reserve", lambda m: m.admit("n", [1], "", True)),
    "reserve unknown": ("request", lambda m: m.reserve("x", 3)),
    "reserve preempted": ("request", lambda m: m.reserve("p", 3)),
    "reserve nothing": ("length", lambda m: m.reserve("a", 0)),
    "reserve float": ("length", lambda m: m.reserve("a", 9.0)),
    "append unknown": ("request", lambda m: m.append("x", [1])),
    "append preempted": ("request", lambda m: m.append("p", [1])),
    "append nothing": ("tokens", lambda m: m.append("a", [])),
    "commit unknown": ("request", lambda m: m.commit("x", 1)),
    "commit backwards": ("computed", lambda m: m.commit("a", 5)),
    "commit past reserved": ("computed", lambda m: m.commit("half", 5)),
    "commit past length": ("computed", lambda m: m.commit("a", 7)),
    "fork unknown": ("parent", lambda m: m.fork("x", "n")),
    "fork preempted": ("parent", lambda m: m.fork("p", "n")),
    "fork to known": ("child", lambda m: m.fork("a", "p")),
    "fork not computed": ("parent", lambda m: m.fork("half", "n")),
    "truncate unknown": ("request", lambda m: m.truncate("x", 1)),
    "truncate to nothing": ("length", lambda m: m.truncate("a", 0)),
    "truncate past the end": ("length", lambda m: m.truncate("a", 7)),
    "free unknown": ("request", lambda m: m.free("x")),
    "preempt unknown": ("request", lambda m: m.preempt("x")),
    "preempt twice": ("request", lambda m: m.preempt("p")),
    "preempt otherwise": ("mode", lambda m: m.preempt("a", "drop")),
    "preempt by array": ("mode", lambda m: m.preempt("a", np.array([1, 2]))),
    "resume unknown": ("request", lambda m: m.resume("x")),
    "resume resident": ("request", lambda m: m.resume("a")),
    "lookup text": ("tokens", lambda m: m.lookup("12")),
    "pin text": ("tokens", lambda m: m.pin("12")),
    "pin unhashable namespace": ("namespace", lambda m: m.pin([1], [])),
    "unpin unpinned": ("tokens", lambda m: m.unpin([9])),
    "unpin of another namespace": ("tokens", lambda m: m.unpin([1, 2], "other")),
    "evict negative": ("blocks", lambda m: m.evict(-1)),
    "evict more than can be written out": ("blocks", lambda m: m.evict(-(10**5000))),
    "evict bool": ("blocks", lambda m: m.evict(True)),
    "begin twice": ("step", lambda m: m.begin_step("s")),
    "end unknown": ("step", lambda m: m.end_step("x")),
    "begin unhashable": ("step", lambda m: m.begin_step([])),
    "permute in flight": ("new_block", lambda m: m.permute(range(9))),
    "permute no bijection": ("new_block", lambda m: m.permute([0] * 9)),
    "permute too short": ("new_block", lambda m: m.permute([0])),
    "permute bool": ("new_block", lambda m: m.permute([False, True, *range(2, 9)])),
    "batch of nothing": ("rows", lambda m: m.batch([])),
    "batch no rows": ("rows", lambda m: m.batch(3)),
    "batch other rows": ("rows", lambda m: m.batch("ab")),
    "batch append nothing": ("tokens", lambda m: m.batch([Append("a", ())])),
    "batch append None": ("tokens", lambda m: m.batch([Append("a", None)])),  # type: ignore[arg-type]  # on purpose
    "batch reserve nothing": ("length", lambda m: m.batch([Reserve("a", 0)])),
    "batch reserve bool": ("length", lambda m: m.batch([Reserve("a", 9), Reserve("half", True)])),
    "batch commit bool": ("computed", lambda m: m.batch([Commit("a", 6), Commit("half", True)])),
}


@pytest.mark.parametrize("name", CALLS)
def test_misuse_names_the_argument_and_changes_nothing(name: str) -> None:
    subject = OptimizedSubject(Config(9, 4, swap_blocks=3, overlapped_steps=True))
    subject.admit("a", range(6))
    subject.commit("a", 6)
    subject.admit("half", range(20, 28), "", 4)
    subject.admit("p", [1])
    subject.preempt("p")
    subject.pin([1, 2])
    subject.begin_step("s")
    before = subject.observe(), subject.stats()
    argument, call = CALLS[name]
    with pytest.raises(Misuse) as raised:
        call(subject)
    assert raised.value.argument == argument
    assert str(raised.value).startswith(f"{argument}=")
    assert len(str(raised.value)) < 500
    assert (subject.observe(), subject.stats()) == before
    subject.check()


def test_steps_need_the_option_and_the_subject_names_what_it_lacks() -> None:
    with pytest.raises(Misuse, match="overlapped_steps"):
        BlockManager(4, 4).begin_step("s")
    with pytest.raises(Misuse, match="publish='schedule'"):
        OptimizedSubject(Config(4, 4, publish="schedule"))
    with pytest.raises(Misuse, match="dedup=True"):
        OptimizedSubject(Config(4, 4, dedup=True))
    with pytest.raises(Misuse, match="num_blocks=1073741824"):
        BlockManager(2**30, 4)
    with pytest.raises(Misuse, match="config=None"):
        OptimizedSubject(None)  # type: ignore[arg-type]  # on purpose


BAD_OPTIONS: tuple[tuple[str, object], ...] = (
    *((name, 2**31) for name in ("block_size", "sliding_window", "max_rollback", "swap_blocks", "max_requests")),
    *((name, -1) for name in ("num_blocks", "block_size", "sliding_window", "max_rollback", "swap_blocks")),
    *((name, True) for name in ("num_blocks", "block_size", "sliding_window", "max_requests")),
    ("num_blocks", 10**30),
    ("num_blocks", "8"),
    ("max_requests", 0),
    ("prefix_cache", "no"),
    ("overlapped_steps", 1),
    ("hash_seed", "s"),
    ("hash_function", 3),
)


@pytest.mark.parametrize(("option", "value"), BAD_OPTIONS)
def test_options_out_of_range_or_of_another_type_are_misuse(option: str, value: object) -> None:
    options: dict[str, Any] = {"num_blocks": 8, "block_size": 4, option: value}
    with pytest.raises(Misuse) as raised:
        BlockManager(**options)
    assert raised.value.argument == option


def test_options_may_be_numpy_integers_and_as_large_as_allowed() -> None:
    most = 2**31 - 1
    options: dict[str, Any] = {"num_blocks": np.int64(8), "block_size": np.int32(4), "max_requests": np.int64(2)}
    manager = BlockManager(**options, sliding_window=most, max_rollback=most)
    assert manager.config == Config(8, 4, sliding_window=most, max_rollback=most, max_requests=2)
    manager.admit("a", range(9))
    manager.commit("a", 9)
    manager.commit_batch(manager.rows(["a"]), manager.append_batch(["a"], [9]).seq_lens)
    manager.check()


def test_a_message_stays_short_whatever_was_passed() -> None:
    tokens = [0.5] * 1_000_000
    with pytest.raises(Misuse) as raised:
        BlockManager(8, 4).lookup(tokens)  # type: ignore[arg-type]  # on purpose
    assert len(str(raised.value)) < 500
    assert raised.value.value is tokens


class Nameless:
    """A namespace that cannot be written out."""

    def __repr__(self) -> str:
        raise RuntimeError("no name")


def test_an_admission_that_fails_to_name_its_namespace_changes_nothing() -> None:
    subject, nameless = OptimizedSubject(Config(4, 4)), Nameless()
    before = subject.observe(), subject.stats()
    with pytest.raises(RuntimeError, match="no name"):
        subject.admit("a", [1, 2, 3, 4, 5], nameless)
    assert (subject.observe(), subject.stats()) == before
    subject.check()
    assert subject.admit("a", [1] * 16) == Ok()
