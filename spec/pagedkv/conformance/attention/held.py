"""A subject as it is held to laws: in this process or in one of its own, and the smallest case that breaks a law."""

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

from pagedkv.conformance.attention.bench import Bench
from pagedkv.conformance.attention.cases import Case, contents
from pagedkv.conformance.attention.declared import Undeclared, fit, rounding
from pagedkv.conformance.attention.judging import Judged, judge
from pagedkv.conformance.attention.placement import place
from pagedkv.conformance.attention.smaller import smaller
from pagedkv.conformance.differential.in_time import attempting
from pagedkv.spec.attention_subject import AttentionCapabilities, AttentionSubject

MAX_SHRINKS: Final = 80
"""Cases tried to make a failure smaller."""


class Measured(NamedTuple):
    """What the checks of a configuration have measured."""

    launches: int = 0
    rhos: Mapping[str, float] = MappingProxyType({})
    """As in a `ConfigurationReport`, and so is the next."""
    visibility: float | None = None

    def plus(self, more: "Measured") -> "Measured":
        """Both together."""
        rhos = {
            shape: max(self.rhos.get(shape, 0.0), more.rhos.get(shape, 0.0)) for shape in {**self.rhos, **more.rhos}
        }
        seen = [each.visibility for each in (self, more) if each.visibility is not None]
        return Measured(self.launches + more.launches, rhos, min(seen, default=None))


class Held(ABC):
    """A subject: `Here`, or `apart.Apart`."""

    shrink_s = inf
    """Seconds after which no further case is tried to make a failure smaller."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def capabilities(self) -> AttentionCapabilities: ...

    @property
    @abstractmethod
    def shapes(self) -> Sequence[Mapping[str, int]]:
        """Those that it is made for, if it says so; else nothing is fixed."""

    @abstractmethod
    def fit(self, case: Case) -> Case | None:
        """The part of the case that it is made for. `Misuse` as of `declared.fit`."""

    @abstractmethod
    def tile(self, case: Case) -> int:
        """Of its rounding, in tokens. `Misuse` if it has no rounding model."""

    @abstractmethod
    def begin(self) -> None:
        """A configuration begins: nothing is remembered or measured yet."""

    @abstractmethod
    def judge(self, law: str, case: Case, *, fresh: bool = False) -> Judged:
        """One law on one case; `fresh`: with nothing remembered from other checks, and nothing measured."""

    @property
    @abstractmethod
    def measured(self) -> Measured:
        """Since the configuration began."""

    @abstractmethod
    def end(self) -> None:
        """It is not needed now."""


class Here(Held):
    """A subject in this process."""

    def __init__(self, subject: AttentionSubject) -> None:
        self.subject = subject
        self.begin()

    @property
    def name(self) -> str:
        return self.subject.name

    @property
    def capabilities(self) -> AttentionCapabilities:
        return self.subject.capabilities

    @property
    def shapes(self) -> Sequence[Mapping[str, int]]:
        made_for: Sequence[Mapping[str, int]] = getattr(self.subject, "shapes", ({},))
        if not isinstance(made_for, Sequence) or not all(isinstance(shape, Mapping) for shape in made_for):
            raise Undeclared("shapes", made_for, "a sequence of mappings, each of which fixes something of every case")
        return made_for

    def fit(self, case: Case) -> Case | None:
        return fit(self.subject, case)

    def tile(self, case: Case) -> int:
        return int(rounding(self.subject, place(case, contents(case))).tile)

    def begin(self) -> None:
        self._bench = Bench(self.subject)

    def judge(self, law: str, case: Case, *, fresh: bool = False) -> Judged:
        return judge(Bench(self.subject) if fresh else self._bench, law, case)

    @property
    def measured(self) -> Measured:
        return Measured(self._bench.launches, self._bench.rhos, self._bench.visibility)

    def end(self) -> None:
        pass


def held(subject: AttentionSubject | Held) -> Held:
    """A subject as it is held: in this process, unless it is in one of its own already."""
    return subject if isinstance(subject, Held) else Here(subject)


def check_law(subject: AttentionSubject | Held, law: str, case: Case) -> str | None:
    """Hold a subject to one law on one case: what is wrong, or None. Reproduces a `Failure`.

    Raises:
        Misuse: no such law.
    """
    return held(subject).judge(law, case, fresh=True).detail


def smallest(
    subject: AttentionSubject | Held, law: str, case: Case, found: Judged, fixed: Collection[str] = ()
) -> tuple[Case, Judged]:
    """A smaller case that breaks the law, too, and how, as a bounded greedy search finds it.

    Fields that are `fixed` keep their values. What computed something wrong does so again: that it raises on a smaller
    case, or something else there, is another fault.
    """
    subject, first = held(subject), (case, found)
    candidates, until = smaller(case), time.monotonic() + subject.shrink_s
    with attempting():
        for _ in range(MAX_SHRINKS):
            candidate = next(candidates, None)
            if candidate is None or time.monotonic() > until:
                break
            if subject.fit(candidate) != candidate or any(getattr(candidate, n) != getattr(case, n) for n in fixed):
                continue
            judged = subject.judge(law, candidate, fresh=True)
            if judged.detail is not None and judged.how == found.how:
                case, found, candidates = candidate, judged, smaller(candidate)
    if found.ended and case != first[0]:  # again, with all the time that it has if it is not one attempt of many
        found = subject.judge(law, case, fresh=True)
    return (case, found) if found.how == first[1].how else first
