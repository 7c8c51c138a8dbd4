"""Subjects in a process of their own: the same reports, and every way to fail told as what it is."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.in_time import IN_TIME
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.replay import replay
from pagedkv.conformance.process.remote import Remote
from pagedkv.conformance.process.running import SURVIVES, Running
from pagedkv.conformance.search import exhaustive, fuzz
from pagedkv.conformance.search.slices import SLICES
from pagedkv.conformance.subjects import subject
from pagedkv.spec import Admit, Append, Commit, Config, Fork, Free, Misuse, Operation
from pagedkv.spec.trace import sample

CONFIG = Config(num_blocks=4, block_size=2)
PROGRAM: tuple[Operation, ...] = (
    Admit("a", (1, 2, 3)), Append("nobody", (1,)), Commit("a", 3), Fork("a", "b"), Append("b", (4,)), Free("a"),
)  # fmt: skip
DYING = "process:tests.conformance.dying:"


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


def test_the_last_words_are_told_and_passed_on_once(capsys: pytest.CaptureFixture[str]) -> None:
    """And not again at every attempt to make the program short."""
    found = fuzz.run(subject(DYING + "AbortsOnFork"), seed=1, programs=60).violation
    assert found is not None
    assert found.law == SURVIVES
    assert found.detail == "it was ended by SIGABRT; its stderr: dying: cannot fork"
    assert capsys.readouterr().err == "dying: cannot fork\n"


def test_last_words_are_those_of_the_subject_that_says_them() -> None:
    """Not of one that had the same process before."""
    remote = remote_of("AbortsOnFork")
    told = []
    for program in (PROGRAM, PROGRAM[:3], PROGRAM):
        _, violation = run(remote, program)
        told.append(violation.detail if violation else "")
    assert told == ["it was ended by SIGABRT; its stderr: dying: cannot fork", "", told[0]]


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
        ("process:process:reference", "module:factory"),
        ("process:command:true", "module:factory"),
        ("command:", "a program and its arguments"),
        ("command:'", "a command line"),
        ("command:/no/such/program --flag", "there is no /no/such/program"),
    ],
)
def test_what_is_no_subject_is_misuse_of_its_name(name: str, expected: str) -> None:
    with pytest.raises(Misuse, match=r"^subject=") as misuse:
        subject(name)(CONFIG)
    assert str(misuse.value).startswith(f"subject={name!r} is not allowed: expected ")
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

    def counted(self: Running, line: bytes, reader: Callable[[bytes], Any], limit_s: float) -> Any:
        asked.append(line)
        return ask(self, line, reader, limit_s)

    monkeypatch.setattr(Running, "ask", counted)
    differential = Differential(subject("process:reference"), CONFIG, touched_only=touched_only)
    for operation in PROGRAM:
        differential.step(operation)
    differential.check_all()
    assert len(asked) == 1 + len(PROGRAM) + touched_only  # the whole at the end has been seen already, or has not
