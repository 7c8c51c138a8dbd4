"""Every way in which a program can fail, told as what it is at the first bad step, and nothing of it left over."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pagedkv.conformance.differential.in_time import IN_TIME, attempting
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.process import ending, running
from pagedkv.conformance.process.protocol import header_json, operation_json, write
from pagedkv.conformance.process.remote import Remote
from pagedkv.conformance.process.running import ONE_LINE, SURVIVES, Running
from pagedkv.conformance.process.serve import Server
from pagedkv.reference.manager import BlockManager

from tests.conformance.test_remote import CONFIG, DYING, PROGRAM, run

SCRIPTED = Path(__file__).with_name("scripted.py")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the reference answers to the program."""
    server = Server(BlockManager)
    lines = [write(header_json(CONFIG)), *(write({**operation_json(o), "observe": True}) for o in PROGRAM)]
    path = tmp_path_factory.mktemp("scripted") / "answers"
    path.write_bytes(b"".join(map(server.answer, lines)).replace(b',"restarts":true', b""))
    return path


def scripted(answers: Path, how: str, step: int, limit_s: float = 30.0) -> Remote:
    return Remote([sys.executable, "-ISE", str(SCRIPTED), str(answers), how, str(step)], limit_s=limit_s)


WAYS = {
    "raises SIGSEGV": (SURVIVES, "it was ended by SIGSEGV"),
    "raises SIGABRT": (SURVIVES, "it was ended by SIGABRT"),
    "raises SIGKILL": (SURVIVES, "it was ended by SIGKILL"),
    "exits with 0": (SURVIVES, "it exited with code 0; its stderr: scripted: cannot go on"),
    "exits with 3": (SURVIVES, "it exited with code 3; its stderr: scripted: cannot go on"),
    "exits within a line": (SURVIVES, "it exited with code 1 within the line "),
    "hangs": (IN_TIME, "no answer in 0.3 s"),
    "hangs within a line": (IN_TIME, "no answer in 0.3 s"),
    "talks for ever": (IN_TIME, "no answer in 0.3 s"),
    "closes stdout": (SURVIVES, "it closed its stdout and went on"),
    "says hello": (ONE_LINE, "'hello'"),
    "answers with a list": (ONE_LINE, "one JSON object"),
    "answers with an unknown key": (ONE_LINE, "'colour'"),
    "answers with an unknown outcome": (ONE_LINE, "'perhaps'"),
    "answers twice": (ONE_LINE, "after its answer"),
    "debugs before its answer": (ONE_LINE, "it answered 'debug: freeing', expected one JSON object"),
    "debugs behind its answer": (ONE_LINE, "it said 'debug: freed' after its answer"),
    "says bytes that are no text": (ONE_LINE, "expected UTF-8"),
    "says NaN": (ONE_LINE, "NaN"),
    "says a key twice": (ONE_LINE, "each key once"),
    "nests deeply": (ONE_LINE, "one JSON object"),
    "says a number of 5000 digits": (ONE_LINE, "one JSON object"),
    "floods stderr": (IN_TIME, "no answer in 0.3 s; its stderr: xxx"),
    "leaves a child with its pipes": (SURVIVES, "it was ended by SIGSEGV"),
}


def test_a_subject_that_does_what_it_should_is_not_failed(answers: Path) -> None:
    assert run(scripted(answers, "behaves", 0)) == (len(PROGRAM), None)
    assert run(scripted(answers, "writes much to stderr", 2)) == (len(PROGRAM), None)


SLOW = ("hangs", "hangs within a line", "talks for ever", "closes stdout", "floods stderr")
"""Each waits for its limit, so only one of the steps is tried."""
LAST = len(PROGRAM)
CASES = [(how, step) for how in WAYS for step in range(LAST + 1) if how not in SLOW or step == 2]


def test_whoever_waits_for_an_answer_is_told_once(
    answers: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "NOTICE_S", 0.1)
    monkeypatch.setattr(running, "LOOK_S", 0.05)
    run(scripted(answers, "hangs", 3, limit_s=0.4))
    assert capsys.readouterr().err == "no answer for 0 s; it is ended after 0.4 s\n"


