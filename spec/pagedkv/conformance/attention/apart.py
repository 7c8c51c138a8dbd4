"""A kernel in a process of its own, which is held to laws there: a crash or a hang of it ends no run of ours.

What crashes, hangs, or leaves a device behind on which nothing can be launched any more breaks the law at hand, and the
next check finds a new process. The kit runs there, too (`serve`), as no launch can be sent somewhere else with its
arrays as they lie in memory.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from pagedkv.conformance.attention.cases import Case
from pagedkv.conformance.attention.held import Held, Measured
from pagedkv.conformance.attention.judging import Judged
from pagedkv.conformance.attention.subjects import case_of
from pagedkv.conformance.differential.in_time import SILENT
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.process.protocol import Json, read, write
from pagedkv.conformance.process.remote import MOST_LIMIT_S, SLOWER, START_LIMIT_S
from pagedkv.conformance.process.running import Running
from pagedkv.spec.attention_subject import AttentionCapabilities
from pagedkv.spec.words import Misuse

LIMIT_S: Final = 120.0
"""Seconds that a check may take, unless another limit is given: of its launches each may have to be compiled."""
LEAST_LIMIT_S: Final = 2.0
"""Seconds that it has in any case while a failure is made smaller."""


class Raised(Exception):
    """What a subject raised somewhere else; the text is the traceback."""


class Apart(Held):
    """The subject behind `module:factory`, in a process of its own that finds the modules that this one finds.

    Args:
        subject: as it would be named in this process.
        limit_s: seconds that a check may take, `LIMIT_S` if not given.

    Not for several threads at once. Raises `Misuse` if there is no such subject.
    """

    shrink_s = 60.0

    def __init__(self, subject: str, *, limit_s: float | None = None) -> None:
        self.limit_s = LIMIT_S if limit_s is None else limit_s
        if not 0 < self.limit_s <= MOST_LIMIT_S:
            raise Misuse("limit_s", limit_s, f"a number of seconds > 0, at most {MOST_LIMIT_S:g}")
        self._made_by, self._process, self._slowest_s = subject, None, 0.0
        self._told = self._answer("hello")

    _process: Running | None

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
        self._ended, self._now = Measured(), Measured()
        self._answer("begin")

    def judge(self, law: str, case: Case, *, fresh: bool = False) -> Judged:
        limit_s, start = self.limit_s, time.monotonic()
        if SILENT.get():  # one attempt of many
            limit_s = min(limit_s, max(LEAST_LIMIT_S, SLOWER * self._slowest_s))
        try:
            told = self._ask(limit_s, "judge", law=law, case=case.describe(), fresh=fresh)
        except Violation as violation:
            self._end_of_process()
            return Judged(1, violation.detail, ended=True)
        self._slowest_s = max(self._slowest_s, time.monotonic() - start)
        launches, rhos, visibility = told["measured"]
        self._now = Measured(launches, {shape: float(rho) for shape, rho in rhos.items()}, visibility)
        error = told["error"] and Raised(told["error"])
        if error:  # after an illegal access nothing can be launched on the device any more
            with suppress(Violation):
                self._ask(self.limit_s, "end")
            self._end_of_process()
        return Judged(told["checked"], told["detail"], error, told["malformed"])

    @property
    def measured(self) -> Measured:
        return self._ended.plus(self._now)

    def _end_of_process(self) -> None:
        self._ended, self._now = self.measured, Measured()

    def _answer(self, ask: str, **what: object) -> Json:
        """What belongs to no law. That it does not come is `Misuse`."""
        try:
            return self._ask(self.limit_s, ask, **what)
        except Violation as violation:
            raise Misuse("subject", f"process:{self._made_by}", f"one that answers; {violation.detail}") from violation

    def _ask(self, limit_s: float, ask: str, **what: object) -> Json:
        """Its answer. Raises `Misuse` as the subject does, and `Violation` if none comes."""
        process = self._process
        if process is None or not process.usable:
            process, limit_s = self._started(), max(limit_s, START_LIMIT_S)
        process.stderr.forget()  # what it said to another question
        answer = process.ask(write({"ask": ask, **what}), read, limit_s)
        if "misuse" in answer:
            raise Misuse(*answer["misuse"])
        if "law" in answer and "detail" in answer and "checked" not in answer:
            raise Violation(answer["law"], answer["detail"] + process.stderr.last())
        return answer

    def _started(self) -> Running:
        if self._process is not None:
            self._process.end(gently=False)
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        serve = [sys.executable, "-m", "pagedkv.conformance.attention.serve", self._made_by]
        self._process = Running(serve, {**os.environ, "PYTHONPATH": paths})
        self._process.restarts = True
        return self._process
