"""The limit in this process: whom it interrupts, whom it tells, and that nothing of it is left."""

import gc
import signal
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pagedkv.conformance.differential import in_time as module
from pagedkv.conformance.differential.in_time import ALLOWED, IN_TIME, SILENT, attempting, in_time
from pagedkv.conformance.differential.violation import Violation
from pagedkv.spec import Append, Free

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="only a POSIX system can interrupt what hangs")


def spins() -> None:
    while True:
        pass


def catches_the_first() -> None:
    with suppress(BaseException):
        spins()
    spins()


def catches_it_and_answers() -> None:
    with suppress(BaseException):
        spins()


def makes_it_its_own() -> None:
    try:
        spins()
    except BaseException:
        raise KeyError("mine") from None


HANGS = [spins, catches_the_first, catches_it_and_answers, makes_it_its_own]


@pytest.mark.parametrize("hangs", HANGS)
def test_what_computes_for_ever_is_interrupted_whatever_it_catches(hangs: Callable[[], None]) -> None:
    with pytest.raises(Violation, match=r"no answer after 0\.02 s of computing") as violation, in_time(Free("a"), 0.02):
        hangs()
    assert (violation.value.law, violation.value.operation) == (IN_TIME, Free("a"))


def test_what_sleeps_is_not_interrupted() -> None:
    with in_time(None, 0.01):
        time.sleep(0.05)


@pytest.fixture
def theirs() -> Iterator[Callable[..., None]]:
    """Somebody else's handler of the signal, who had it before."""

    def handler(*_: object) -> None:
        raise AssertionError("this signal is ours")

    before = signal.signal(signal.SIGVTALRM, handler)
    yield handler
    signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("does", [*HANGS, lambda: None, lambda: 1 / 0])
def test_whatever_happens_the_signal_is_theirs_again(does: Callable[[], object], theirs: Callable[..., None]) -> None:
    with suppress(Violation, ZeroDivisionError), in_time(None, 0.01):
        does()
    assert signal.getsignal(signal.SIGVTALRM) is theirs
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_signal_at_the_very_end_interrupts_nothing(
    monkeypatch: pytest.MonkeyPatch, theirs: Callable[..., None]
) -> None:
    """Where it would be raised outside of what is limited, and leave the signal to nobody."""
    setitimer = signal.setitimer

    def late(which: int, seconds: float, interval: float = 0.0) -> Any:
        if seconds == 0.0:
            monkeypatch.setattr(time, "thread_time", lambda: float("inf"))
            signal.raise_signal(signal.SIGVTALRM)
        return setitimer(which, seconds, interval)

    monkeypatch.setattr(signal, "setitimer", late)
    with in_time(None, 1.0):
        pass
    assert signal.getsignal(signal.SIGVTALRM) is theirs
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_signal_before_the_first_line_of_the_end_interrupts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    code = spins.__code__
    own, other = (
        cast(Any, SimpleNamespace(f_globals=names, f_code=code, f_back=None)) for names in (vars(module), globals())
    )
    with suppress(Violation), in_time(None, 1.0) as watch:
        monkeypatch.setattr(time, "thread_time", lambda: watch.start + 5.0)
        watch._tick(signal.SIGVTALRM, own)
        assert not watch.interrupted
        watch._tick(signal.SIGVTALRM, other)
    assert watch.interrupted


def test_whoever_waits_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with in_time(Append("a", (1,))) as watch:
        for spent_s in (9.0, 10.25, 11.0):
            monkeypatch.setattr(time, "thread_time", lambda spent_s=spent_s: watch.start + spent_s)
            watch._tick(signal.SIGVTALRM, None)
    printed = capsys.readouterr()
    told = "append has computed for 10 s, and is interrupted after 60 s; process:NAME would end it after --limit-s\n"
    assert (printed.out, printed.err) == ("", told)


def computes(*_: object) -> None:
    """For longer than it may."""
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass


