"""Judging: one law on one case of one subject, what is wrong, and the smallest case found on which it is so, too."""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from pagedkv.conformance.attention.bench import Bench, Broken, Malformed, answered
from pagedkv.conformance.attention.cases import Case
from pagedkv.conformance.attention.plan import LAWS
from pagedkv.conformance.differential.violation import raised_at
from pagedkv.spec.attention_subject import AttentionSubject
from pagedkv.spec.words import Misuse

ANSWER: Final = "answer"
"""Comes before all laws: a legal launch is answered, in the stated form (`bench.answered`)."""

RAISED: Final = "raised "
"""What the detail begins with if the subject raised something."""

MAX_SHRINKS: Final = 80
"""Cases tried to make a failure smaller."""

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
        return Judged(1, f"{RAISED}{type(error).__name__}: {error}{raised_at(error)}{hint}", error)


def check_law(subject: AttentionSubject, law: str, case: Case) -> str | None:
    """Hold a subject to one law on one case: what is wrong, or None. Reproduces a `Failure`.

    Raises:
        Misuse: no such law.
    """
    return judge(Bench(subject), law, case).detail


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


def smallest(
    subject: AttentionSubject, law: str, case: Case, found: Judged, fixed: Collection[str] = ()
) -> tuple[Case, Judged]:
    """A smaller case that breaks the law, too, and how, as a bounded greedy search finds it.

    Fields that are `fixed` keep their values. What computed something wrong does so again: that it raises on a smaller
    case is another fault.
    """
    smaller = case.smaller()
    for _ in range(MAX_SHRINKS):
        candidate = next(smaller, None)
        if candidate is None:
            break
        if fit(subject, candidate) != candidate or any(getattr(candidate, n) != getattr(case, n) for n in fixed):
            continue
        judged = judge(Bench(subject), law, candidate)
        if judged.detail is not None and (judged.error is None) == (found.error is None):
            case, found, smaller = candidate, judged, candidate.smaller()
    return case, found
