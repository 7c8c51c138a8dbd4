"""Subjects in a process of their own: a crash or a hang of theirs ends no run of ours, and is told as what it is.

`command` runs any program that speaks the protocol (`docs/protocol.md`), `python` a Python subject under `serve`. A
factory has one process, which the subject has that was made last: a new one at every time, or the same where the
program starts afresh with another header, so that shrinking starts no interpreter at every attempt. An older subject
that is asked again all the same first does again what it did.
"""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from pagedkv.conformance.differential.by_value import ByValue
from pagedkv.conformance.differential.in_time import ALLOWED
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.process.names import Names, is_word
from pagedkv.conformance.process.protocol import (
    Answer, Broken, Hello, Json, header_json, operation_json, read, read_answer, read_hello, write,
)  # fmt: skip
from pagedkv.conformance.process.running import ONE_LINE, SURVIVES, Running, interpreter
from pagedkv.spec import Batch, Block, Config, Identity, Misuse, Operation, Outcome, RequestId
from pagedkv.spec.operations import requests_of
from pagedkv.spec.subject import Capabilities, Snapshot

T = TypeVar("T")

LIMIT_S: Final = 10.0
"""Seconds that an operation may take, unless another limit is given."""
MOST_LIMIT_S: Final = 86_400.0
"""A day, which no operation takes."""
SLOWER: Final = 3.0
"""Times as long as its slowest answer an operation may take in any case."""
START_LIMIT_S: Final = 120.0
"""Seconds that a program may take to start: it may have to import, or to compile."""


_NAMES: Final = {"request", "parent", "child", "namespace", "step"}
"""Keys whose values are names."""


def checked_limit(limit_s: float) -> float:
    """A limit in seconds, as it is given. `Misuse` if it is none."""
    if not 0 < limit_s <= MOST_LIMIT_S:
        raise Misuse("limit_s", limit_s, f"a number of seconds > 0, at most {MOST_LIMIT_S:g}")
    return limit_s


