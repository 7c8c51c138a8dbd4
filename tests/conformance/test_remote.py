"""Subjects in a process of their own: the same reports, and every way to fail told as what it is."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.in_time import IN_TIME
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.replay import replay
from pagedkv.conformance.process.protocol import header_json, operation_json, write
from pagedkv.conformance.process.remote import Remote
from pagedkv.conformance.process.running import ONE_LINE, SURVIVES, Running
from pagedkv.conformance.process.serve import Server
from pagedkv.conformance.search import exhaustive, fuzz
from pagedkv.conformance.search.slices import SLICES
from pagedkv.conformance.subjects import subject
from pagedkv.reference.manager import BlockManager
from pagedkv.spec import Admit, Append, Commit, Config, Fork, Free, Misuse, Operation
from pagedkv.spec.trace import sample

CONFIG = Config(num_blocks=4, block_size=2)
PROGRAM: tuple[Operation, ...] = (
    Admit("a", (1, 2, 3)), Append("nobody", (1,)), Commit("a", 3), Fork("a", "b"), Append("b", (4,)), Free("a"),
)  # fmt: skip
SCRIPTED = Path(__file__).with_name("scripted.py")
DYING = "process:tests.conformance.dying:"


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


def run(remote: Remote, program: Sequence[Operation] = PROGRAM) -> tuple[int, Violation | None]:
    """Operations asked for, and what was violated."""
    differential = None
    try:
        differential = Differential(remote, CONFIG)
        for operation in program:
            differential.step(operation)
    except Violation as violation:
        return len(differential.log) if differential else 0, violation
    return len(program), None


WAYS = {
    "raises SIGSEGV": (SURVIVES, "it was ended by SIGSEGV"),
    "raises SIGABRT": (SURVIVES, "it was ended by SIGABRT"),
    "raises SIGKILL": (SURVIVES, "it was ended by SIGKILL"),
    "exits with 0": (SURVIVES, "it exited with code 0; the last of its stderr: scripted: cannot go on"),
    "exits with 3": (SURVIVES, "it exited with code 3; the last of its stderr: scripted: cannot go on"),
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
}


def test_a_subject_that_does_what_it_should_is_not_failed(answers: Path) -> None:
    assert run(scripted(answers, "behaves", 0)) == (len(PROGRAM), None)
    assert run(scripted(answers, "writes much to stderr", 2)) == (len(PROGRAM), None)


SLOW = ("hangs", "hangs within a line", "talks for ever", "closes stdout")
"""Each waits for its limit, so only one of the steps is tried."""
LAST = len(PROGRAM)
CASES = [(how, step) for how in WAYS for step in range(LAST + 1) if how not in SLOW or step == 2]


@pytest.mark.parametrize(("how", "step"), CASES)
def test_each_way_to_fail_is_told_at_the_first_bad_step(how: str, step: int, answers: Path) -> None:
    law, detail = WAYS[how]
    steps, violation = run(scripted(answers, how, step, limit_s=0.3 if how in SLOW else 30.0))
    assert violation is not None
    assert (steps, violation.law) == (step, law)
    assert detail in violation.detail
    assert violation.operation == (PROGRAM[step - 1] if step else None)


# --- Python subjects ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--hypothesis-seed") or 0)


def test_a_process_of_its_own_changes_no_report(seed: int) -> None:
    """Outcome for outcome: counts, refusals, events and the rest of the report are the same."""
    here, there = (fuzz.run(subject(name), seed=seed, programs=12) for name in ("reference", "process:reference"))
    assert there.violation is None, there.violation
    assert replace(here, seconds=0.0) == replace(there, seconds=0.0)


@pytest.mark.parametrize("touched_only", [False, True])
def test_the_sample_of_every_operation_replays(touched_only: bool) -> None:
    report = replay(sample(), subject("process:reference"), touched_only=touched_only)
    assert report.verdict == "holds", report


DEATHS = {
    "SegfaultsOnSharedAppend": (SURVIVES, "it was ended by SIGSEGV"),
    "HangsOnFork": (IN_TIME, "no answer in 0.1 s"),
    "ExitsWhenObserved": (SURVIVES, "it exited with code 7"),
    "AbortsWhenMade": (SURVIVES, "it was ended by SIGABRT"),
}


@pytest.mark.parametrize("name", DEATHS)
def test_a_death_is_found_and_its_program_made_short(name: str) -> None:
    """As any other failure, each attempt in a living process; the trace replays to the same end."""
    law, detail = DEATHS[name]
    factory = subject(DYING + name, limit_s=0.1 if law == IN_TIME else 60.0)
    report = fuzz.run(factory, seed=1, programs=60)
    assert report.violation is not None
    assert (report.violation.law, report.violation.detail) == (law, detail)
    assert len(report.violation.trace.lines) <= 5
    again = replay(report.violation.trace, factory)
    assert (again.verdict, again.law) == ("violation", law)


def test_what_a_subject_prints_is_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(remote_of("Prints")) == (len(PROGRAM), None)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.count('{"outcome":"ok"}') == 2


def remote_of(name: str) -> Remote:
    factory = subject(DYING + name)
    assert isinstance(factory, Remote)
    return factory


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("process:no_such_module:Subject", "there is no no_such_module"),
        ("process:tests.conformance.dying:Nobody", "a function or class in tests.conformance.dying"),
        ("process:nobody", "module:factory"),
        ("command:", "a program and its arguments"),
        ("command:'", "a command line"),
        ("command:/no/such/program --flag", "No such file or directory"),
    ],
)
def test_what_is_no_subject_is_misuse_of_its_name(name: str, expected: str) -> None:
    with pytest.raises(Misuse, match=r"^subject=") as misuse:
        subject(name)(CONFIG)
    assert expected in str(misuse.value)


def test_after_an_interruption_nothing_is_asked_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Question and answer would not fit together; the next subject is well."""
    remote = remote_of("Prints")
    made = remote(CONFIG)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(Running, "_hear", lambda self: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            made.free("nobody")
    with pytest.raises(Violation, match="it has been ended"):
        made.free("nobody")
    assert run(remote) == (len(PROGRAM), None)


@pytest.mark.parametrize("limit_s", [0, -1.0, float("inf"), float("nan")])
def test_a_limit_is_positive_and_for_a_process(limit_s: float) -> None:
    with pytest.raises(Misuse, match="limit_s"):
        subject("process:reference", limit_s=limit_s)
    with pytest.raises(Misuse, match="process:reference"):
        subject("reference", limit_s=1.0)


def test_a_pool_that_the_subject_does_not_have_is_misuse_as_in_this_process() -> None:
    told = []
    for name in ("tests.tools.bad_subjects:Small", "process:tests.tools.bad_subjects:Small"):
        with pytest.raises(Misuse) as misuse:
            subject(name)(CONFIG)
        told.append((misuse.value.argument, str(misuse.value)))
    assert told[0] == told[1]


def test_names_of_any_kind_come_back_as_they_were() -> None:
    made = subject("process:reference")(CONFIG)
    made.admit(("tenant", 7), (1, 2), namespace=3)
    made.commit(("tenant", 7), 2)
    made.admit('quo"ted, ünd {mehr}', (1,))
    seen = made.observe()
    assert set(seen.lengths) == {("tenant", 7), 'quo"ted, ünd {mehr}'}
    assert seen.index is not None
    assert {identity.namespace for identity in seen.index.values()} == {3}


# --- one process, many subjects -------------------------------------------------------------------------------------


def test_an_older_subject_that_is_asked_again_is_as_it_was() -> None:
    remote = remote_of("SegfaultsOnSharedAppend")
    first, second = Differential(remote, CONFIG), Differential(remote, replace(CONFIG, num_blocks=3))
    for operation in PROGRAM[:4]:
        first.step(operation)
        second.step(operation)
    with pytest.raises(Violation, match="SIGSEGV"):
        first.step(PROGRAM[4])
    second.check_all()
    with pytest.raises(Violation, match="SIGSEGV"):  # it stays dead
        first.check_all()


def test_every_state_of_a_slice_needs_one_process() -> None:
    report = exhaustive.run(subject("process:reference"), SLICES["core"], max_states=12)
    assert report.violation is None, report.violation
    assert report.states == 12


@pytest.mark.parametrize("touched_only", [False, True])
def test_one_operation_is_one_question(touched_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    ask = Running.ask

    def counted(self: Running, line: bytes, limit_s: float) -> bytes:
        asked.append(line)
        return ask(self, line, limit_s)

    monkeypatch.setattr(Running, "ask", counted)
    differential = Differential(subject("process:reference"), CONFIG, touched_only=touched_only)
    for operation in PROGRAM:
        differential.step(operation)
    differential.check_all()
    assert len(asked) == 1 + len(PROGRAM) + touched_only  # the whole at the end has been seen already, or has not


# --- nothing is left over -------------------------------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> set[str]:
    """Processes of ours: what ran before in this one may have left some, as Python's own trackers of resources."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors and children are counted in /proc")
@pytest.mark.parametrize("how", ["behaves", "raises SIGSEGV", "hangs", "answers twice"])
def test_no_descriptor_and_no_process_is_left(how: str, answers: Path) -> None:
    others = children()
    run(scripted(answers, how, 3, limit_s=0.3 if how == "hangs" else 30.0))
    gc.collect()
    before = descriptors()
    for _ in range(3):
        run(scripted(answers, how, 3, limit_s=0.1 if how == "hangs" else 30.0))
        gc.collect()
    assert descriptors() == before
    assert children() <= others


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
