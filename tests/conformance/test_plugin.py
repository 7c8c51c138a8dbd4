"""The pytest plugin: what it makes of a subject, of each option, and of each way to fail."""

import os
import re
import subprocess
import sys
from pathlib import Path

import hypothesis.core
import pytest
from pagedkv.conformance.failures.replay import replay
from pagedkv.conformance.subjects import subject
from pagedkv.conformance.suite import checks, run_of
from pagedkv.spec.trace import load, save

from tests.conformance.plugin_samples import LosesOnce, Right

pytest_plugins = ["pytester"]

SAMPLES = "tests.conformance.plugin_samples"
LITTLE = ("--pagedkv-programs=30", "--pagedkv-steps=30", "--pagedkv-seed=3")
COUNTS = "counts add up"
NAMES = [check.name for check in checks(run_of(Right))]
OTHERS = len(NAMES) - 1
"""Of the items of a sample, when one is chosen."""


def hold(pytester: pytest.Pytester, name: str, *arguments: str) -> pytest.RunResult:
    """A session with one of the samples."""
    chosen = (f"--pagedkv-subject={SAMPLES}:{name}", *LITTLE, *arguments)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:benchmark", *chosen)


def output(result: pytest.RunResult) -> str:
    return "\n".join(result.outlines + result.errlines)


def failure(result: pytest.RunResult) -> list[str]:
    """The lines of the first failure, between its heading and what follows."""
    start = next(i for i, line in enumerate(result.outlines) if line.startswith("_"))
    rest = result.outlines[start + 1 :]
    return rest[: next(i for i, line in enumerate(rest) if line.startswith(("_", "====")))]


def test_what_is_right_passes_and_is_summed_up(pytester: pytest.Pytester) -> None:
    result = hold(pytester, "Right")
    result.assert_outcomes(passed=len(NAMES))
    result.stdout.fnmatch_lines(
        [
            f"pagedkv: {SAMPLES}:Right: 30 programs of 30 operations, --pagedkv-seed=3",
            f"collected {len(NAMES)} items",
            f"pagedkv?{SAMPLES}:Right?: {len(NAMES)} passed, * traces, * states, * transitions, * programs, *",
            "  not tested, because the subject does not declare it: reserve, prefix_cache, *",
        ]
    )
    assert not (pytester.path / "failures").exists()


def test_items_stand_beside_the_users_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    result = hold(pytester, "Right", f"--pagedkv-subject={SAMPLES}:LosesWhatIsFreed", "--collect-only", "-q")
    ids = [f"pagedkv[{SAMPLES}:{of}]::{name}" for of in ("Right", "LosesWhatIsFreed") for name in NAMES]
    module = Path(result.outlines[0].partition("::")[0]).name
    assert result.outlines[: len(ids) + 1] == [f"{module}::test_mine", *ids]


def test_what_a_capability_is_missing_for_is_no_item(pytester: pytest.Pytester) -> None:
    every = pytester.runpytest_inprocess("--pagedkv-subject=reference", "--collect-only", "-q")
    assert "pagedkv[reference]::sample_trace" in every.outlines
    few = hold(pytester, "Right", "--collect-only", "-q")
    assert "sample_trace" not in output(few)
    slices = [{line.partition("::")[2] for line in run.outlines if "::exhaustive" in line} for run in (few, every)]
    assert "exhaustive[core]" in slices[0] < slices[1]


@pytest.mark.parametrize("check", ["core", "programs", "state_machine"])
def test_a_broken_law_is_reported_in_short_with_its_trace(pytester: pytest.Pytester, check: str) -> None:
    result = hold(pytester, "LosesWhatIsFreed", "-k", check)
    result.assert_outcomes(failed=1, deselected=OTHERS)
    (path,) = (pytester.path / "failures").iterdir()
    told = failure(result)
    assert told[0] == f"BROKEN: {COUNTS}"
    assert len(told) < 25, "a report, and no traceback"
    assert any(line.startswith("> ") and '"op": "free"' in line for line in told)
    commands = [line.split("pagedkv ")[-1] for line in told if "pagedkv " in line and "it: " in line]
    assert commands[0] == f"explain failures/{path.name} --subject {SAMPLES}:LosesWhatIsFreed"
    assert commands[1] == f"replay failures/{path.name} --subject {SAMPLES}:LosesWhatIsFreed"
    trace = load(path)
    assert len(trace.lines) == 2, "admit and free"
    again = replay(trace, subject(f"{SAMPLES}:LosesWhatIsFreed"))
    assert (again.law, again.at_line) == (COUNTS, 3)
    assert {'    law = "counts add up"', "    line = 3", f'    trace = "{path.name}"'} <= set(told)


