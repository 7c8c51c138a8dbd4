"""Known failures of kernels: cases that must break a law, each until somebody repairs the cause.

They are pinned in a TOML file (`failures.entries`), which may have those of block managers, too:

    [[known]]
    law = "poison"
    case = "Case(lengths=(1,), num_kv_heads=1, group=1)"
    reason = "unused slots are multiplied by 0: https://…/issues/123"
    subject = "my_kernel:MyDecode"  # optional: of this one only, by the name under which it is run

This is strict both ways: a pinned law that holds on its case is a failure of the run. A failure is put down to a pin if
it breaks the same law and its *smallest case* is the pinned one, whatever the dtype and the seed, and however it does:
by a wrong number, an exception or a crash. So a fault that breaks the law elsewhere is told; one that shrinks to the
very same case is not, and comes to light when this one is repaired.

What is put down to a pin does not stop the run: later cases of the law, which an unpinned failure keeps from being
tried, are held, too. Each that fails is shrunk, over at most `held.MAX_SHRINKS` cases. An exception is `answer`: a
configuration whose first launch gets no answer is held to no law, pinned or not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagedkv.conformance.attention.cases import Case, case_of
from pagedkv.conformance.attention.held import Held
from pagedkv.conformance.attention.judging import ANSWER
from pagedkv.conformance.attention.plan import LAWS, NEEDS
from pagedkv.conformance.failures.entries import entries, of_subject
from pagedkv.spec import Misuse


@dataclass(frozen=True)
class Pin:
    """A case that must break a law."""

    law: str
    case: Case
    reason: str
    """Why it is let be, for people."""
    subject: str | None = None
    """The name of the one subject that it is about; None: of all."""

    @property
    def name(self) -> str:
        """As reports have it."""
        return f"{self.law} {self.case.describe()}"

    def explains(self, law: str, smallest: Case) -> bool:
        """Whether a failure is put down to this one.

        >>> pin = Pin("poison", Case(lengths=(1,)), "nobody has time")
        >>> pin.explains("poison", Case(lengths=(1,), dtype="float16", seed=4))
        True
        >>> pin.explains("poison", Case(lengths=(2,))), pin.explains("history", Case(lengths=(1,)))
        (False, False)
        """
        return law == self.law and replace(smallest, dtype=self.case.dtype, seed=self.case.seed) == self.case


def load(path: str | Path, subject: str) -> tuple[Pin, ...]:
    """The known failures in a TOML file that are about the kernel of this name. What it should not have is `Misuse`."""
    return of_subject([_read(where, entry) for where, entry in entries(path, "case")], subject)


def _read(where: str, entry: dict[str, Any]) -> Pin:
    if entry["law"] not in (ANSWER, *LAWS):
        raise Misuse(f"{where}.law", entry["law"], f"one of {', '.join((ANSWER, *LAWS))}")
    try:
        case = case_of(entry["case"])
    except Misuse as misuse:
        raise Misuse(f"{where}.case", entry["case"], misuse.allowed) from misuse
    return Pin(entry["law"], case, entry["reason"], entry.get("subject"))


def changed(pin: Pin, subject: Held, shapes: Sequence[Mapping[str, int]] | None = None) -> str | None:
    """Try a pinned case. None if it breaks its law; else what became of it, and what to do.

    `shapes` are those of the run, if they are not the subject's.
    """
    lacks = _lacks(pin, subject, shapes or subject.shapes)
    judged = None if lacks else subject.judge(pin.law, pin.case, fresh=True)
    if judged is None or not judged.checked:
        why = lacks or f"{pin.law} says nothing of this case"
        return f"{pin.name} is pinned as a known failure and does not apply: {why}. Remove its entry"
    if judged.detail is None:
        return (
            f"{pin.name} is pinned as a known failure and holds now: remove its entry, and keep the case in a test"
            f" (check_law)\n  it was let be because: {pin.reason}"
        )
    if judged.malformed and pin.law != ANSWER and subject.judge(ANSWER, pin.case, fresh=True).malformed:
        return f"{pin.name} is pinned as a known failure and fails otherwise now: {judged.detail}"
    return None


def _lacks(pin: Pin, subject: Held, shapes: Sequence[Mapping[str, int]]) -> str:
    """Why no run would hold the subject to this case; empty: it would."""
    needs = {*pin.case.features(), *([NEEDS[pin.law]] if pin.law in NEEDS else [])}
    undeclared = [name for name in sorted(needs) if not getattr(subject.capabilities, name)]
    if pin.case.dtype not in subject.capabilities.dtypes:
        undeclared.append(pin.case.dtype)
    if undeclared:
        return f"the subject does not declare {', '.join(undeclared)}"
    if not any(all(getattr(pin.case, name) == number for name, number in shape.items()) for shape in shapes):
        return "the run has no such shape"
    return "" if subject.fit(pin.case) == pin.case else "the subject's `fit` takes no such case"
