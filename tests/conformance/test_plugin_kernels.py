"""The pytest plugin on kernels: what it makes of one, of each option, and of each way to fail."""

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pagedkv.cli.main import main
from pagedkv.conformance.attention import apart
from pagedkv.conformance.attention.pins import Pin
from pagedkv.conformance.failures import known
from pagedkv.conformance.failures.entries import entry_of
from pagedkv.conformance.process.running import Running
from pagedkv.spec.trace import save

from tests.conformance.test_attention_pins import LAW, LONG, ONE, WINDOW
from tests.conformance.test_plugin import failure, output
from tests.conformance.test_plugin_known import COUNTS, FREED, pinned

pytest_plugins = ["pytester"]

SAMPLES = "tests.conformance.kernel_samples"
ABORTS = "tests.conformance.apart_kernels:AbortsAlways"
MANAGER = "tests.conformance.plugin_samples:LosesWhatIsFreed"
NAMES = ["float32 plain", "float32 window", "exercised"]
LITTLE = ("--pagedkv-kernel-size=tiny", "--pagedkv-seed=3")


def hold(pytester: pytest.Pytester, name: str, *arguments: str) -> pytest.RunResult:
    """A session with one of the samples."""
    chosen = (f"--pagedkv-kernel={SAMPLES}:{name}", *LITTLE, *arguments)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:benchmark", *chosen)


def ids(name: str, *checks: str) -> list[str]:
    return [f"pagedkv[{SAMPLES}:{name}]::{check}" for check in checks]


def test_what_is_right_passes_and_is_summed_up(pytester: pytest.Pytester) -> None:
    result = hold(pytester, "Right")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            f"pagedkv: {SAMPLES}:Right: --pagedkv-kernel-size=tiny, --pagedkv-seed=3",
            f"pagedkv?{SAMPLES}:Right?: 3 passed, * launches, * comparisons, seed 3",
            "  not tested, because the subject does not declare it: causal_prefill, non_causal, softcap, *",
        ]
    )


def test_items_stand_beside_the_users_own_and_those_of_block_managers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    result = hold(pytester, "Right", f"--pagedkv-subject={MANAGER}", "--collect-only", "-q")
    lines = result.outlines
    assert lines[0].endswith("::test_mine")
    assert lines[1].startswith(f"pagedkv[{MANAGER}]::")
    assert [line for line in lines if "kernel_samples" in line] == ids("Right", *NAMES)
    head = hold(pytester, "Right", f"--pagedkv-subject={MANAGER}", "--collect-only").outlines
    assert [line for line in head if line.startswith("pagedkv: ")] == [
        f"pagedkv: {MANAGER}: 500 programs of 60 operations, --pagedkv-seed=3",
        f"pagedkv: {SAMPLES}:Right: --pagedkv-kernel-size=tiny, --pagedkv-seed=3",
    ]


