"""A program that is asked line by line, watched: that it lives, answers in time, and speaks when it is asked.

However it fails, what comes of it is a `Violation` that names the law, so that to the driver a crash is a failure like
any other. Only POSIX systems can wait for a pipe with a limit, which is why only those have it.
"""

import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from select import POLLIN, POLLOUT, poll
from typing import IO, Final, NoReturn, TypeVar

from pagedkv.conformance.counted import counted
from pagedkv.conformance.differential.in_time import IN_TIME, NOTICE_S
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.process.ending import GRACE_S, ended, ending, kill, leave_nothing
from pagedkv.conformance.process.protocol import read
from pagedkv.conformance.process.stderr import Stderr
from pagedkv.spec import Misuse
from pagedkv.spec.misuse import shown

T = TypeVar("T")

SURVIVES: Final = "a subject survives every operation"
ONE_LINE: Final = "an answer is one line of the protocol"

MOST_OF_A_LINE: Final = 2**28
"""Bytes of an answer; more is no answer."""
LOOK_S: Final = 0.5
"""Seconds between two looks whether it still runs: what it has started may hold its pipes when it does not."""


def interpreter(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command that runs a module in an interpreter of its own, and the environment in which it finds the modules
    that this one finds."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return [sys.executable, "-m", module, *arguments], {**os.environ, "PYTHONPATH": paths}


class Running:
    """A started program. It ends with this object, and at the latest with the interpreter: gently, by the end of its
    input, and if it does not see that, by force. Raises what `subprocess` raises if it cannot be started."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._popen = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # so that it can be ended with all that it started
        )
        self.restarts = False
        """Whether it starts afresh with another header; then it may also give up what it hangs in."""
        self._in, self._out = _descriptor(self._popen.stdin), _descriptor(self._popen.stdout)
        self.stderr = Stderr(_descriptor(self._popen.stderr))
        self._ended = weakref.finalize(self, leave_nothing, self._popen, self.stderr)
        self._said, self._noticed = bytearray(), False
        self._listening, self._speaking = poll(), poll()
        for watch in (self._listening, self._speaking):
            watch.register(self._out, POLLIN)
            watch.register(self.stderr.descriptor, POLLIN)
        self._speaking.register(self._in, POLLOUT)

    @property
    def usable(self) -> bool:
        """Whether it can be asked something: it runs and has said no more than it was asked."""
        return self._ended.alive and not self._said and ended(self._popen) is None and not self._unasked()

    def ask(self, line: bytes, reader: Callable[[bytes], T], limit_s: float) -> T:
        """What is read from the line that answers a line; `reader` raises `Misuse` of what is no answer.

        Raises `Violation`; then it has been ended, or has given up what it did.
        """
        if not self._ended.alive:
            raise Violation(SURVIVES, "it has been ended: its last answer was interrupted, or no answer")
        self.stderr.begin()
        self._noticed = False
        try:
            if self._unasked():
                self._hear()  # raises if this is the end
                self._end_with(ONE_LINE, f"it said {_shown(self._said)} without being asked")
            answer = self._read(reader, self._exchange(line, limit_s))
            if self._said:
                self._end_with(ONE_LINE, f"it said {_shown(self._said)} after its answer")
            return answer
        except BaseException as failure:  # an interruption, too, after which question and answer would not fit together
            late = isinstance(failure, Violation) and failure.law == IN_TIME
            if not (late and self.restarts and self._gave_up()):
                self.end(gently=False)
            raise

    def unasked(self) -> bytes:
        """The line that makes it unusable, for it said that without being asked. Raises `Violation` if it has ended."""
        if self._unasked():
            self._hear()
        if not self._said:
            self._end_with(SURVIVES, self._how_it_ended())
        line, _, self._said = self._said.partition(b"\n")
        return bytes(line)

    def end(self, *, gently: bool = True) -> None:
        """End the program, if it has not been ended."""
        if not gently and self._ended.alive:
            kill(self._popen)
        self._ended()

    def _unasked(self) -> bool:
        return any(descriptor == self._out for descriptor, _ in self._listening.poll(0))

    def _gave_up(self) -> bool:
        """Interrupt it. It has given up what it did if it says, as its last line, that it did not survive it."""
        os.kill(self._popen.pid, signal.SIGINT)
        until = time.monotonic() + GRACE_S
        with suppress(Violation, Misuse):
            while time.monotonic() < until:
                told = read(self._exchange(b"", until - time.monotonic()))
                if told.get("law") == SURVIVES:
                    return not self._said
        return False

    def _read(self, reader: Callable[[bytes], T], answer: bytes) -> T:
        try:
            return reader(answer)
        except Misuse as wrong:
            where = "" if wrong.argument == "line" else f": {wrong.argument}={shown(wrong.value)}"
            self._end_with(ONE_LINE, f"it answered {_shown(answer)}{where}, expected {wrong.allowed}", wrong)

    def _exchange(self, line: bytes, limit_s: float) -> bytes:
        """The next line that it says. What it said besides is left."""
        left, until = memoryview(line), time.monotonic() + limit_s
        end = self._said.find(b"\n")
        while end < 0:
            left = self._write(left)
            wait_s = max(0.0, until - time.monotonic())
            ready = dict((self._speaking if left else self._listening).poll(min(wait_s, LOOK_S) * 1_000))
            if self.stderr.descriptor in ready and not self.stderr.pass_on():
                self._without_stderr()
            if self._out in ready:
                heard = len(self._said)
                self._hear()
                end = self._said.find(b"\n", heard)
            if end < 0 and (not ready or time.monotonic() >= until):
                self._check(limit_s, until)
        answer = bytes(self._said[:end])
        del self._said[: end + 1]
        return answer

    def _check(self, limit_s: float, until: float) -> None:
        """That it runs, and that its time is not up. Who has its stdout, as what it started, may hold it open."""
        if (code := ended(self._popen)) is not None:
            self._end_with(SURVIVES, ending(code))
        left_s = until - time.monotonic()
        if left_s <= 0:
            self._end_with(IN_TIME, f"no answer in {limit_s:g} s")
        if left_s <= limit_s - NOTICE_S and not self._noticed:
            self._noticed = True
            self.stderr.write(f"no answer for {limit_s - left_s:.0f} s; it is ended after {limit_s:g} s\n")

    def _write(self, left: memoryview) -> memoryview:
        """What is left to be written."""
        try:
            return left[os.write(self._in, left) :] if left else left
        except BlockingIOError:
            return left
        except BrokenPipeError:  # what it said before it ended, or that it did, is still to be read
            return left[:0]

    def _hear(self) -> None:
        said = os.read(self._out, 2**20)
        self._said += said
        if not said:
            self._end_with(SURVIVES, self._how_it_ended())
        if len(self._said) > MOST_OF_A_LINE:
            self._end_with(ONE_LINE, f"it said {counted(len(self._said), 'bytes')} and no end of a line")

    def _how_it_ended(self) -> str:
        code = ended(self._popen, GRACE_S, self.stderr)
        if code is None:
            return "it closed its stdout and went on"
        half = f" within the line {_shown(self._said)}" if self._said else ""
        return f"{ending(code)}{half}"

    def _end_with(self, law: str, how: str, cause: Exception | None = None) -> NoReturn:
        """Raise, with what the program last said on stderr; `how` is what tells the fault."""
        kind = how.partition(" within the line")[0] if law == SURVIVES else ""
        raise Violation(law, how + self.stderr.last(), kind=kind) from cause

    def _without_stderr(self) -> None:
        """It has closed it: there is nothing more to wait for."""
        for watch in (self._listening, self._speaking):
            with suppress(KeyError):
                watch.unregister(self.stderr.descriptor)


def _shown(said: bytes | bytearray) -> str:
    text = bytes(said[:200]).decode("ascii", "backslashreplace").rstrip()
    return repr(text if len(text) <= 120 else text[:120] + "…")


def _descriptor(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    os.set_blocking(pipe.fileno(), False)
    return pipe.fileno()
