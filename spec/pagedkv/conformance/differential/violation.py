"""What is reported when a subject breaks a law."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pagedkv.spec import Misuse, Operation

RAISES: Final = "misuse raises Misuse, and nothing else is raised"
ANSWERS: Final = "the answer is Ok or Refused, one a row"
OBSERVED: Final = "a subject can be observed"
COPIED: Final = "a subject that has copy can be copied"


class Violation(AssertionError):
    """The subject broke a law of the specification: which, how, and at which operation.

    `kind` tells faults apart that break one law: the type of an exception, or how a process ended.
    """

    def __init__(self, law: str, detail: str, operation: Operation | None = None, *, kind: str = "") -> None:
        super().__init__(f"{law}: {detail} (at {operation!r})")
        self.law, self.detail, self.operation, self.kind = law, detail, operation, kind


@contextmanager
def told(law: str, who: str, operation: Operation | None) -> Iterator[None]:
    """What a subject raises is a violation, but for `Misuse` of an operation. One in another process names its own."""
    try:
        yield
    except Violation as failure:
        raise Violation(failure.law, failure.detail, operation, kind=failure.kind) from failure
    except (Exception, SystemExit) as crash:
        if law == RAISES and isinstance(crash, Misuse):
            raise
        raise Violation(law, f"{who} raised {crash!r}", operation, kind=type(crash).__name__) from crash
