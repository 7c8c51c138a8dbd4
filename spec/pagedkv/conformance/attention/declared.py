"""What a subject says beside a launch: the cases that it takes, and how it rounds. A wrong word there breaks no law."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pagedkv.conformance.attention.cases import Case
from pagedkv.conformance.differential.violation import raised_at
from pagedkv.spec.attention_subject import AttentionSubject, Problem, RoundingModel
from pagedkv.spec.words import Misuse


class Undeclared(Misuse):
    """What a subject says of itself cannot be used. Its own `Misuse` of a legal launch breaks a law; not this."""


def fit(subject: AttentionSubject, case: Case) -> Case | None:
    """The part of a case that a subject is made for, if it has a `fit` that tells; else the case. None: no part.

    Raises:
        Undeclared: `fit` gave something else, or raised.
    """
    part: Callable[[Case], Case | None] | None = getattr(subject, "fit", None)
    asked, wanted = f"fit({case.describe()})", "a Case, or None"
    with _no_exception(asked, wanted):
        fitted = case if part is None else part(case)
    if fitted is not None and not isinstance(fitted, Case):
        raise Undeclared(asked, fitted, wanted)
    return fitted


def rounding(subject: AttentionSubject, problem: Problem) -> RoundingModel:
    """How a subject rounds in a launch.

    Raises:
        Undeclared: `rounding` gave something else, or raised.
    """
    with _no_exception("rounding", "a RoundingModel"):
        model = subject.rounding(problem)
    if not isinstance(model, RoundingModel):
        raise Undeclared("rounding", model, "a RoundingModel")
    if not (model.tile and model.num_tiles) and any(problem.seq_lens):
        raise Undeclared("rounding", model, "tile and num_tiles of 1 or more where there are positions")
    return model


@contextmanager
def _no_exception(asked: str, wanted: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Undeclared(asked, error, f"{wanted}, and no exception{raised_at(error)}") from error
