"""What is reported when a subject breaks a law."""

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pagedkv.spec import Misuse, Operation, misuse
from pagedkv.spec.misuse import shown

RAISES: Final = "misuse raises Misuse, and nothing else is raised"
ANSWERS: Final = "the answer is Ok or Refused, one a row"
OBSERVED: Final = "a subject can be observed"
COPIED: Final = "a subject that has copy can be copied"

MOST: Final = 2_000
"""Characters of a detail."""
KIT: Final = str(Path(__file__).parents[1]), str(Path(misuse.__file__).parent)
"""And the specification, which refuses what is declared wrong."""
INSTALLED: Final = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class Violation(AssertionError):
    """The subject broke a law of the specification: which, how, and at which operation.

    `kind` tells faults apart that break one law: the type of an exception, how a process ended, more or fewer.
    """

    def __init__(self, law: str, detail: str, operation: Operation | None = None, kind: str = "") -> None:
        self.law, self.detail = " ".join(_printable(law).split()), _printable(detail)  # either may be a stranger's
        self.operation, self.kind = operation, kind
        super().__init__(f"{self.law}: {self.detail} (at {shown(operation)})")

    def __reduce__(self) -> tuple[object, ...]:
        """Made of its parts again: an exception is pickled with its message alone."""
        return type(self), (self.law, self.detail, self.operation, self.kind)


class Interrupted(BaseException):
    """Raised in the middle of an operation that takes too long (`in_time`), and nobody's to catch."""


def message_of(crash: BaseException) -> str:
    """What an exception of a subject says, whatever that does."""
    try:
        return _printable(str(crash))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "what it says cannot be shown"


def _printable(detail: str) -> str:
    """What a subject says of itself may have any length and any characters."""
    short = detail if len(detail) <= MOST else f"{detail[:MOST]} … and {len(detail) - MOST:,} more characters"
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in short)


@contextmanager
def told(law: str, who: str, operation: Operation | None) -> Iterator[None]:
    """What a subject raises is a violation, but for `Misuse` of an operation. One in another process names its own."""
    try:
        yield
    except Violation as failure:
        raise Violation(failure.law, failure.detail, operation, failure.kind) from failure
    except BaseException as crash:  # also what an event loop or a generator raises to end something
        if isinstance(crash, KeyboardInterrupt | Interrupted) or str(type(crash).__module__).startswith("_pytest."):
            raise  # somebody else's, as a limit of pytest-timeout
        if law == RAISES and isinstance(crash, Misuse):
            raise
        raise Violation(law, f"{who} raised {raised(crash)}", operation, type(crash).__name__) from crash


def raised(crash: BaseException) -> str:
    """An exception of a subject, and where it was raised."""
    return f"{shown(crash)}{raised_at(crash)}"


def raised_at(crash: BaseException) -> str:
    """Where in the subject's own files an exception comes from, else where it was raised: " (kernel.py:31 in attend)".

    Own is what is neither of this kit nor installed.
    """
    own = own_frame(crash)
    return f" ({Path(own.filename).name}:{own.lineno} in {own.name})" if own else ""


def own_frame(crash: BaseException) -> traceback.FrameSummary | None:
    """The last frame in a file of the subject's own, else the last that is not of this kit, if there is one."""
    frames = [frame for frame in traceback.extract_tb(crash.__traceback__) if not frame.filename.startswith(KIT)]
    own = [frame for frame in frames if not frame.filename.startswith((*INSTALLED, "<"))] or frames
    return own[-1] if own else None
