"""Which lines of a long trace `pagedkv explain` draws, who may stop reading, and that it judges as `replay` does."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pagedkv.conformance import corpus
from pagedkv.conformance.differential.model import ModelSubject
from pagedkv.conformance.failures.replay import replay
from pagedkv.conformance.search import fuzz
from pagedkv.reference.manager import BlockManager
from pagedkv.spec import Config
from pagedkv.spec.trace import Expect, parse, sample

from pagedkv.cli import explain
from pagedkv.cli.main import UNREAD, main

from tests.tools.test_command import HEADER

ADMIT = '{"op": "admit", "request": "a", "tokens": [1], "expect": {"available_blocks": %d}}'
FREE = '{"op": "free", "request": "a"}'


def long_trace(folder: Path, wrong_at: tuple[int, ...] = (), pairs: int = 200) -> str:
    """Lines 2 to 1 + 2 * `pairs`; each even line has an expectation, which is not met in some."""
    path = folder / "long.jsonl"
    lines = [f"{ADMIT % (4 if 2 + 2 * i in wrong_at else 3)}\n{FREE}\n" for i in range(pairs)]
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    return str(path)


def drawn(text: str) -> list[int]:
    """The numbers of the lines that are drawn."""
    return [int(part.partition(":")[0]) for part in text.split("\n\n")[1:]]


def test_lines_that_are_none_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for asked, wrong, told in (
        ("900-", (), "no operation is in those lines"),
        ("900", (8,), "lines; 1 of 400 operations"),
    ):
        main(["explain", long_trace(tmp_path, wrong), "--lines", asked])
        printed = capsys.readouterr().out
        assert told in printed
        assert drawn(printed) == []


def test_of_a_long_trace_the_first_line_that_is_not_as_expected_is_drawn_and_what_leads_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", long_trace(tmp_path, (300, 304))]) == 1
    text = capsys.readouterr().out
    assert drawn(text) == list(range(280, 301))
    assert text.count("NOT AS EXPECTED") == 1
    told = "2 of 400 operations are not as expected: the first one, and what is before it (lines 280 to 300; "
    assert text.splitlines()[1] == told + "--lines 2- draws all)"


def test_of_a_long_trace_that_is_as_expected_the_end_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", long_trace(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert drawn(text) == list(range(381, 402))
    assert text.splitlines()[1].startswith("all is as expected: the last one, ")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [("7-9", [7, 8, 9]), ("7", [7]), ("399-", [399, 400, 401]), ("-3", [2, 3]), ("2-", list(range(2, 402)))],
)
def test_the_lines_that_are_asked_for_are_drawn(
    lines: str, expected: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--lines", lines, long_trace(tmp_path, (300,))]) == 1
    text = capsys.readouterr().out
    assert drawn(text) == expected
    assert "1 of 400 operations is not as expected" in text


@pytest.mark.parametrize("lines", ["", "-", "9-7", "a", "1-2-3", "1.5"])
def test_what_is_no_range_of_lines_is_misuse(lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"--lines={lines}", long_trace(tmp_path)]) == 2
    assert f"invalid range of lines, A-B value: {lines!r}" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--json"]], ids=str)
def test_who_reads_may_stop(more: list[str], tmp_path: Path) -> None:
    """As `head` does."""
    path = long_trace(tmp_path, (300,), pairs=2_000)
    command = [sys.executable, "-m", "pagedkv.cli.main", "explain", "--lines", "2-", path, *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        reading.stdout.readline()
        reading.stdout.close()
        assert (reading.stderr.read(), reading.wait(60)) == ("", UNREAD)


TRACES = {"sample": sample(), **{path.stem: trace for path, trace in corpus.traces().items()}}


@pytest.mark.parametrize("name", TRACES)
def test_what_every_trace_of_ours_expects_is_drawn_as_met(name: str) -> None:
    assert [step.wrong for step in explain.explain(TRACES[name]) if step.wrong] == []


def test_the_sample_judged_by_explain_and_by_replay() -> None:
    """The same words at every line whose expectation is made a wrong one."""
    whole = sample()
    for place, line in enumerate(whole.lines):
        changed = replace(line, expect=Expect("refused", error="nothing", length=99, copies=9, available_blocks=99))
        trace = replace(whole, lines=(*whole.lines[:place], changed, *whole.lines[place + 1 :]))
        report = replay(trace, BlockManager)
        (wrong,) = [step for step in explain.explain(trace) if step.wrong]
        assert wrong.line is not None
        assert (report.at_line, report.detail) == (wrong.line.number, "; ".join(wrong.wrong))


def test_what_a_policy_is_expected_to_do_is_held_against_what_is_drawn() -> None:
    text = HEADER + '{"op": "admit", "request": "a", "tokens": [1], "expect_policy": {"lru": {"available_blocks": 9}}}'
    (step,) = explain.explain(parse(text))
    assert step.wrong == ["available_blocks: the trace has 9, the specification says 3"]


class LongestIdle(ModelSubject):
    """The specification, evicting as `explain` does."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, explain.LONGEST_IDLE)
        self.capabilities = replace(self.capabilities, policy="lru")


def test_what_explain_evicts_is_the_longest_idle(request: pytest.FixtureRequest) -> None:
    seed: Any = request.config.getoption("--hypothesis-seed") or 0
    report = fuzz.run(LongestIdle, seed=int(seed), programs=60)
    assert report.violation is None, report.violation
    assert report.evictions