def test_a_broken_law_is_reported_in_short_and_pinned_as_it_is_reported(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that is told repeats it, and what the report says to paste is what the run then accepts."""
    result = hold(pytester, "WrongIfLong")
    result.assert_outcomes(failed=2, passed=1)
    told = failure(result)
    assert told[0] == f"BROKEN: {LAW}"
    assert told[2] == f"in float32 plain, by {LONG.case.describe()}"
    assert len(told) < 14, "a report, and no traceback"
    (command,) = (line.partition("pagedkv ")[2] for line in told if line.startswith("  repeat it:  pagedkv attention "))
    assert main(shlex.split(command)) == 1
    assert f"VIOLATED {LAW}: " in capsys.readouterr().out
    entry = "\n".join(line.strip() for line in told[told.index("    [[known]]") :])
    assert entry == entry_of(law=LAW, case=LONG.case.describe())
    Path("known.toml").write_text(entry)
    again = hold(pytester, "WrongIfLong", "--pagedkv-known-failures=known.toml")
    again.assert_outcomes(passed=4)
    assert any(line.startswith(f"  put down to the known failure {LONG.name}: ") for line in again.outlines)


def test_a_pin_is_strict_and_excuses_only_itself(pytester: pytest.Pytester) -> None:
    entries = [entry_of(law=LAW, case=each.case.describe()) for each in (LONG, WINDOW)]
    for name, pins, failing in (
        ("WrongTwice", entries, []),
        ("WrongTwice", entries[:1], ["float32 window"]),
        ("WrongTwice", entries[1:], ["float32 plain", "float32 window"]),
        ("WrongInWindows", entries, [f"known[{LONG.name}]"]),
        ("WrongInWindows", [*entries[:1], 'subject = "of another"', *entries[1:]], []),
        ("Right", entries[:1], [f"known[{LONG.name}]"]),
    ):
        Path("known.toml").write_text("\n".join(pins))
        result = hold(pytester, name, "--pagedkv-known-failures=known.toml", "-rf")
        failed = [line for line in result.outlines if line.startswith("FAILED pagedkv[")]
        assert [line.partition(" ")[2].partition(" - ")[0] for line in failed] == ids(name, *failing)
    assert failure(result)[0].startswith(f"{LONG.name} is pinned as a known failure and holds now: remove its entry")


def test_kernels_and_block_managers_share_a_file(pytester: pytest.Pytester) -> None:
    trace = pinned(FREED, 4)
    save(trace.trace, pytester.path / trace.name)
    pins = (known.entry_for(trace.name, 4, COUNTS), entry_of(law=LAW, case=ONE.case.describe()))
    Path("known.toml").write_text("\n".join(pins))
    arguments = (f"--pagedkv-subject={MANAGER}", "--pagedkv-known-failures=known.toml", "-k", "known or float32", "-v")
    result = hold(pytester, "Wrong", *arguments)
    passed = [line.partition(" PASSED")[0] for line in result.outlines if " PASSED" in line]
    assert passed == [f"pagedkv[{MANAGER}]::known[{trace.name}]", *ids("Wrong", f"known[{ONE.name}]", *NAMES[:2])]


@pytest.mark.parametrize(
    ("name", "item", "told"),
    [
        ("WithoutWindows", 2, "declared, but exercised by no case: window"),
        ("Speechless", 0, "BROKEN: answer"),
        ("FitRaises", 0, "no subject: fit(Case(lengths=(9, 19, 6), query_lens=(1, 1, 1), seed=3))=ValueError('needs "),
        ("SaysAnything", 0, "no subject: fit(Case(lengths=(9, 19, 6), query_lens=(1, 1, 1), seed=3))=True is"),
        (
            "Unrounded",
            0,
            "no subject: rounding=ZeroDivisionError('division by zero') is not allowed: expected a RoundingMod",
        ),
        (
            "Unrounded",
            2,
            "no subject: rounding=ZeroDivisionError('division by zero') is not allowed: expected a RoundingMod",
        ),
        ("Malformed", 1, "BROKEN: answer"),
    ],
)
def test_what_else_fails_is_told_in_short(pytester: pytest.Pytester, name: str, item: int, told: str) -> None:
    result = hold(pytester, name, *ids(name, NAMES[item]))
    result.assert_outcomes(failed=1)
    assert failure(result)[0].startswith(told)
    assert len(failure(result)) < 16, "a report, and no traceback"


def test_one_that_answers_nothing_is_not_skipped_where_that_is_known(pytester: pytest.Pytester) -> None:
    shaped = replace(ONE.case, head_dim=8)  # one of its shapes
    for name, case in ((f"{SAMPLES}:Speechless", ONE.case), (f"process:{ABORTS}", shaped)):
        pin = Pin("answer", case, "no device")
        Path("known.toml").write_text(entry_of(law=pin.law, case=case.describe()))
        chosen = (f"--pagedkv-kernel={name}", *LITTLE, "--pagedkv-known-failures=known.toml", "-k", "float32 and plain")
        result = pytester.runpytest_inprocess("-p", "no:benchmark", *chosen)
        assert result.parseoutcomes()["passed"] == 1
        assert f"  put down to the known failure {pin.name}: 1" in result.outlines


def test_a_block_manager_and_a_kernel_may_have_one_name(pytester: pytest.Pytester) -> None:
    name = "tests.conformance.kernel_samples:manager_or_kernel"
    chosen = (
        f"--pagedkv-subject={name}",
        f"--pagedkv-kernel={name}",
        *LITTLE,
        "--collect-only",
        "-q",
        "-pno:benchmark",
    )
    lines = pytester.runpytest_inprocess(*chosen).outlines
    assert {f"pagedkv[{name}]::corpus", f"pagedkv[{name}]::exercised"} <= set(lines)


def test_a_limit_is_for_those_in_processes_of_their_own(pytester: pytest.Pytester) -> None:
    """Of kernels and of block managers; who runs in this process has none."""
    subjects = (f"--pagedkv-subject={MANAGER}", f"--pagedkv-kernel=process:{SAMPLES}:Right")
    result = hold(pytester, "Right", *subjects, "--pagedkv-limit-s=30", "-k", "float32 and plain")
    assert result.parseoutcomes()["passed"] == 2


def test_a_configuration_that_the_kernel_does_not_take_is_skipped(pytester: pytest.Pytester) -> None:
    result = hold(pytester, "WithoutWindows", "-k", "float32", "-rs")
    result.assert_outcomes(passed=1, skipped=1, deselected=1)
    assert "the subject's `fit` leaves nothing of any case" in output(result)


def test_items_can_be_asked_for_by_their_ids_and_are_remembered(pytester: pytest.Pytester) -> None:
    chosen = (f"--pagedkv-kernel={SAMPLES}:WrongInWindows", *LITTLE, "-p", "no:benchmark")
    plain, window, _ = ids("WrongInWindows", *NAMES)
    pytester.runpytest_inprocess(*chosen, plain).assert_outcomes(passed=1)
    pytester.runpytest_inprocess(*chosen).assert_outcomes(failed=1, passed=2)
    pytester.runpytest_inprocess(*chosen, "--lf").assert_outcomes(failed=1, deselected=2)
    pytester.runpytest_inprocess(*chosen, "--deselect", window).assert_outcomes(passed=2, deselected=1)
    wrong = pytester.runpytest_inprocess(*chosen, f"{plain}er")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    assert f"no item {plain}er; there are: {plain}, {window}, " in output(wrong)


def test_the_ini_file_is_as_good_as_the_command_line(pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        pagedkv_kernel = ["{SAMPLES}:Right", "{SAMPLES}:WrongIfLong"]
        pagedkv_kernel_size = "tiny"
        pagedkv_known_failures = "known.toml"
        pagedkv_seed = "4"
        """
    )
    entry = entry_of(law=LAW, case=LONG.case.describe())
    Path("known.toml").write_text(f'{entry}\nsubject = "{SAMPLES}:WrongIfLong"\n')
    result = pytester.runpytest_inprocess("-p", "no:benchmark", "--pagedkv-seed=5", "-k", "plain or known")
    result.assert_outcomes(passed=3, deselected=4)
    assert (
        f"pagedkv: {SAMPLES}:Right, {SAMPLES}:WrongIfLong: --pagedkv-kernel-size=tiny, --pagedkv-seed=5"
        in result.outlines
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("no.such.module:Thing",), "a module that can be imported; there is no no"),
        (("nowhere",), "subject='nowhere' is not allowed: expected module:factory"),
        ((f"{SAMPLES}:Nothing",), f"a function or class in {SAMPLES}"),
        ((f"{SAMPLES}:ids",), f"a function or class in {SAMPLES}"),
        ((f"{SAMPLES}:Case",), "the Case has no name, capabilities, rounding, attend"),
        (
            (f"{SAMPLES}:Right", "--pagedkv-kernel-size=huge"),
            "kernel_size='huge' is not allowed: expected tiny or full",
        ),
        ((f"{SAMPLES}:Right", "--pagedkv-seed=-1"), "seed=-1 is not allowed: expected an integer >= 0"),
        ((f"{SAMPLES}:Right", "--pagedkv-known-failures=known.toml"), "known[1].law='gravity' is not allowed"),
        ((f"{SAMPLES}:Right", "--pagedkv-known-failures=nowhere"), "known_failures='nowhere' is not allowed"),
        ((f"{SAMPLES}:Right", "--pagedkv-limit-s=3"), "limit_s=3.0 is not allowed: expected a subject in a process"),
    ],
)
def test_what_cannot_be_run_is_a_usage_error(pytester: pytest.Pytester, arguments: tuple[str, ...], told: str) -> None:
    Path("known.toml").write_text(entry_of(law="gravity", case="Case()"))
    result = pytester.runpytest_inprocess(f"--pagedkv-kernel={arguments[0]}", *arguments[1:])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert told in output(result)
    assert "Traceback" not in output(result)


