"""Judging: one law on one case of one subject, and what is wrong."""

from typing import Final, NamedTuple

from pagedkv.conformance.attention.bench import Bench, Broken, Malformed, answered
from pagedkv.conformance.attention.cases import Case
from pagedkv.conformance.attention.declared import Undeclared
from pagedkv.conformance.attention.plan import LAWS
from pagedkv.conformance.differential.violation import message_of, raised_at
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
    exception: str = ""
    """The name of its type."""
    malformed: bool = False
    """Whether an answer had not the stated form, which is no matter of this law."""
    ended: str = ""
    """What it did to its process (`apart`): the law that this breaks."""

    @property
    def how(self) -> tuple[str, bool, str]:
        """What tells faults apart: a wrong number, an answer in another form, what was raised, a crash, a hang."""
        return self.exception, self.malformed, self.ended


def judge(bench: Bench, law: str, case: Case) -> Judged:
    """Hold a subject to one law on one case. Whatever it raises on legal input breaks the law at hand.

    Raises:
        Misuse: no such law; `Undeclared`, if the subject has no rounding model for the case.
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
        if isinstance(error, KeyboardInterrupt | Undeclared):
            raise
        name = type(error).__name__
        return Judged(1, f"{RAISED}{name}: {message_of(error)}{raised_at(error)}{hint}", error, name)
