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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from select import POLLIN, POLLOUT, poll
from typing import IO, Final

from pagedkv.conformance.differential.in_time import IN_TIME
from pagedkv.conformance.differential.violation import Violation
from pagedkv.spec import Misuse

SURVIVES: Final = "a subject survives every operation"
ONE_LINE: Final = "an answer is one line of the protocol"

MOST_OF_A_LINE: Final = 2**28
"""Bytes of an answer; more is no answer."""
GRACE_S: Final = 1.0
"""Seconds that a program has to end by itself once its input has ended: what looks for leaks does so at the end."""
TAIL: Final = 2_000
"""Bytes of stderr that are remembered."""


class Running:
    """A started program. It ends with this object, and at the latest with the interpreter: gently, by the end of its
    input, and if it does not see that, by force."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        try:
            self._popen = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # so that it can be ended with all that it started
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Misuse("subject", " ".join(command), f"a program that can be started ({reason})") from error
        self.restarts = False
        """Whether it starts afresh with another header; then it may also give up what it hangs in."""
        self._ended = weakref.finalize(self, _end, self._popen)
        self._in, self._out, self._err = (_descriptor(pipe) for pipe in _pipes(self._popen))
        self._said, self._told = bytearray(), bytearray()
        self._listening, self._speaking = poll(), poll()
        for watch in (self._listening, self._speaking):
            watch.register(self._out, POLLIN)
            watch.register(self._err, POLLIN)
        self._speaking.register(self._in, POLLOUT)

    @property
    def usable(self) -> bool:
        """Whether it can be asked something: it runs and has said no more than it was asked."""
        return self._ended.alive and not self._said and self._popen.poll() is None and not self._unasked()

    def ask(self, line: bytes, limit_s: float) -> bytes:
        """The line that answers a line. Raises `Violation`; then it has been ended, or has given up what it did."""
        if not self._ended.alive:
            raise Violation(SURVIVES, "it has been ended: its last answer was interrupted, or no answer")
        try:
            if self._unasked():
                self._hear()  # raises if this is the end
                self._end_with(ONE_LINE, f"it said {_shown(self._said)} without being asked")
            return self._exchange(line, limit_s)
        except BaseException as failure:  # an interruption, too, after which question and answer would not fit together
            late = isinstance(failure, Violation) and failure.law == IN_TIME
            if not (late and self.restarts and self._gave_up()):
                self.end(gently=False)
            raise

    def end(self, *, gently: bool = True) -> None:
        """End the program, if it has not been ended."""
        if not gently and self._ended.alive:
            _kill(self._popen)
        self._ended()

    def _unasked(self) -> bool:
        return any(descriptor == self._out for descriptor, _ in self._listening.poll(0))

    def _gave_up(self) -> bool:
        """Interrupt it. It has given up what it did if it says, as its last line, that it did not survive it."""
        self._popen.send_signal(signal.SIGINT)
        told = b""
        with suppress(Violation):
            while SURVIVES.encode() not in told:
                told = self._exchange(b"", GRACE_S)
        return SURVIVES.encode() in told

    def _exchange(self, line: bytes, limit_s: float) -> bytes:
        left, until = memoryview(line), time.monotonic() + limit_s
        while b"\n" not in self._said:
            left = self._write(left)
            wait_ms = max(0.0, until - time.monotonic()) * 1_000
            ready = dict((self._speaking if left else self._listening).poll(wait_ms))
            if self._err in ready:
                self._pass_on_stderr()
            if self._out in ready:
                self._hear()
            if b"\n" not in self._said and time.monotonic() >= until:
                self._end_with(IN_TIME, f"no answer in {limit_s:g} s")
        answer, _, more = self._said.partition(b"\n")
        if more:
            self._end_with(ONE_LINE, f"it said {_shown(more)} after its answer")
        self._said.clear()
        return bytes(answer)

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
            self._end_with(ONE_LINE, f"it said {len(self._said)} bytes and no end of a line")

    def _how_it_ended(self) -> str:
        try:
            code = self._popen.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            return "it closed its stdout and went on"
        half = f" within the line {_shown(self._said)}" if self._said else ""
        return f"{ending(code)}{half}"

    def _end_with(self, law: str, how: str) -> None:
        """Raise, with what the program last said on stderr; `how` is what tells the fault."""
        self._pass_on_stderr()
        last = " ".join(self._told.decode(errors="replace").split())
        shown = f"; the last of its stderr: {last if len(last) < 400 else '…' + last[-400:]}" if last else ""
        raise Violation(law, how + shown, kind=how.partition(" within the line")[0] if law == SURVIVES else "")

    def _pass_on_stderr(self) -> None:
        """To our own, as it comes."""
        with suppress(BlockingIOError):
            while told := os.read(self._err, 2**16):
                self._told = (self._told + told)[-TAIL:]
                if sys.stderr is not None:
                    sys.stderr.write(told.decode(errors="replace"))
                    sys.stderr.flush()
                if len(told) < 2**16:
                    return
            for watch in (self._listening, self._speaking):  # closed: there is nothing more to wait for
                with suppress(KeyError):
                    watch.unregister(self._err)


def ending(code: int) -> str:
    """How a program ended, by its return code as `subprocess` has it.

    >>> ending(-11), ending(3)
    ('it was ended by SIGSEGV', 'it exited with code 3')
    """
    if code >= 0:
        return f"it exited with code {code}"
    with suppress(ValueError):
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it was ended by signal {-code}"


def _shown(said: bytes | bytearray) -> str:
    text = said.decode("ascii", "backslashreplace")
    return repr(text if len(text) <= 120 else text[:120] + "…")


def _pipes(popen: subprocess.Popen[bytes]) -> list[IO[bytes]]:
    return [pipe for pipe in (popen.stdin, popen.stdout, popen.stderr) if pipe is not None]


def _descriptor(pipe: IO[bytes]) -> int:
    os.set_blocking(pipe.fileno(), False)
    return pipe.fileno()


def _kill(popen: subprocess.Popen[bytes]) -> None:
    """With whatever it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, signal.SIGKILL)


def _end(popen: subprocess.Popen[bytes]) -> None:
    """End a program and whatever it started, and leave nothing of it."""
    if popen.stdin is not None:
        popen.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        popen.wait(GRACE_S)
    if popen.stderr is not None and sys.stderr is not None:  # what it says at its end, as of leaks
        sys.stderr.write((popen.stderr.read() or b"").decode(errors="replace"))
    _kill(popen)
    popen.wait()
    for pipe in _pipes(popen):
        pipe.close()