def test_processes_of_kernels_end_with_the_session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may hold a GPU. Where workers hold them, they end before the workers begin."""
    started: list[Running] = []

    def start(*how: Any) -> Running:
        started.append(Running(*how))
        return started[-1]

    monkeypatch.setattr(apart, "Running", start)
    chosen = ("-p", "no:benchmark", f"--pagedkv-kernel=process:{SAMPLES}:Right", *LITTLE, "-k", "float32 and plain")
    pytester.runpytest_inprocess(*chosen).assert_outcomes(passed=1, deselected=2)
    assert started
    assert not any(process.usable for process in started)


def test_workers_of_xdist_share_the_items(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is exercised is known wherever the item runs, and what they did is summed up."""
    root = Path(__file__).parents[2]
    roots = [str(root / part) for part in ("", "spec", "reference", "optimized", "tools")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(roots))
    Path("known.toml").write_text(entry_of(law=LAW, case=LONG.case.describe()))
    arguments = (f"--pagedkv-kernel={SAMPLES}:WrongIfLong", "--pagedkv-known-failures=known.toml", *LITTLE, "-n2")
    result = pytester.runpytest_subprocess(*arguments, "-p", "no:benchmark")
    result.assert_outcomes(passed=4)
    (excused,) = (line for line in result.outlines if line.startswith(f"  put down to the known failure {LONG.name}: "))
    assert int(excused.rpartition(": ")[2]) > 2, "in both configurations"
