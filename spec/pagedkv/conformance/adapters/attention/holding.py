"""Somebody else's kernel held against the specification, and what came of it as the data of a page.

Other than a run of the kit on one's own kernel, which ends with what is broken, this asks which laws were kept and
which were broken, by which inputs and why. A kernel is held to what it is made for: an adapter may `fit` a case, that
is leave requests out that its kernel does not take, or the whole case.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeAlias

from pagedkv.conformance.adapters.attention.tensors import installed_version
from pagedkv.conformance.attention import Case, planned_checks
from pagedkv.conformance.attention.bench import Bench
from pagedkv.conformance.attention.declared import fit
from pagedkv.conformance.attention.held import smallest
from pagedkv.conformance.attention.judging import judge
from pagedkv.conformance.attention.plan import Configuration, Size, configurations
from pagedkv.conformance.attention.runner import shapes_of
from pagedkv.spec.attention_subject import AttentionCapabilities

Features: TypeAlias = tuple[str, ...]


class Verdict(NamedTuple):
    """Why laws are broken where a case has certain features."""

    laws: Features
    needs: Features
    """Among the features (`Case.features`) of the smallest case."""
    verdict: str
    """"bug"; "documented choice"; "our misunderstanding", where the law asks what was never promised; or "limit of the
    adapter"."""
    why: str
    source: str
    """Where it can be checked: a file, a page of documentation, an issue."""


@dataclass(frozen=True)
class Violation:
    """A law, and the smallest case found that breaks it."""

    law: str
    case: Case
    detail: str

    @property
    def key(self) -> tuple[str, Features]:
        return self.law, self.case.features()

    def judged(self, verdicts: Sequence[Verdict]) -> Verdict:
        """The first verdict that is about it, or one that says that there is none."""
        features = set(self.case.features())
        about = (each for each in verdicts if self.law in each.laws and set(each.needs) <= features)
        return next(about, Verdict((self.law,), self.case.features(), "not judged", "", ""))


@dataclass(frozen=True)
class Held:
    """What a subject did."""

    checks: int
    left_out: int
    """Checks that `fit` left nothing of."""
    laws: tuple[str, ...]
    """Every law that was tried."""
    violations: tuple[Violation, ...]
    elapsed_s: float

    @property
    def kept(self) -> list[str]:
        """Laws that no case broke."""
        broken = {violation.law for violation in self.violations}
        return [law for law in self.laws if law not in broken]


def hold(
    subject: Any,
    *,
    seed: int = 0,
    size: Size = "tiny",
    only: Sequence[Configuration] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Held:
    """Hold a subject to every law that its capabilities call for.

    Args:
        subject: an `AttentionSubject`.
        seed: draws all contents and placements.
        size: "tiny" for an interpreted kernel, "full" for a compiled one.
        only: the configurations to run; None: all that the capabilities call for.
        progress: called with a line of text before each configuration.
    """
    start, planned = time.perf_counter(), configurations(subject.capabilities, size) if only is None else only
    violations: dict[tuple[str, Features], Violation] = {}
    laws, checks, left_out = dict[str, None](), 0, 0
    fixed = {name for shape in shapes_of(subject) for name in shape}
    for index, configuration in enumerate(planned):
        if progress is not None:
            progress(f"{index + 1}/{len(planned)}: {configuration.dtype} {'+'.join(configuration.features)}")
        failed = set[str]()
        for law, case in planned_checks(subject, configuration, size, seed):
            fitted = fit(subject, case)
            left_out += fitted is None
            if fitted is None or law in failed:
                continue
            laws[law], checks = None, checks + 1
            judged = judge(Bench(subject), law, fitted)
            if judged.detail is not None:
                failed.add(law)
                small, judged = smallest(subject, law, fitted, judged, fixed)
                found = Violation(law, small, str(judged.detail))
                violations.setdefault(found.key, found)
    return Held(checks, left_out, tuple(laws), tuple(violations.values()), time.perf_counter() - start)


def record(
    subject: Any, held: Held, verdicts: Sequence[Verdict], *, factory: str, command: str, date: str, not_run: str
) -> dict[str, Any]:
    """The data of a page; `factory` makes the subject. Violations of one verdict are told by the shortest of them."""
    beside = [f"{name} {installed_version(name)}" for name in getattr(subject, "beside", ())]
    causes: dict[Verdict, list[Violation]] = {}
    for violation in held.violations:
        causes.setdefault(violation.judged(verdicts), []).append(violation)
    return {
        "subject": subject.name,
        "kind": "attention",
        "package": subject.package,
        "version": ", ".join([installed_version(subject.package), *beside]),
        "command": command,
        "date": date,
        "capabilities": declared(subject.capabilities),
        "cases": held.checks,
        "kept": held.kept,
        "broken": [told(verdict, violations, factory) for verdict, violations in causes.items()],
        "not_run": not_run,
    }


def told(verdict: Verdict, violations: Sequence[Violation], factory: str) -> dict[str, Any]:
    """What one cause broke: the laws, a command that shows it again, and why."""
    shortest = min(violations, key=lambda each: len(each.case.describe()))
    case, law = shortest.case.describe(), shortest.law
    return {
        "law": ", ".join(dict.fromkeys(each.law for each in violations)),
        "inputs": {
            "command": f'pagedkv attention --subject {factory} --law {law} --case "{case}"',
            "shows": shortest.detail,
        },
        "verdict": verdict.verdict,
        "why": verdict.why,
        "source": verdict.source,
    }


def declared(capabilities: AttentionCapabilities) -> list[str]:
    """Dtypes, then the names of all else that is declared.

    >>> declared(AttentionCapabilities(window=True))
    ['float32', 'window']
    """
    named = [field.name for field in fields(capabilities) if getattr(capabilities, field.name) is True]
    return [*capabilities.dtypes, *named]
