"""What can never be right raises `Misuse`, which names the argument, and changes nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec import Config, Misuse

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
    "resume unknown": ("request", lambda m: m.resume("x")),
    "resume resident": ("request", lambda m: m.resume("a")),
    "lookup text": ("tokens", lambda m: m.lookup("12")),
    "pin text": ("tokens", lambda m: m.pin("12")),
    "pin unhashable namespace": ("namespace", lambda m: m.pin([1], [])),
    "unpin unpinned": ("tokens", lambda m: m.unpin([9])),
    "unpin of another namespace": ("tokens", lambda m: m.unpin([1, 2], "other")),
    "evict negative": ("blocks", lambda m: m.evict(-1)),
    "evict bool": ("blocks", lambda m: m.evict(True)),
    "begin twice": ("step", lambda m: m.begin_step("s")),
    "end unknown": ("step", lambda m: m.end_step("x")),
    "begin unhashable": ("step", lambda m: m.begin_step([])),
    "permute in flight": ("new_block", lambda m: m.permute(range(9))),
    "permute no bijection": ("new_block", lambda m: m.permute([0] * 9)),
    "permute too short": ("new_block", lambda m: m.permute([0])),
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