def test_a_failure_that_does_not_come_back_is_said_to_be_one(pytester: pytest.Pytester) -> None:
    LosesOnce.wrong[:] = [True]
    told = failure(hold(pytester, "LosesOnce", "-k", "programs"))
    assert told[0] == f"BROKEN: {COUNTS}"
    assert "the subject does not do the same every time" in "\n".join(told)


def test_what_is_declared_and_not_exercised_fails_where_so_much_ran_that_it_should_have_been(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = hold(pytester, "Right", "--pagedkv-programs=1", "--pagedkv-steps=1", "-k", "programs")
    short.assert_outcomes(passed=1, deselected=OTHERS)
    monkeypatch.setattr("pagedkv.conformance.search.fuzz.ENOUGH", 1)
    result = hold(pytester, "Right", "--pagedkv-programs=1", "--pagedkv-steps=1", "-k", "programs")
    result.assert_outcomes(failed=1, deselected=OTHERS)
    assert failure(result)[0] == "declared, but exercised by none of 1 program: fork, truncate"


def test_a_large_budget_is_several_items(pytester: pytest.Pytester) -> None:
    result = hold(pytester, "Right", "--pagedkv-profile=nightly", "--pagedkv-programs=5001", "--collect-only", "-q")
    assert [line.split("::")[1] for line in result.outlines[1:4]] == [f"programs[{n} of 3]" for n in (1, 2, 3)]


def test_traces_that_must_hold(pytester: pytest.Pytester) -> None:
    recorded = pytester.mkdir("recorded")
    trace = '{"pagedkv_trace": 1, "num_blocks": 2, "block_size": 2, "options": {"prefix_cache": false}}\n'
    trace += '{"op": "admit", "request": "a", "tokens": [1]}\n'
    (recorded / "one.jsonl").write_text(trace + '{"op": "free", "request": "a"}\n')
    (recorded / "swap.jsonl").write_text(trace + '{"op": "preempt", "request": "a", "mode": "swap"}\n')
    result = hold(pytester, "LosesWhatIsFreed", f"--pagedkv-traces={recorded}", "-k", "trace", "-rs")
    result.assert_outcomes(failed=1, skipped=1, deselected=OTHERS + 1)
    assert failure(result)[2] == f"in {recorded / 'one.jsonl'}"
    assert f"{recorded / 'swap.jsonl'} does not apply: the subject does not declare" in output(result)
    hold(pytester, "Right", f"--pagedkv-traces={recorded / 'one.jsonl'}", "-k", "trace").assert_outcomes(
        passed=1, deselected=OTHERS + 1
    )


def test_the_ini_file_is_as_good_as_the_command_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its paths are relative to it, and the command line goes first."""
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        pagedkv_subject = ["{SAMPLES}:LosesWhatIsFreed"]
        pagedkv_programs = "20"
        pagedkv_steps = "30"
        pagedkv_seed = "4"
        pagedkv_out = "kept/here"
        """
    )
    inner = pytester.mkdir("inner")
    monkeypatch.chdir(inner)
    result = pytester.runpytest_inprocess("-p", "no:benchmark", "--pagedkv-seed=5", "-k", "programs")
    result.assert_outcomes(failed=1, deselected=OTHERS)
    assert "20 programs of 30 operations, --pagedkv-seed=5" in output(result)
    assert len([*(pytester.path / "kept" / "here").iterdir()]) == 1