class Remote:
    """A factory of subjects that a program stands for. Not for several threads at once."""

    def __init__(
        self, command: Sequence[str], *, limit_s: float | None = None, environment: Mapping[str, str] | None = None,
        name: str = "",
    ) -> None:  # fmt: skip
        self.command, self.environment = list(command), environment
        self.name = name or f"command:{shlex.join(command)}"
        """As in `--subject`."""
        self.limit_s = checked_limit(LIMIT_S if limit_s is None else limit_s)
        self.known: Capabilities | None = None
        """What it last declared."""
        self.serves: object = None
        """Whose process it is: the latest `begin` had this mark."""
        self._process: Running | None = None
        self._slowest_s = 0.0
        """Of all operations that were answered."""

    def __call__(self, config: Config) -> "RemoteSubject":
        """A subject with an empty pool."""
        return RemoteSubject(self, config)

    def begin(self, mark: object, config: Config) -> Capabilities:
        """Start afresh. Raises `Violation`, or `Misuse` for a pool that the subject does not have."""
        process, limit_s = self._process, None
        if process is None or not process.restarts or not process.usable:
            self.end()
            process, limit_s = self._started(), max(self.limit_s, START_LIMIT_S)
        self._process, self.serves = process, mark
        process.stderr.forget()
        hello = self.ask(header_json(config), read_hello, limit_s)
        if not isinstance(hello, Hello):
            raise hello if isinstance(hello, Misuse) else self.violation(hello)
        self.known, process.restarts = hello
        return hello.capabilities

    def _started(self) -> Running:
        try:
            return Running(self.command, self.environment)
        except (OSError, ValueError) as error:
            told = f"a program that can be started; {_why_not(self.command[0], error)}"
            raise Misuse("subject", self.name, told) from error

    def ask(self, line: Json, reader: Callable[[bytes], T], limit_s: float | None = None) -> T:
        """What is read from the answer to a line. Raises `Violation`."""
        assert self._process is not None
        allowed_s = max(ALLOWED.get() or self.limit_s, SLOWER * self._slowest_s)  # a new child is slow at first, too
        start = time.monotonic()
        answer = self._process.ask(write(line), reader, limit_s or min(self.limit_s, allowed_s))
        if limit_s is None:
            self._slowest_s = max(self._slowest_s, time.monotonic() - start)
        return answer

    def violation(self, broken: Broken) -> Violation:
        """What the subject reported of itself. A death has last words, which another process reports."""
        last = self._process.stderr.last() if self._process and broken.law == SURVIVES else ""
        return Violation(broken.law, broken.detail + last, kind=broken.kind)

    def end(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.end()
        self._process = None


class RemoteSubject(ByValue):
    """A subject on the other side of two pipes.

    One operation is one question: with it is asked for what the driver wanted to see the last time. A program that
    fails when a subject is made does so as the subject's first operation, unless it never made any: then there is
    nothing to run.
    """

    def __init__(self, remote: Remote, config: Config) -> None:
        self._remote, self._config, self._mark = remote, config, object()
        self._log: list[Json] = []
        self._failure: Violation | None = None
        self._whole = True
        self._seen: Snapshot | None = None
        self._asked: Sequence[RequestId] | None = ()
        """Whom `_seen` shows; None: all."""
        self._names = Names(is_word)
        try:
            self.capabilities = remote.begin(self._mark, config)
        except Violation as failure:
            if remote.known is None:
                raise
            self.capabilities, self._failure = remote.known, failure

    def run(self, operation: Operation) -> Sequence[Outcome]:
        """Ask for an operation. Raises `Misuse` as the subject does, and `Violation` if it fails to answer."""
        return self._outcomes(operation_json(operation), requests_of(operation), batch=isinstance(operation, Batch))

    def permute(self, new_block: Sequence[Block]) -> Outcome:
        return self._outcomes({"op": "permute", "new_block": list(new_block)}, [], batch=False)[0]

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        """What was shown with the last operation, if it is enough; else it is asked for."""
        self._whole = requests is None
        enough = self._asked is None or (requests is not None and set(requests) <= set(self._asked))
        if self._seen is None or not enough:
            self._outcomes({"op": "observe"}, requests, batch=False)
        if self._seen is None:
            raise Violation(ONE_LINE, "asked for what can be seen, it showed nothing")
        return self._seen if requests is None else _restricted(self._seen, requests)

    def _outcomes(self, line: Json, named: Sequence[RequestId] | None, *, batch: bool) -> Sequence[Outcome]:
        self._seen, self._asked = None, None if self._whole else named
        observe = True if self._asked is None else [self._names.text(name) for name in self._asked]
        answer = self._ask(self._spelled(line), observe, batch)
        self._seen = answer.seen and self._renamed(answer.seen)
        if isinstance(answer.outcomes, Misuse):
            raise answer.outcomes
        assert not isinstance(answer.outcomes, Broken)
        return answer.outcomes

    def _ask(self, line: Json, observe: Any, batch: bool) -> Answer:
        if self._failure is not None:
            raise self._failure
        try:
            if self._remote.serves is not self._mark:
                self._remote.begin(self._mark, self._config)
                for earlier in self._log:
                    self._remote.ask(earlier, read)
            answer = self._remote.ask({**line, "observe": observe}, partial(read_answer, batch=batch))
            if isinstance(answer.outcomes, Broken):
                raise self._remote.violation(answer.outcomes)
        except Violation as failure:
            self._failure = failure  # what it says whenever it is asked again
            raise
        self._log.append(line)
        return answer

    def _spelled(self, line: Json) -> Json:
        """With words as names."""
        for key in _NAMES & line.keys():
            line[key] = self._names.text(line[key])
        if "ops" in line:
            line["ops"] = [self._spelled(row) for row in line["ops"]]
        return line

    def _renamed(self, seen: Snapshot) -> Snapshot:
        """With the names that the words stand for."""
        of, index = self._names.id, seen.index
        return Snapshot(
            tables={of(str(word)): table for word, table in seen.tables.items()},
            lengths={of(str(word)): lengths for word, lengths in seen.lengths.items()},
            available_blocks=seen.available_blocks,
            references=seen.references,
            index=index and {block: Identity(of(str(i.namespace)), i.tokens) for block, i in index.items()},
        )


def _restricted(seen: Snapshot, requests: Sequence[RequestId]) -> Snapshot:
    """What was to be shown of what was; a subject may show more."""
    return Snapshot(
        tables={request: table for request, table in seen.tables.items() if request in requests},
        lengths={request: lengths for request, lengths in seen.lengths.items() if request in requests},
        available_blocks=seen.available_blocks,
    )


def _why_not(program: str, error: Exception) -> str:
    """Why a program cannot be started, and what helps."""
    path = Path(program)
    if isinstance(error, PermissionError) and path.is_file():
        return f"{program} is not executable: chmod +x {program}, or put before it what runs it"
    if isinstance(error, FileNotFoundError) and path.name == program:
        return f"there is no {program} on the PATH" + (f", but ./{program} is there" if path.is_file() else "")
    if isinstance(error, FileNotFoundError):
        return f"what the first line of {program} names is not there" if path.is_file() else f"there is no {program}"
    return f"{program}: {getattr(error, 'strerror', None) or error}"


def command(line: str, *, limit_s: float | None = None) -> Remote:
    """Subjects that a program makes, given as on a command line: `./my_subject --flag`."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise Misuse("subject", f"command:{line}", f"a command line after command: ({error})") from error
    if not words:
        raise Misuse("subject", f"command:{line}", "a program and its arguments after command:")
    return Remote(words, limit_s=limit_s, name=f"command:{line}")


def python(name: str, *, limit_s: float | None = None) -> Remote:
    """Subjects made by a factory in Python, in an interpreter of its own that finds the modules that this one finds."""
    serve, environment = interpreter("pagedkv.conformance.process.serve", name)
    return Remote(serve, limit_s=limit_s, environment=environment, name=f"process:{name}")