class Rubbish:
    """What only the collector finds, and `tells` that it is gone."""

    def __init__(self, tells: Callable[..., None]) -> None:
        self.tells, self.itself = tells, self


class Finalized(Rubbish):
    def __del__(self) -> None:
        self.tells()


def of_the_collector(callback: Callable[..., None]) -> None:
    gc.callbacks.append(callback)
    gc.collect()
    gc.callbacks.remove(callback)


def of_a_weak_reference(callback: Callable[..., None]) -> None:
    reference = weakref.ref(Rubbish(callback), callback)
    gc.collect()
    assert reference() is None


def of_a_finalizer(callback: Callable[..., None]) -> None:
    Finalized(callback)
    gc.collect()


CALLING_BACK = [(of_the_collector, [("start",), ("stop",)]), (of_a_weak_reference, [()]), (of_a_finalizer, [()])]
"""And with what: a phase of the collection, or nothing that can be named beforehand."""


@pytest.mark.parametrize(("calls_back", "calls"), CALLING_BACK)
def test_what_is_called_while_garbage_is_collected_is_neither_interrupted_nor_counted(
    calls_back: Callable[[Callable[..., None]], None], calls: list[tuple[str, ...]]
) -> None:
    """What is raised in it is lost, and a warning: an error, here. It grows with what all others have left."""
    gc.collect()
    ended: list[tuple[object, ...]] = []

    def callback(*given: object) -> None:
        computes()
        ended.append(tuple(each for each in given if isinstance(each, str)))

    def calls_back_and_spins() -> None:
        calls_back(callback)
        spins()

    with in_time(None, 0.04):
        calls_back(callback)
    assert ended == calls
    with pytest.raises(Violation, match="no answer"), in_time(None, 0.04):
        calls_back_and_spins()
    assert ended == calls * 2


def test_what_hangs_while_garbage_is_collected_is_interrupted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.05)
    with pytest.raises(Violation, match="no answer"), in_time(None, 0.01):
        of_a_finalizer(spins)


def test_an_interruption_that_a_finalizer_swallows_is_no_warning_and_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    theirs = sys.unraisablehook

    class Ends:
        def __del__(self) -> None:
            try:
                spins()
            finally:
                if not told:
                    raise KeyError("theirs, and told")

    def leaves_it_and_spins() -> None:
        Ends()
        Ends()
        spins()

    with pytest.raises(Violation, match="no answer"), in_time(None, 0.01):
        leaves_it_and_spins()
    assert [each.exc_type for each in told] == [KeyError]
    assert sys.unraisablehook == theirs


@pytest.mark.parametrize("does", [*HANGS, lambda: None, gc.callbacks.clear])
def test_the_collector_calls_nobody_of_ours_afterwards(does: Callable[[], object]) -> None:
    before = list(gc.callbacks)
    try:
        with suppress(Violation), in_time(None, 0.01):
            does()
        assert [callback for callback in gc.callbacks if callback not in before] == []
    finally:
        gc.callbacks[:] = before


def test_a_limit_inside_of_another_one_leaves_its_timer() -> None:
    def inside_and_after() -> None:
        with in_time(None, 5.0):
            pass
        spins()

    with pytest.raises(Violation, match=r"after 0\.02 s"), in_time(None, 0.02):
        inside_and_after()


def test_an_attempt_allows_as_much_everywhere_and_is_silent() -> None:
    assert (ALLOWED.get(), SILENT.get(), in_time(None).limit_s) == (None, False, module.LIMIT_S)
    with attempting(0.5):
        assert (ALLOWED.get(), SILENT.get(), in_time(None).limit_s) == (0.5, True, 0.5)
        with in_time(None, 0.25):
            assert (ALLOWED.get(), SILENT.get()) == (0.25, True)
        assert ALLOWED.get() == 0.5
    assert (ALLOWED.get(), SILENT.get()) == (None, False)
