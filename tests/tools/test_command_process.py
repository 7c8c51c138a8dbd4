"""The command with subjects in a process of their own: what is misuse, what a violation, and what is printed."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagedkv.cli.main import main
from pagedkv.spec.trace import DATA

BAD = "process:tests.tools.bad_subjects:"
SAMPLE = str(DATA / "sample.jsonl")


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("process:nobody", "expected reference, optimized, device, module:factory, process: before one of these"),
        ("process:no_such_module_here:f", "expected a module that can be imported; there is no no_such_module_here"),
        (BAD + "raises", "making it raised RuntimeError('no"),
        (BAD + "exits", "making it raised SystemExit(0)"),
        (BAD + "Undeclared", "capabilities are of type dict, not Capabilities"),
        ("command:no/such/program", "expected a program that can be started (No such file or directory)"),
        ("command:true", "a subject survives every operation: it exited with code 0"),
        ("command:echo hello", "an answer is one line of the protocol: "),
    ],
)
def test_what_makes_no_subject_is_misuse(subject: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", SAMPLE, "--subject", subject]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pagedkv replay: error: ")]
    assert reason in line


def test_a_subject_that_dies_is_a_violation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dying = ["--subject", "process:tests.conformance.dying:SegfaultsOnSharedAppend", "--out", str(tmp_path)]
    assert main(["fuzz", "--programs", "60", "--seed", "1", "--json", *dying]) == 1
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["violation"]["law"] == "a subject survives every operation"
    assert main(["replay", report["violation"]["path"], *dying[:2]]) == 1
    assert "a subject survives every operation: it was ended by SIGSEGV" in capsys.readouterr().out


def test_what_a_subject_prints_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", SAMPLE, "--json", "--subject", BAD + "Talking"]) == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out)["holds"] is True
    assert "freed\n" in printed.err


def test_a_trace_replays_in_a_process_as_in_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for subject in ("reference", "process:reference"):
        assert main(["replay", SAMPLE, "--touched-only", "--subject", subject]) == 0
        told.append(capsys.readouterr().out.removesuffix(f"{subject}: HOLDS\n"))
    assert told[0] == told[1]
