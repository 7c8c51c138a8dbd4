"""Threads of the compiled loops: all work is done once, by as many as it is worth, whatever interrupts it."""

from collections.abc import Callable
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any, Final

import numpy as np
import pytest
import torch

from pagedkv.optimized import paged_attention
from pagedkv.optimized.cpu import backend, threads
from tests.optimized.test_cpu_backend import python
from tests.optimized.test_cpu_faults import call


class Interrupt(BaseException):
    """As Ctrl-C."""


@pytest.fixture(params=["team", "pool"])
def in_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, int], None]:
    """By torch's threads, and by ours."""
    if request.param == "pool":
        monkeypatch.setattr(threads, "openmp", lambda: None)
    elif threads.openmp() is None:
        pytest.skip("torch has no OpenMP here")
    return threads.in_threads


def test_each_is_run_once(in_threads: Callable[[Any, int], None]) -> None:
    """At least one, each in transpose, and none twice; whoever finds nothing left is not missed."""
    for count in (1, 2, 3, 7):
        ran: list[int] = []
        in_threads(lambda i, counter, ran=ran: ran.append(i), count)
        assert sorted(ran) == sorted(set(ran))
        assert 0 in ran
        assert set(ran) <= set(range(count))


def test_whoever_is_interrupted_leaves_nobody_behind(in_threads: Callable[[Any, int], None]) -> None:
    """Threads that had not begun did so after the call, on memory that was somebody else's by then."""
    begun, release, ran = Event(), Event(), []

    def run(i: int, counter: int) -> None:
        if i == 0:
            begun.wait(10)
            raise Interrupt
        ran.append("begins")
        begun.set()
        release.wait(0.2)
        ran.append("ends")

    with pytest.raises(Interrupt):
        in_threads(run, 2)
    assert ran == ["begins", "ends"]


def test_an_error_in_any_thread_is_raised(in_threads: Callable[[Any, int], None]) -> None:
    begun = Event()

    def run(i: int, counter: int) -> None:
        if i:
            begun.set()
            raise ValueError(i)
        begun.wait(10)

    with pytest.raises(ValueError, match="1"):
        in_threads(run, 2)


def test_an_interrupt_while_the_others_end_is_raised_when_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []

    def interrupted(others: Any) -> Any:
        waits.append(len(others))
        if len(waits) == 1:
            raise Interrupt
        return futures.wait(others)

    monkeypatch.setattr(threads, "wait", interrupted)
    with pytest.raises(Interrupt):
        threads.in_pool(lambda i, counter: None, 3, np.zeros(1, np.int64))
    assert len(waits) == 2


def test_what_has_not_begun_when_all_is_done_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, ran, counter = Event(), list[int](), np.zeros(1, np.int64)
    with ThreadPoolExecutor(1) as executor:
        monkeypatch.setattr(threads, "pool", lambda count: executor)
        executor.submit(busy.wait)
        threads.in_pool(lambda i, counter: ran.append(i), 4, counter)
        assert not busy.is_set()  # nobody has waited for what others have to do
        busy.set()
    assert ran == [0]
    assert counter[0] == threads.TAKEN


def test_several_run_at_once(in_threads: Callable[[Any, int], None]) -> None:
    """Two threads that wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        barrier = Barrier(2)
        in_threads(lambda i, counter: barrier.wait(60), 2)
    finally:
        torch.set_num_threads(before)


def test_a_large_call_has_all_threads_and_a_small_one_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def counted(run: threads.Run, count: int) -> None:
        counts.append(count)
        threads.in_threads(run, count)

    monkeypatch.setattr(backend, "in_threads", counted)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    paged_attention(**call(4096), backend="numba")
    paged_attention(**call(16), backend="numba")
    assert counts == [2, 2, 1, 1]


LATE: Final = """
import threading, time, torch
from pagedkv.optimized import paged_attention
torch.set_num_threads(2)
q, k = torch.zeros(4, 8, 128), torch.ones(256, 16, 8, 128)
args = q, k, k, torch.arange(256).int().repeat(4, 1), torch.full((4,), 4096, dtype=torch.int32)
def serve():
    threading.main_thread().join()
    print(paged_attention(*args, backend="numba").mean().item())
paged_attention(*args, backend="numba")
threading.Thread(target=serve).start()
"""


@pytest.mark.parametrize("team", [True, False])
def test_a_thread_that_outlives_the_main_one_is_served(team: bool) -> None:
    alone = "from pagedkv.optimized.cpu import threads\nthreads.openmp = lambda: None\n"
    done = python(LATE if team else alone + LATE)
    assert (done.stdout, done.returncode) == ("1.0\n", 0), done.stderr


SIGNALS: Final = """
import signal, sys, torch
from pagedkv.optimized import paged_attention
torch.set_num_threads(2)
q, k = torch.randn(4, 8, 64), torch.randn(64, 16, 8, 64)
def attend(first):
    tables, lengths = torch.arange(64).roll(first).int().repeat(4, 1), torch.full((4,), 1024 - first).int()
    return paged_attention(q, k, k, tables, lengths, split_size=64, backend="numba")
expected = [attend(0), attend(5)]
fired = caught = 0
def handler(*_):
    global fired
    fired += 1
    if sys.argv[-1] == "interrupts":
        raise KeyboardInterrupt
    assert torch.equal(attend(5), expected[1])
signal.signal(signal.SIGALRM, handler)
for i in range(400):
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + i % 60))
        assert torch.equal(attend(0), expected[0])
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        caught += 1
assert torch.equal(attend(0), expected[0])
assert fired > 50, fired
print("as many" if caught == fired * (sys.argv[-1] == "interrupts") else (caught, fired))
"""


@pytest.mark.parametrize("what", ["calls", "interrupts"])
def test_a_signal_changes_no_result_and_is_not_lost(what: str) -> None:
    """Its handler computes something else in the midst of a call, or raises: then the call does."""
    done = python(f"import sys\nsys.argv = ['', {what!r}]\n" + SIGNALS)
    assert done.stdout == "as many\n", done.stdout + done.stderr[-2000:]
