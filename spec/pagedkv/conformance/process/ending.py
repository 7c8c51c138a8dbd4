"""How programs end, and that nothing of them is left.

A program that has ended is not waited for until everything that it started is ended, too: so long its id is no other
process's, and neither is that of its group.
"""

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Final

from pagedkv.conformance.process.stderr import Stderr

GRACE_S: Final = 1.0
"""Seconds that a program has to end by itself once its input has ended: what looks for leaks does so at the end."""


def ended(popen: subprocess.Popen[bytes], wait_s: float = 0.0, stderr: Stderr | None = None) -> int | None:
    """The return code of a program, as `subprocess` has it; None if it goes on after `wait_s`. Its stderr, if given,
    is passed on meanwhile."""
    until, pause_s = time.monotonic() + wait_s, 0.0005
    while (code := _code(popen)) is None and time.monotonic() < until:
        if stderr is not None:
            stderr.pass_on()
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.02)
    return code


def _code(popen: subprocess.Popen[bytes]) -> int | None:
    if popen.returncode is not None or not hasattr(os, "waitid"):  # some systems only tell what is then forgotten
        return popen.poll()
    try:
        told = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # somebody else in this interpreter has waited for it
        return popen.poll()
    if told is None:
        return None
    return told.si_status if told.si_code == os.CLD_EXITED else -told.si_status


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


def kill(popen: subprocess.Popen[bytes]) -> None:
    """End a program by force, with whatever it started, unless it has been waited for."""
    if popen.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(popen.pid, signal.SIGKILL)


def leave_nothing(popen: subprocess.Popen[bytes], stderr: Stderr) -> None:
    """End a program and whatever it started: gently, by the end of its input, then by force."""
    if popen.stdin is not None:
        popen.stdin.close()
    try:
        ended(popen, GRACE_S, stderr)
    finally:  # also if somebody is tired of waiting
        kill(popen)
        stderr.pass_on()  # what it says at its end, as of leaks
        popen.wait()
        for pipe in (popen.stdout, popen.stderr):
            if pipe is not None:
                pipe.close()
