"""A kernel in a process of its own, which is held to laws there: a crash or a hang of it ends no run of ours.

What crashes, hangs, or leaves a device behind on which nothing can be launched any more breaks the law at hand, and the
next check finds a new process. The kit runs there, too (`serve`), as no launch can be sent somewhere else with its
arrays as they lie in memory.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from pagedkv.conformance.attention.cases import Case, case_of
from pagedkv.conformance.attention.held import Held, Measured
from pagedkv.conformance.attention.judging import Judged
from pagedkv.conformance.differential.in_time import SILENT
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.process.protocol import Json, read, write
from pagedkv.conformance.process.remote import SLOWER, START_LIMIT_S, checked_limit
from pagedkv.conformance.process.running import ONE_LINE, SURVIVES, Running, interpreter
from pagedkv.spec.attention_subject import AttentionCapabilities
from pagedkv.spec.misuse import Misuse, shown

LIMIT_S: Final = 120.0
"""Seconds that a check may take, unless another limit is given: of its launches each may have to be compiled."""
LEAST_LIMIT_S: Final = 2.0
"""Seconds that it has in any case while a failure is made smaller."""
SHRINK_S: Final = 60.0
"""Seconds after which no further case is tried to make a failure smaller."""


class Raised(Exception):
    """What a subject raised somewhere else; the text is the traceback."""


class Apart(Held):
    """The subject behind `module:factory`, in a process of its own that finds the modules that this one finds.

    Args:
        subject: as it would be named in this process.
        limit_s: seconds that a check may take, `LIMIT_S` if not given. To make the subject it has two minutes at least.

    Not for several threads at once. Raises `Misuse` if there is no such subject.
    """

    shrink_s = SHRINK_S

    def __init__(self, subject: str, *, limit_s: float | None = None) -> None:
        self.limit_s = checked_limit(LIMIT_S if limit_s is None else limit_s)
        self._made_by, self._slowest_s = subject, 0.0
        self._process: Running | None = None
        self._new = True
        """Whether the subject has still to be made in its process."""
        self._died = ""
        """How it ended while it was held to nothing, which the next check tells."""
        self._number = 0
        """Of the last question."""
        self._good: tuple[str, Case] | None = None
        """A check in which something was launched, and nothing raised."""
        self._earlier, self._now = Measured(), Measured()
        """In processes that ended since the configuration began, and in the one that there is."""
        self._told: Json = {}
        self._ensure_made()

    @property
    def name(self) -> str:
        name: str = self._told["name"]
        return name

    @cached_property
    def capabilities(self) -> AttentionCapabilities:
        declared = self._told["capabilities"]
        return AttentionCapabilities(**{**declared, "dtypes": tuple(declared["dtypes"])})

    @property
    def shapes(self) -> Sequence[Mapping[str, int]]:
        shapes: Sequence[Mapping[str, int]] = self._told["shapes"]
        return shapes

    def fit(self, case: Case) -> Case | None:
        part = self._answer("fit", case=case.describe())["case"] if self._told["fits"] else case.describe()
        return case_of(part) if part is not None else None

    def tile(self, case: Case) -> int:
        tile: int = self._answer("tile", case=case.describe())["tile"]
        return tile

    def begin(self) -> None:
        self._earlier, self._now = Measured(), Measured()
        self._answer("begin")

    def judge(self, law: str, case: Case, *, fresh: bool = False) -> Judged:
        judged = self._judge(law, case, fresh)
        if judged.checked and judged.error is None and not judged.ended:
            self._good = law, case
        elif judged.error is not None and not self._launches_still() and not self._new:
            with suppress(Violation):
                self._ask(self.limit_s, "end")
        return judged

    @property
    def measured(self) -> Measured:
        return self._earlier.plus(self._now)

    def end(self) -> None:
        """End its process; the next question starts one."""
        if self._process is not None:
            self._process.end()
        self._forget_subject()

    def _judge(self, law: str, case: Case, fresh: bool) -> Judged:
        limit_s = self.limit_s
        if SILENT.get():  # one attempt of many
            limit_s = min(limit_s, max(LEAST_LIMIT_S, SLOWER * self._slowest_s))
        self._ensure_made()
        if self._died:
            detail, self._died = self._died, ""
            return Judged(1, detail, ended=SURVIVES)
        start = time.monotonic()
        try:
            told = self._ask(limit_s, "judge", law=law, case=case.describe(), fresh=fresh)
        except Violation as violation:
            return Judged(1, violation.detail, ended=violation.law)
        self._slowest_s = max(self._slowest_s, time.monotonic() - start)
        launches, rhos, visibility = told.pop("measured")
        self._now = Measured(launches, {shape: float(rho) for shape, rho in rhos.items()}, visibility)
        return Judged(**{**told, "error": told["error"] and Raised(told["error"])})

    def _launches_still(self) -> bool:
        """After an exception: on a device that an illegal access was made of, nothing can be launched any more."""
        if self._good is None:
            return False
        again = self._judge(*self._good, fresh=True)
        return again.error is None and not again.ended

    def _answer(self, ask: str, **what: object) -> Json:
        """What belongs to no law. If the process ends, it is asked once more, for that may come of the check before;
        that no answer comes then is `Misuse`."""
        for _ in range(2):
            self._ensure_made()
            try:
                return self._ask(self.limit_s, ask, **what)
            except Violation as violation:
                self._died = violation.detail
        raise self._unanswered(self._died)

    def _ensure_made(self) -> None:
        """Make the subject if its process is new, which is no part of a check and of its time."""
        if not self._new and self._process and not self._process.usable:
            self._died = f"between two checks {self._last_words(self._process)}"
            self._forget_subject()
        while self._new:
            forked = self._process is not None and self._process.usable
            try:
                self._told = self._ask(max(self.limit_s, START_LIMIT_S), "hello")
            except Violation as violation:
                if self._process is None or not forked:
                    raise self._unanswered(violation.detail) from violation
                self._process.end(gently=False)  # it may have answered what the child before it had not read

    def _last_words(self, process: Running) -> str:
        """What made a process unusable that was asked nothing. The parent of one that has died says so, and forks."""
        try:
            said = process.unasked()
        except Violation as violation:
            return violation.detail
        with suppress(Misuse):
            told = read(said)
            if told.get("outcome") == "violation":
                return f"{told['detail']}{process.stderr.last()}"
        why = f"it said {shown(said.decode(errors='backslashreplace'))} without being asked{process.stderr.last()}"
        process.end(gently=False)
        return why

    def _unanswered(self, why: str) -> Misuse:
        """There is nothing to be held to a law, which is told once: no later check is to blame."""
        self._died = ""
        return Misuse("subject", f"process:{self._made_by}", f"one that answers; {why}")

    def _forget_subject(self) -> None:
        self._earlier, self._now, self._new = self.measured, Measured(), True

    def _ask(self, limit_s: float, ask: str, **what: object) -> Json:
        """Its answer. Raises `Misuse` as the subject does, and `Violation` if none comes: then it has to be made anew,
        in a child of its process if that is still there."""
        process = self._process
        if process is None or not process.usable:
            if process is not None:
                process.end(gently=False)
            try:
                process = Running(*interpreter("pagedkv.conformance.attention.serve", self._made_by))
            except (OSError, ValueError) as error:
                raise self._unanswered(f"it cannot be started: {error}") from error
            self._process, process.restarts = process, True
        process.stderr.forget()  # what it said to another question
        self._number += 1
        try:
            answer = process.ask(write({"ask": ask, "number": self._number, **what}), read, limit_s)
            if answer.get("outcome") == "violation":  # of the parent, which forks another one
                raise Violation(answer["law"], answer["detail"] + process.stderr.last())
            if answer.get("number") != self._number:
                process.end(gently=False)
                raise Violation(ONE_LINE, "it answered what it was not asked")
        except Violation:
            self._forget_subject()
            raise
        self._new = False
        if "misuse" in answer:
            argument, value, allowed = answer["misuse"]
            raise Misuse(argument, f"process:{value}" if argument == "subject" else value, allowed)
        if "raised" in answer:
            raise self._unanswered(f"it raised {answer['raised']}")
        del answer["number"]
        return answer
