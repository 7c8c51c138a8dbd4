"""Judging: one law on one case of one subject, and what is wrong."""

from collections.abc import Callable
from typing import Final, NamedTuple

from pagedkv.conformance.attention.bench import Bench, Broken, Malformed, answered
from pagedkv.conformance.attention.cases import Case
from pagedkv.conformance.attention.plan import LAWS
from pagedkv.conformance.differential.violation import message_of, raised_at
from pagedkv.spec.attention_subject import AttentionSubject
from pagedkv.spec.words import Misuse

ANSWER: Final = "answer"
"""Comes before all laws: a legal launch is answered, in the stated form (`bench.answered`)."""

RAISED: Final = "raised "
"""What the detail begins with if the subject raised something."""

MORE_ROWS_THAN_POSITIONS: Final = (
    "; a request brings more rows than it has positions: those before position 0 see nothing. A kernel that takes no"
    " such requests says so by `fit`, see `with_positions`"
)


class Judged(NamedTuple):
    """What came of a law on a case."""

    checked: int
    """Comparisons made; 0: the law says nothing of this case."""
    detail: str | None = None
    """What is wrong; None: nothing."""
    error: BaseException | None = None
    """What the subject raised."""
    malformed: bool = False
    """Whether an answer had not the stated form, which is no matter of this law."""
    ended: str = ""
    """What it did to its process (`apart`): the law that this breaks."""

    @property
    def how(self) -> tuple[bool, str]:
        """What tells faults apart: something wrong was computed, something was raised, it crashed, or hung."""
        return self.error is not None, self.ended


def judge(bench: Bench, law: str, case: Case) -> Judged:
    """Hold a subject to one law on one case. Whatever it raises on legal input breaks the law at hand.

    Raises:
        Misuse: no such law.
    """
    if law != ANSWER and law not in LAWS:
        raise Misuse("law", law, f"one of {', '.join((ANSWER, *LAWS))}")
    hold = answered if law == ANSWER else LAWS[law][1]
    odd = any(rows > length for length, rows in zip(case.lengths, case.query_lens, strict=True))
    hint = MORE_ROWS_THAN_POSITIONS if odd and len(case.lengths) <= 2 else ""  # in a larger batch it may be the others
    try:
        return Judged(hold(bench, case))
    except Broken as broken:
        return Judged(1, f"{broken}{hint}", malformed=isinstance(broken, Malformed))
    except BaseException as error:  # also what an event loop or a generator raises to end something
        if isinstance(error, KeyboardInterrupt):
            raise
        return Judged(1, f"{RAISED}{type(error).__name__}: {message_of(error)}{raised_at(error)}{hint}", error)


def fit(subject: AttentionSubject, case: Case) -> Case | None:
    """The part of a case that a subject is made for, if it has a `fit` that tells; else the case. None: no part.

    Raises:
        Misuse: `fit` gave something else.
    """
    part: Callable[[Case], Case | None] | None = getattr(subject, "fit", None)
    fitted = case if part is None else part(case)
    if fitted is not None and not isinstance(fitted, Case):
        raise Misuse(f"fit({case.describe()})", fitted, "a Case, or None")
    return fitted