def test_items_can_be_asked_for_by_their_ids(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    item = f"pagedkv[{SAMPLES}:Right]"
    hold(pytester, "Right", f"{item}::programs").assert_outcomes(passed=1)
    hold(pytester, "Right", f"{item}::programs", "--deselect", f"{item}::programs").assert_outcomes(deselected=1)
    assert hold(pytester, "Right", item, "--collect-only", "-q").outlines[:1] == [f"{item}::corpus"]
    wrong = hold(pytester, "Right", f"{item}::program")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    assert f"no item {item}::program; there are: {item}::corpus, " in output(wrong)


def test_the_seed_of_hypothesis_serves_us_too(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypothesis.core, "global_force_seed", None)  # and back to what it is: the session sets it
    arguments = (f"--pagedkv-subject={SAMPLES}:Right", "--collect-only")
    assert "--pagedkv-seed=77" in output(pytester.runpytest_inprocess(*arguments, "--hypothesis-seed=77"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("no.such.module:Thing",), "a module that can be imported; there is no no"),
        ((f"{SAMPLES}:Nothing",), f"a function or class in {SAMPLES}"),
        ((f"{SAMPLES}:exits",), "it raised SystemExit(3)"),
        ((f"{SAMPLES}:asks",), 'numba is not installed: pip install "pagedkv[cpu]"'),
        ((f"{SAMPLES}:WithoutObserve",), "the WithoutObserve that it made has no observe"),
        (("Right",), "module:factory"),
        (
            (f"{SAMPLES}:Right", "--pagedkv-profile=weekly"),
            "profile='weekly' is not allowed: expected one of pr, nightly",
        ),
        ((f"{SAMPLES}:Right", "--pagedkv-steps=0"), "steps=0 is not allowed: expected an integer >= 1"),
        ((f"{SAMPLES}:Right", "--pagedkv-seed=x"), "invalid int value: 'x'"),
        ((f"{SAMPLES}:Right", "--pagedkv-seed=-1"), "seed=-1 is not allowed: expected an integer >= 0"),
        ((f"{SAMPLES}:Right", f"--pagedkv-traces={__file__}"), "test_plugin.py:1: "),
        ((f"{SAMPLES}:Right", "-o", "pagedkv_steps=many"), "pagedkv_steps='many' is not allowed: expected N"),
        ((f"{SAMPLES}:Right", "--pagedkv-traces=nowhere"), "traces='nowhere' is not allowed"),
        ((f"{SAMPLES}:Right", "--pagedkv-known-failures=nowhere"), "known_failures='nowhere' is not allowed"),
    ],
)
def test_what_cannot_be_run_is_a_usage_error(pytester: pytest.Pytester, arguments: tuple[str, ...], told: str) -> None:
    result = pytester.runpytest_inprocess(f"--pagedkv-subject={arguments[0]}", *arguments[1:])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert told in output(result)
    assert "Traceback" not in output(result)


USERS = {
    "forgot": "def f(:",
    "raises": "x = 1\nint('a\\nb')",
    "asks": "import no_such",
    "leaves": "raise SystemExit(2)",
    "declares": "from pagedkv.spec.subject import Capabilities\nCapabilities(evict=True)",
}
"""Modules that cannot be imported, and below what is said of each."""
SAID = {
    "forgot:Mine": "expected a module that can be imported; SyntaxError: invalid syntax (",
    "raises:Mine": "a module that can be imported; ValueError: invalid literal for int() with base 10: 'a\\nb' (",
    "asks:Mine": "a module that can be imported; No module named 'no_such' (",
    "leaves:Mine": "a module that can be imported; SystemExit: 2 (",
    "declares:Mine": "a module that can be imported; Misuse: evict=True is not allowed: expected False, unless",
    "../raises:Mine": "expected module:factory, both as in an import",
    "raises-it:Mine": "expected module:factory, both as in an import",
    "raises.py:Mine": "expected module:factory, both as in an import",
}


