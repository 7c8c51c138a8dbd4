"""A kernel in a process of its own: held to the same, and what ends its process breaks one law."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from pagedkv.conformance.attention import Case, Configuration, check_law, run
from pagedkv.conformance.attention import apart
from pagedkv.conformance.attention.apart import Apart
from pagedkv.conformance.attention.cases import case_of
from pagedkv.conformance.attention.held import Here, smallest
from pagedkv.conformance.attention.pins import Pin, changed
from pagedkv.conformance.attention.report import AttentionReport
from pagedkv.conformance.attention.subjects import made
from pagedkv.conformance.process.running import Running
from pagedkv.spec import Misuse
from tests.conformance import apart_kernels

HERE = "tests.conformance.apart_kernels"
PLAIN = [Configuration("float32")]
TAIL = Case(lengths=(5, 2), query_lens=(1, 1), head_dim=8)
"""With a table entry past the end of a request."""


def without_time(report: AttentionReport) -> dict[str, Any]:
    """What a run found, with the text of what was raised."""
    return {**report.as_json(), "elapsed_s": 0, "errors": [failure.error is None for failure in report.failures]}


@pytest.mark.parametrize("name", ["Tiled", "Infinite"])
def test_it_is_held_to_the_same_as_in_this_process(name: str) -> None:
    reports = [run(made(f"{where}{HERE}:{name}"), size="tiny") for where in ("", "process:")]
    assert without_time(reports[0]) == without_time(reports[1])
    assert reports[0].ok == (name == "Tiled")
    json.dumps(reports[1].as_json(), allow_nan=False)


def test_what_it_raises_has_its_traceback() -> None:
    subjects = apart_kernels.LosesTheDevice(), Apart(f"{HERE}:LosesTheDevice")
    here, there = (run(subject, only=PLAIN, size="tiny", shrink=False) for subject in subjects)
    (failure,) = there.failures
    assert (failure.law, failure.detail) == (here.failures[0].law, here.failures[0].detail)
    assert "in fail\n" in str(failure.error)
    assert {each.law for each in here.failures} > {"table_tail"}  # in this process everything afterwards raises, too


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Aborts", "it was ended by SIGABRT; its stderr: tables: assertion failed"),
        ("Exits", "it exited with code 3"),
        ("Hangs", "no answer in 1 s"),
    ],
)
def test_what_ends_its_process_breaks_the_law_at_hand_and_no_other(
    name: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    subject, small = Apart(f"{HERE}:{name}", limit_s=1.0), name != "Hangs"  # which would take a second an attempt
    report = run(subject, only=PLAIN, size="tiny", shrink=small)
    (failure,) = report.failures
    assert (failure.law, failure.kind, failure.detail) == ("table_tail", "relation", told)
    case = case_of(failure.case)
    assert len(case.lengths) <= 2 or not small
    assert all(count.failed == 0 for law, count in report.laws.items() if law != "table_tail")
    right = run(apart_kernels.Decodes(), only=PLAIN, size="tiny")
    same = set(right.laws) & set(report.laws) - {"table_tail"}
    assert {law: report.laws[law] for law in same} == {law: right.laws[law] for law in same}
    assert check_law(subject, "table_tail", case) == told
    times = capfd.readouterr().err.count("assertion failed")
    assert (1 <= times <= 3) == (name == "Aborts")  # not at every attempt to make it smaller


@pytest.mark.parametrize("name", ["Aborts", "Exits", "Raises", "LosesTheDevice"])
def test_one_that_is_held_to_nothing_else_can_fail(name: str) -> None:
    """As the command does that repeats a failure, and the check of a pin."""
    assert check_law(Apart(f"{HERE}:{name}"), "table_tail", TAIL)
    assert changed(Pin("table_tail", TAIL, "-"), Apart(f"{HERE}:{name}")) is None


def test_to_make_it_is_no_part_of_a_check() -> None:
    """So a case that only waits for it is none that fails, and no other law is broken by its being made anew."""
    report = run(Apart(f"{HERE}:AbortsIfLong", limit_s=2.0), only=PLAIN, size="tiny", stop_at_first=True)
    (failure,) = report.failures
    assert failure.detail == "it was ended by SIGABRT"
    assert max(case_of(failure.case).lengths) > 8
    assert check_law(Apart(f"{HERE}:AbortsIfLong", limit_s=2.0), failure.law, case_of(failure.case)) == failure.detail


def test_a_limit_that_is_told_is_one_that_was_given() -> None:
    """Attempts at smaller cases have less time; the one that is left is tried with all of it."""
    subject = Apart(f"{HERE}:Hangs", limit_s=3.0)
    subject.shrink_s = 4.0
    case, found = smallest(subject, "table_tail", TAIL, subject.judge("table_tail", TAIL, fresh=True))
    assert case != TAIL
    assert found.detail == "no answer in 3 s"


def test_one_that_raises_and_launches_still_is_kept() -> None:
    subject = Apart(f"{HERE}:Raises")
    assert subject.judge("bound", Case()).detail is None
    first, again = (subject.judge("table_tail", TAIL, fresh=True).detail for _ in range(2))
    assert str(first).startswith("raised ValueError: process ")
    assert first == again
    lost = Apart(f"{HERE}:LosesTheDevice")
    assert lost.judge("bound", Case()).detail is None
    assert lost.judge("table_tail", TAIL, fresh=True).error
    assert lost.judge("bound", Case(), fresh=True).detail is None


def test_what_ends_it_between_two_checks_is_told_by_the_next() -> None:
    subject = Apart(f"{HERE}:DiesLater")
    subject.judge("table_tail", TAIL, fresh=True)
    time.sleep(0.5)
    assert subject.fit(TAIL) == TAIL
    judged = subject.judge("bound", TAIL)
    assert str(judged.detail).startswith("between two checks it was ended by SIGABRT")
    assert subject.judge("bound", TAIL).detail is None


def test_what_it_says_between_two_checks_is_told_by_the_next() -> None:
    subject = Apart(f"{HERE}:SpeaksLater")
    assert subject.judge("table_tail", TAIL, fresh=True).detail is None
    time.sleep(0.5)
    judged = subject.judge("bound", TAIL)
    assert judged.detail == "between two checks it said 'hello' without being asked"
    assert subject.judge("bound", TAIL).detail is None


def test_a_device_that_was_lost_is_told_once() -> None:
    """Whatever was held before, a check without a launch, too, which tells nothing of the device."""
    subject = Apart(f"{HERE}:LosesTheDeviceIfLong")
    long, short = Case(lengths=(20,), head_dim=8), Case(lengths=(3,), head_dim=8)
    assert subject.judge("bound", short).checked
    assert not subject.judge("dead_blocks", short).checked
    assert subject.judge("bound", long).error
    assert subject.judge("bound", short, fresh=True).detail is None
    configurations = [*PLAIN, Configuration("float32", ("window",))]
    report = run(subject, only=configurations, size="tiny")
    assert report.failures
    assert all(max(case_of(failure.case).lengths) > 19 for failure in report.failures)
    assert not any(case_of(failure.case).window for failure in report.failures)


def test_each_configuration_counts_its_own_launches() -> None:
    """Those of processes that have ended included."""
    configurations = [Configuration("float32", ("window",)), *PLAIN]
    once = [run(Apart(f"{HERE}:AbortsAlone"), only=[each], size="tiny") for each in configurations]
    both = run(Apart(f"{HERE}:AbortsAlone"), only=configurations, size="tiny")
    assert all(report.failures for report in once)
    assert [each.launches for each in both.configurations] == [report.launches for report in once]


def test_what_cannot_be_told_of_a_check_is_no_fault_of_the_next_one() -> None:
    subject = Apart(f"{HERE}:FitAborts")
    with pytest.raises(Misuse, match="SIGABRT"):
        subject.fit(TAIL)
    assert subject.judge("bound", TAIL).detail is None


def test_an_answer_to_another_question_is_none() -> None:
    subject = Apart(f"{HERE}:AnswersAhead")
    assert subject.judge("table_tail", TAIL, fresh=True).detail == "it answered what it was not asked"
    assert subject.judge("bound", TAIL) == Here(apart_kernels.Decodes()).judge("bound", TAIL)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("SaysNothing", "raised Unspeakable: what it says cannot be shown"),
        ("SaysOddThings", r"raised ValueError: \x1b[31m"),
    ],
)
def test_whatever_an_exception_says_is_told(own: bool, name: str, told: str) -> None:
    """In characters that every terminal and every file takes, and not too many."""
    subject = Apart(f"{HERE}:{name}") if own else Here(getattr(apart_kernels, name)())
    detail = str(subject.judge("table_tail", TAIL, fresh=True).detail)
    assert detail.startswith(told)
    assert detail.isprintable()
    assert len(detail.encode()) < 3_000


def test_its_process_can_be_ended_and_comes_back() -> None:
    subject = Apart(f"{HERE}:Tiled")
    subject.begin()
    subject.judge("bound", Case())
    launched = subject.measured.launches
    subject.end()
    assert subject.measured.launches == launched > 0
    subject.judge("bound", Case())
    assert subject.measured.launches == 2 * launched


def test_what_always_ends_it_is_told_once() -> None:
    report = run(Apart(f"{HERE}:AbortsAlways"), only=PLAIN, size="tiny")
    assert [(each.law, each.detail) for each in report.failures] == [("answer", "it was ended by SIGABRT")]


def test_what_it_prints_is_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    assert check_law(Apart(f"{HERE}:Prints"), "bound", Case()) is None
    told = capfd.readouterr()
    assert (told.out, "launched" in told.err) == ("", True)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="it is told by /proc")
@pytest.mark.parametrize("forked", [True, False])
def test_what_has_loaded_the_driver_of_a_gpu_when_imported_is_not_forked(
    forked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEDKV_TEST_PARENT", str(os.getpid()))
    if not forked:
        monkeypatch.setenv("PAGEDKV_TEST_CUDA", "1")
        assert check_law(Apart(f"{HERE}:made_with_cuda"), "bound", Case()) is None
    else:
        with pytest.raises(Misuse, match="Cannot re-initialize CUDA"):
            Apart(f"{HERE}:made_with_cuda")


def test_without_a_fork_it_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDKV_TEST_CUDA", "1")
    report = run(Apart(f"{HERE}:Aborts"), only=PLAIN, size="tiny")
    assert [(each.law, each.detail[:25]) for each in report.failures] == [("table_tail", "it was ended by SIGABRT; ")]


def test_without_a_fork_no_process_is_started_to_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEDKV_TEST_CUDA", "1")
    subject, started = Apart(f"{HERE}:RaisesThenAborts"), list[Running]()

    def start(*how: Any) -> Running:
        started.append(Running(*how))
        return started[-1]

    assert subject.judge("bound", TAIL).checked
    monkeypatch.setattr(apart, "Running", start)
    assert subject.judge("table_tail", TAIL, fresh=True).error
    assert not started
    assert subject.judge("bound", TAIL).checked
    assert len(started) == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere:Kernel", "there is no nowhere"),
        (f"{HERE}:Nothing", "a function or class in"),
        (f"{HERE}:Case", "has no name, capabilities"),
        (f"{HERE}:AbortsWhenMade", "it was ended by SIGABRT"),
        (f"{HERE}:DeclaresNothing", "RuntimeError('nothing')"),
        (f"{HERE}:Numbered", "whose name is a text, not a int"),
        ("nowhere", "expected module:factory"),
        ("x\0y:z", "it cannot be started: embedded null byte"),
    ],
)
def test_what_cannot_be_made_is_misuse(name: str, told: str) -> None:
    with pytest.raises(Misuse, match="subject='process:") as error:
        made(f"process:{name}")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("name", "begins", "told"),
    [
        (
            "FitAborts",
            f"subject='process:{HERE}:FitAborts' is not allowed: expected one that answers; ",
            "it was ended by SIGABRT",
        ),
        ("FitRaises", "fit(Case(lengths=(9,", "ZeroDivisionError('of its own')"),
    ],
)
def test_a_fit_that_ends_it_or_raises_is_misuse(name: str, begins: str, told: str) -> None:
    with pytest.raises(Misuse) as error:
        run(made(f"process:{HERE}:{name}"), only=PLAIN, size="tiny")
    assert str(error.value).startswith(begins)
    assert told in str(error.value)


@pytest.mark.parametrize(("name", "limit_s"), [("process:x:y", 0.0), ("process:x:y", float("nan")), ("x:y", 3.0)])
def test_limits_that_mean_nothing_are_misuse(name: str, limit_s: float) -> None:
    with pytest.raises(Misuse, match="limit_s="):
        made(name, limit_s=limit_s)


def test_laws_that_are_none_are_misuse_there_too() -> None:
    with pytest.raises(Misuse, match="law='gravity'"):
        check_law(Apart(f"{HERE}:Tiled"), "gravity", Case())