def test_what_is_too_long_for_a_line_is_none(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_OF_A_LINE", 10_000)
    steps, violation = run(scripted(answers, "talks for ever", 2))
    assert violation is not None
    assert (steps, violation.law) == (2, ONE_LINE)
    assert "bytes and no end of a line" in violation.detail


def test_an_attempt_waits_no_longer_than_it_may(answers: Path) -> None:
    """However long the subject has otherwise."""
    with attempting(0.2):
        steps, violation = run(scripted(answers, "hangs", 3, limit_s=600.0))
    assert (steps, str(violation.detail if violation else "")) == (3, "no answer in 0.2 s")


def test_an_attempt_remembers_what_is_said_on_stderr_and_passes_nothing_on(
    answers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with attempting(30.0):
        _, violation = run(scripted(answers, "exits with 3", 2))
    assert violation is not None
    assert violation.detail.endswith("its stderr: scripted: cannot go on")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("how", "step"), CASES)
def test_each_way_to_fail_is_told_at_the_first_bad_step(how: str, step: int, answers: Path) -> None:
    law, detail = WAYS[how]
    steps, violation = run(scripted(answers, how, step, limit_s=0.3 if how in SLOW else 30.0))
    assert violation is not None
    assert (steps, violation.law) == (step, law)
    assert detail in violation.detail
    assert violation.operation == (PROGRAM[step - 1] if step else None)


# --- nothing is left over -------------------------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> set[str]:
    """Processes of ours: what ran before in this one may have left some, as Python's own trackers of resources."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors and children are counted in /proc")
@pytest.mark.parametrize(
    "how",
    ["behaves", "raises SIGSEGV", "hangs", "answers twice", "leaves a child with its pipes",
     "ignores the end of its input", "leaves a child that ignores it"],
)  # fmt: skip
def test_no_descriptor_and_no_process_is_left(how: str, answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "GRACE_S", 0.1)
    step, limit_s = (3, 0.1) if how == "hangs" else (LAST if "ignores" in how else 3, 30.0)
    others = children()
    run(scripted(answers, how, step, limit_s))
    gc.collect()
    before = descriptors()
    for _ in range(3):
        run(scripted(answers, how, step, limit_s))
        gc.collect()
    assert descriptors() == before
    assert children() <= others


def test_who_is_ended_by_force_is_still_who_it_was(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a program has been waited for, its id may be that of any other process, and of its group."""
    ended, killpg = [], os.killpg

    def checked(group: int, number: int) -> None:
        ended.append(os.waitid(os.P_PID, group, os.WEXITED | os.WNOHANG | os.WNOWAIT))  # raises if it is gone
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", checked)
    for how in ("behaves", "exits with 3", "raises SIGSEGV", "answers twice"):
        remote = scripted(answers, how, 3)
        run(remote)
        remote.end()
    assert len(ended) >= 4


def test_who_is_tired_of_waiting_for_an_end_leaves_no_process(answers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = scripted(answers, "ignores the end of its input", LAST)
    run(remote)
    assert remote._process is not None
    pid = remote._process._popen.pid
    with monkeypatch.context() as tired:
        tired.setattr(time, "sleep", lambda seconds: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            remote.end()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="whether a process runs is read in /proc")
def test_what_a_dead_program_has_started_is_ended(answers: Path) -> None:
    _, violation = run(scripted(answers, "leaves a child with its pipes", 3))
    assert violation is not None
    child = Path("/proc") / violation.detail.rpartition(" ")[2]
    until = time.monotonic() + 60
    while child.exists() and ") Z " not in (child / "stat").read_text(encoding="utf-8"):
        assert time.monotonic() < until
        time.sleep(0.02)


ANSWERS_LATE = """
import signal, time
def late(*_):
    print('{"outcome":"ok","x-note":"a subject survives every operation"}', flush=True)
signal.signal(signal.SIGINT, late)
input()
while True:
    time.sleep(600)
"""


def test_only_who_says_that_it_gave_up_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "GRACE_S", 0.3)
    program = Running([sys.executable, "-ISEc", ANSWERS_LATE])
    program.restarts = True
    with pytest.raises(Violation, match="no answer in"):
        program.ask(b"{}\n", bytes, 1.0)
    assert not program.usable


def test_an_interrupted_run_leaves_no_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    fuzzing = [sys.executable, "-m", "pagedkv.cli.main", "fuzz", "--subject", DYING + "HangsOnFork"]
    kit = subprocess.Popen(
        [*fuzzing, "--out", str(tmp_path)], env={**os.environ, "DYING_PID": str(pid_file)}, stderr=subprocess.PIPE
    )
    until = time.monotonic() + 60
    while not pid_file.exists() or not pid_file.read_text(encoding="utf-8"):
        assert kit.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    kit.send_signal(signal.SIGINT)
    _, told = kit.communicate(timeout=60)
    assert kit.returncode == 130, told
    hanging = int(pid_file.read_text(encoding="utf-8"))
    while time.monotonic() < until:
        try:
            os.kill(hanging, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {hanging} is still there")
