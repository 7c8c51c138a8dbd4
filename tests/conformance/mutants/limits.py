"""A limit to what one operation of a broken manager may take: what is broken may also go round for ever."""

import signal
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any, Final, TypeVar

LIMIT_S: Final = 1.0
"""Of processor time, so that a busy machine changes nothing. An operation takes a millisecond."""
OPERATIONS: Final = (
    "admit", "append", "commit", "free", "reserve", "fork", "truncate", "preempt", "resume", "lookup", "pin", "unpin",
    "evict", "reset_prefix_index", "begin_step", "end_step", "permute", "batch", "observe",
)  # fmt: skip

Manager = TypeVar("Manager", bound=type)


def answering(manager: Manager) -> Manager:
    """The same class, of which each operation raises `TimeoutError` once its time is up. For the main thread alone."""
    limited = {name: _limited(getattr(manager, name)) for name in OPERATIONS if hasattr(manager, name)}
    made: Any = type(manager.__name__, (manager,), limited)
    return made  # type: ignore[no-any-return]  # of the same kind


def _limited(operation: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(operation)
    def within(*arguments: Any, **options: Any) -> Any:
        signal.signal(signal.SIGVTALRM, _is_up)
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
        try:
            return operation(*arguments, **options)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    return within


def _is_up(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"no answer after {LIMIT_S} s")
