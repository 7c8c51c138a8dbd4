"""What is broken may never answer. In this process it can be interrupted, where a signal reaches it.

That is in the main thread of a POSIX system, in code that is not compiled, while it computes: what counts is the time
that this thread has computed, so a busy machine interrupts nobody, without what it collects as garbage: that grows with
everybody's objects. What sleeps, waits for a lock or never leaves compiled code goes on, and so does what catches
everything that is raised and tries again. Then it needs a process of its own, which `process:` before the name of a
subject gives it.
"""

import gc
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final, Self

from pagedkv.conformance.differential.violation import Interrupted, Violation
from pagedkv.spec import Operation
from pagedkv.spec.trace_fields import NAMES

LIMIT_S = 60.0
"""Seconds of computing that an operation may take: at its first call it may have to be compiled, which takes our own
optimized manager some ten."""
NOTICE_S: Final = 10.0
"""Seconds after which somebody who waits is told."""
TICK_S: Final = 1.0
"""Seconds of computing between two looks at the clock: what catches an interruption is interrupted again."""
IN_TIME: Final = "an operation ends within its limit"

ALLOWED: Final = ContextVar[float | None]("seconds that an operation is allowed", default=None)
"""Where a limit was given, it also holds for what runs in a process of its own and has a longer one."""
SILENT: Final = ContextVar("what a process of its own says on stderr is not passed on", default=False)


@contextmanager
def attempting(limit_s: float | None = None) -> Iterator[None]:
    """What runs inside is one attempt of many, as of making a failure minimal: an operation gets `limit_s` seconds at
    most, if it is given, and what a process of its own says on stderr is not passed on."""
    allowed, silent = ALLOWED.set(limit_s or ALLOWED.get()), SILENT.set(True)
    try:
        yield
    finally:
        ALLOWED.reset(allowed)
        SILENT.reset(silent)


class in_time:
    """Raises `Violation` if what is done inside does not end within the limit: that of the attempt, or else `LIMIT_S`,
    unless another one is given. Inside of another one, and wherever nothing can be interrupted, it interrupts nothing.

    A class, since what a generator has around it could be interrupted while it ends.
    """

    def __init__(self, operation: Operation | None, limit_s: float | None = None) -> None:
        self.operation, self.limit_s, self.given_s = operation, limit_s or ALLOWED.get() or LIMIT_S, limit_s
        self.armed = self.collects = self.interrupted = self.told = False

    def __enter__(self) -> Self:
        self.allowed = ALLOWED.set(self.given_s or ALLOWED.get())
        here = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
        if here and signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0):  # else somebody else is using the timer
            self.armed, self.thread, tick_s = True, threading.get_ident(), min(self.limit_s, TICK_S)
            self.start = time.thread_time()
            gc.callbacks.insert(0, self._collection_begins)  # around what others do there
            gc.callbacks.append(self._collection_ends)
            self.before = signal.signal(signal.SIGVTALRM, self._tick)
            signal.setitimer(signal.ITIMER_VIRTUAL, tick_s, tick_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        armed, self.armed = self.armed, False
        if armed:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, self.before if self.before is not None else signal.SIG_DFL)
            ours = self._collection_begins, self._collection_ends
            gc.callbacks[:] = [callback for callback in gc.callbacks if callback not in ours]
        if self.interrupted and sys.unraisablehook == self._lost:
            sys.unraisablehook = self.hook
        ALLOWED.reset(self.allowed)
        if self.interrupted and isinstance(error, Exception | SystemExit | Interrupted | None):  # caught or not
            raise Violation(IN_TIME, f"no answer after {self.limit_s:g} s of computing", self.operation) from error

    def _tick(self, number: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        spent_s = now - self.start
        if spent_s >= NOTICE_S and not self.told:
            self._tell(spent_s)
        at_its_end = not self.armed or (frame is not None and frame.f_globals is globals())
        if not at_its_end and (now - self.began >= LIMIT_S if self.collects else spent_s >= self.limit_s):
            if not self.interrupted:
                self.interrupted, self.hook, sys.unraisablehook = True, sys.unraisablehook, self._lost
            raise Interrupted

    def _lost(self, told: Any) -> None:
        """In a finalizer, or what C calls back, an interruption goes nowhere: the next one follows. No word of it."""
        if told.exc_type is not Interrupted:
            self.hook(told)

    def _collection_begins(self, phase: str, _info: object) -> None:
        """What is called while garbage is collected is interrupted when it hangs, and not before: what is raised there
        goes nowhere."""
        if phase == "start" and threading.get_ident() == self.thread:
            self.collects, self.began = True, time.thread_time()

    def _collection_ends(self, phase: str, _info: object) -> None:
        if phase == "stop" and self.collects and threading.get_ident() == self.thread:
            self.start += time.thread_time() - self.began
            self.collects = False

    def _tell(self, spent_s: float) -> None:
        what = NAMES[type(self.operation)] if self.operation else "the end of a program"
        told = f"{what} has computed for {spent_s:.0f} s, and is interrupted after {self.limit_s:g} s"
        with suppress(Exception):  # stderr may be in the middle of another line: then the next time
            print(f"{told}; process:NAME would end it after --limit-s", file=sys.stderr, flush=True)
            self.told = True