@pytest.mark.parametrize("name", SAID)
def test_an_error_in_the_users_own_module_is_told_in_a_line(pytester: pytest.Pytester, name: str) -> None:
    """With its file and line, by the plugin, by the base class, and from a process of its own."""
    stem = name.partition(":")[0]
    modules = {f"mine_{stem}": text for stem, text in USERS.items()}
    pytester.makepyfile(**modules)
    name, said = (text.replace(stem, f"mine_{stem}") if stem in USERS else text for text in (name, SAID[name]))
    result = pytester.runpytest_inprocess("-p", "no:benchmark", f"--pagedkv-subject={name}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = result.errlines[:1] if len([each for each in result.errlines if each]) == 1 else [output(result)]
    assert said in line
    assert stem not in USERS or re.search(rf"mine_{stem}\.py, line [12]\)$", line), line

    pytester.makepyfile(
        test_class=f"""
        from pagedkv.conformance.suite import BlockManagerSuite
        class TestMine(BlockManagerSuite):
            subject = {name!r}
        """
    )
    collected = pytester.runpytest_inprocess("-p", "no:benchmark")
    assert said in output(collected)
    assert "Traceback" not in output(collected)


def test_a_run_that_is_interrupted_is_told_apart(pytester: pytest.Pytester) -> None:
    arguments = (f"--pagedkv-subject={SAMPLES}:Interrupted", "-k", "programs")
    assert pytester.inline_run(*arguments, no_reraise_ctrlc=True).ret == pytest.ExitCode.INTERRUPTED


def test_workers_of_xdist_agree(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the seed, which is drawn at random where there is no commit, and on the items that were asked for."""
    root = Path(__file__).parents[2]
    roots = [str(root / part) for part in ("", "spec", "reference", "optimized", "tools")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(roots))
    pytester.makepyfile("def test_mine(): pass")
    item = f"pagedkv[{SAMPLES}:Right]::"
    arguments = (f"--pagedkv-subject={SAMPLES}:Right", *LITTLE[:2], "-n2", "-p", "no:benchmark")
    result = pytester.runpytest_subprocess(*arguments, f"{item}programs", f"{item}state_machine")
    result.assert_outcomes(passed=2)
    header, summary = (
        next(line for line in result.outlines if line.startswith(start)) for start in ("pagedkv: ", "pagedkv[")
    )
    assert header.rpartition("=")[2] == summary.rpartition("seed ")[2]
    assert "2 passed, 6" in summary, "some 60 programs"


def test_it_costs_nothing_where_it_is_not_wanted(pytester: pytest.Pytester) -> None:
    light = ("", ".counted", ".plugin", ".plugin.options", ".plugin.summary", ".told")
    script = (
        "import pytest, sys; code = pytest.main(['--version', '--version']); "
        "names = {name for name in sys.modules if name.startswith('pagedkv.')}; "
        "print(sorted(names), 'numpy' in sys.modules); sys.exit(code)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=pytester.path)
    assert told.stdout.splitlines()[-1] in (
        f"{[f'pagedkv.conformance{part}' for part in light]} False",
        "[] False",  # run from a checkout that is not installed
    )
    pytester.makepyfile("def test_mine(): pass")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1)
    assert "pagedkv" not in output(result).replace("pagedkv-0", "")  # the list of plugins has it, with its version


def test_a_trace_is_pinned_as_it_is_reported(pytester: pytest.Pytester) -> None:
    """What the report says to paste is what the run then accepts."""
    told = failure(hold(pytester, "LosesWhatIsFreed", "-k", "programs"))
    (path,) = (pytester.path / "failures").iterdir()
    known = pytester.mkdir("known")
    save(load(path), known / path.name)
    (known / "known.toml").write_text("\n".join(line.strip() for line in told[told.index("    [[known]]") :]))
    result = hold(pytester, "LosesWhatIsFreed", "--pagedkv-known-failures=known/known.toml", "-k", "not exhaustive")
    slices = sum("exhaustive" in name for name in NAMES)
    result.assert_outcomes(passed=OTHERS + 2 - slices, deselected=slices)
    assert f"put down to the known failure {path.name}: " in output(result)
