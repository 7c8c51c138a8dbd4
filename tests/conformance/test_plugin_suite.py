"""The base class, the list of checks, and what they need: the same checks, for those who prefer code."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import hypothesis.core
import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase
from pagedkv.conformance.suite import Broken, Options, checks, run_of
from pagedkv.conformance.suite.machine import chosen_settings
from pagedkv.conformance.suite.profiles import PROFILES, profile, seed_of_commit
from pagedkv.conformance.suite.text import MOST_LINES
from pagedkv.spec import Misuse

from tests.conformance.plugin_samples import LosesWhatIsFreed, LosesWhatIsTruncated, Right

pytest_plugins = ["pytester"]

MODULE = """
from pagedkv.conformance.suite import BlockManagerSuite, Options
from tests.conformance.plugin_samples import LosesWhatIsFreed, Right

LITTLE = Options(programs=30, steps=30, seed=3, out="kept")

class TestClass(BlockManagerSuite):
    subject = Right
    options = LITTLE

class TestMethod(BlockManagerSuite):
    options = LITTLE
    def subject(self, config):
        return Right(config)

def factory(config):
    return Right(config)

class TestFunction(BlockManagerSuite):
    options = LITTLE
    subject = factory

class TestName(BlockManagerSuite):
    options = LITTLE
    subject = "tests.conformance.plugin_samples:Right"

class TestBroken(BlockManagerSuite):
    options = LITTLE
    subject = LosesWhatIsFreed
"""


def test_the_base_class_takes_a_subject_in_any_form(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MODULE)
    result = pytester.runpytest_inprocess("-p", "no:benchmark", "-k", "programs or core and Broken")
    others = 5 * len(checks(run_of(Right))) - 6
    result.assert_outcomes(passed=4, failed=2, deselected=others)
    result.stdout.fnmatch_lines(["*::TestClass: 1 passed, 30 programs, *", "*::TestBroken: 2 failed, seed 3"])
    told = "\n".join(result.outlines)
    subject = "tests.conformance.plugin_samples:LosesWhatIsFreed"
    assert f"replay kept/TestBroken-programs.jsonl --subject {subject}" in told
    assert "Traceback" not in told
    assert "suite.py" not in told


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("subject = 'nobody'", "subject='nobody' is not allowed"),
        ("subject = Right; options = Options(profile='weekly')", "profile='weekly' is not allowed"),
        ("subject = Right; options = Options(known_failures='none.toml')", "known_failures='none.toml' is not allowed"),
        ("pass", "subject"),
    ],
)
def test_a_class_that_cannot_be_collected_says_why(pytester: pytest.Pytester, body: str, told: str) -> None:
    pytester.makepyfile(f"{MODULE.partition('class')[0]}\nclass TestOne(BlockManagerSuite):\n    {body}")
    result = pytester.runpytest_inprocess("-p", "no:benchmark")
    result.assert_outcomes(errors=1)
    assert told in "\n".join(result.outlines)


def test_workers_draw_the_same_where_there_is_no_commit(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed that is printed is that of every check, whichever worker ran it."""
    root = Path(__file__).parents[2]
    roots = [str(root / part) for part in ("", "spec", "reference", "optimized", "tools")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(roots))
    body = "    subject = Right\n    options = Options(programs=4, steps=10)\n"
    pytester.makepyfile(f"{MODULE.partition('LITTLE')[0]}\nclass TestOne(BlockManagerSuite):\n{body}")
    result = pytester.runpytest_subprocess("-n2", "-p", "no:benchmark", "-k", "programs or state_machine")
    result.assert_outcomes(passed=2)
    (line,) = (line for line in result.outlines if "TestOne: 2 passed" in line)
    assert re.search(r", seed \d+$", line), line


def test_checks_run_without_pytest(tmp_path: Path) -> None:
    little = Options(programs=20, steps=30, seed=1, out=tmp_path)
    right, broken = (run_of(factory, little) for factory in (Right, LosesWhatIsFreed))
    assert [check.name for check in checks(right)][:4] == ["corpus", "programs", "state_machine", "exhaustive[core]"]
    assert checks(right)[1].run()["programs"] == 20
    for check in checks(broken):
        with pytest.raises(Broken, match="BROKEN: counts add up"):
            check.run()


@pytest.fixture
def profile_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test loads lasts as long as the test. With --hypothesis-seed there would be no database."""
    monkeypatch.setattr(hypothesis.core, "global_force_seed", None)
    before = settings.get_current_profile_name()
    yield
    settings.load_profile(before)


@pytest.mark.usefixtures("profile_afterwards")
def test_the_database_of_hypothesis_brings_a_failure_back(tmp_path: Path) -> None:
    settings.register_profile("here", settings(), database=DirectoryBasedExampleDatabase(tmp_path / "examples"))
    settings.load_profile("here")
    for little in (Options(programs=30, steps=30, seed=1), Options(programs=1, steps=30, seed=2)):
        with pytest.raises(Broken, match="a program of Hypothesis"):
            checks(run_of(LosesWhatIsTruncated, replace(little, out=tmp_path)))[2].run()


@pytest.mark.usefixtures("profile_afterwards")
def test_the_profile_for_continuous_integration_is_not_taken_over() -> None:
    """Hypothesis loads it by itself; it has no database and draws the same for ever."""
    settings.load_profile("ci")
    chosen = chosen_settings(PROFILES["pr"])
    assert (settings().derandomize, settings().database) == (True, None)
    assert (chosen.derandomize, chosen.database is None) == (False, False)


def test_a_long_trace_is_shown_in_part(tmp_path: Path) -> None:
    lines = ['{"pagedkv_trace": 1, "num_blocks": 2, "block_size": 4, "options": {"prefix_cache": false}}']
    lines += ['{"op": "free", "request": "nobody"}'] * 40
    lines += ['{"op": "admit", "request": "a", "tokens": [1]}', '{"op": "free", "request": "a"}']
    (tmp_path / "long.jsonl").write_text("\n".join([*lines, lines[-1]]))
    with pytest.raises(Broken) as caught:
        checks(run_of(LosesWhatIsFreed, Options(traces=tmp_path)))[0].run()
    told = str(caught.value).splitlines()
    assert len(told) < MOST_LINES + 16
    assert told[5].startswith("   1  ")
    assert told[6] == "      … 27 lines …"
    assert told[6 + MOST_LINES - 1].startswith("> 43  "), "and what follows is left out"


def test_budgets_are_in_programs_and_operations() -> None:
    run = run_of(Right, Options(programs=7, steps=9, seed=1))
    assert (run.budget.programs, run.budget.steps, run.budget.machine_programs) == (7, 9, 7)
    assert run_of(Right).budget == PROFILES["pr"]
    assert profile("nightly").programs == 40 * profile("pr").programs
    with pytest.raises(Misuse, match="one of pr, nightly"):
        profile("weekly")


def test_the_seed_follows_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_TESTRUNUID", raising=False)  # which the workers of a run share
    assert seed_of_commit(tmp_path) != seed_of_commit(tmp_path), "no repository: at random"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "m"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert seed_of_commit(tmp_path) == int(head[:8], 16) == run_of(Right, Options(seed=int(head[:8], 16))).seed
