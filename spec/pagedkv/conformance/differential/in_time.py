"""What is broken may never answer. In this process it can be interrupted, where a signal reaches it.

That is in the main thread of a POSIX system, in code that is not compiled, while it computes (the timer counts the
time of this process, so a busy machine interrupts nobody). Anything else that hangs needs a process of its own, which
`process:` before the name of a subject gives it.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pagedkv.conformance.differential.violation import Violation
from pagedkv.spec import Operation

LIMIT_S = 120.0
"""Seconds of computing that an operation may take: at its first call it may have to be compiled."""
IN_TIME: Final = "an operation ends within its limit"


class _Interrupted(BaseException):
    """Raised in the middle of an operation; no `Exception`, since those of a subject are caught."""


@contextmanager
def in_time(operation: Operation | None, limit_s: float | None = None) -> Iterator[None]:
    """Raises `Violation` if what is done inside does not end within the limit (default: `LIMIT_S`)."""
    limit_s = LIMIT_S if limit_s is None else limit_s
    here = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    if not here or signal.getitimer(signal.ITIMER_VIRTUAL) != (0.0, 0.0):  # somebody else is using the timer
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise _Interrupted

    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
        yield
    except _Interrupted as interrupted:
        raise Violation(IN_TIME, f"no answer after {limit_s:g} s of computing", operation) from interrupted
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
