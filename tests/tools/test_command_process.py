"""The command with subjects in a process of their own: what is misuse, what a violation, and what is printed."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagedkv.cli.main import main
from pagedkv.conformance.suite.run import FACTORY, PROGRAM
from pagedkv.spec.trace import DATA

BAD = "process:tests.tools.bad_subjects:"
SAMPLE = str(DATA / "sample.jsonl")


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("process:nobody", "expected reference, optimized, device, module:factory, process: before one of these"),
        ("process:no_such_module_here:f", "expected a module that can be imported; there is no no_such_module_here"),
        ("process:tests.tools:f", "expected a function or class in tests.tools that makes a subject; there is no f"),
        (BAD + "raises", f"expected {FACTORY}; making it raised RuntimeError('no"),
        (BAD + "exits", f"expected {FACTORY}; making it raised SystemExit(0)"),
        (BAD + "something", f"expected {FACTORY}; the dict that it made has no capabilities, admit, "),
        (BAD + "Undeclared", "the Undeclared that it made declares capabilities of type dict, not Capabilities"),
        (BAD + "nothing_fits", "; it raised Misuse('num_blocks=2 is not allowed: expected more')"),
        ("command:", "expected a program and its arguments after command:"),
        ("command:no/such/program", "expected a program that can be started; there is no no/such/program"),
        ("command:no-such-program", "expected a program that can be started; there is no no-such-program on the PATH"),
        ("command:text", "there is no text on the PATH, but ./text is there"),
        ("command:./text", "./text is not executable: chmod +x ./text, or put before it what runs it"),
        ("command:./of-nobody", "what the first line of ./of-nobody names is not there"),
        ("command:./empty", "expected a program that can be started; ./empty: Exec format error"),
        ("command:true", f"expected {PROGRAM}; it exited with code 0"),
        ("command:sh -c 'read header; echo why >&2; exit 3'", "; it exited with code 3; its stderr: why"),
        (
            "command:sh -c 'read header; echo hello; cat'",
            f"expected {PROGRAM}; it answered 'hello', expected one JSON ",
        ),
        ("command:sh -c 'read header; echo {}; cat'", "it answered '{}': line keys='', expected 'capabilities' among"),
    ],
)
def test_what_makes_no_subject_is_misuse_in_one_sentence(
    subject: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which subject, what was expected, what happened: no message within a message."""
    for name, text in {"text": "", "of-nobody": "#!/no/such/interpreter\n", "empty": ""}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644 if name == "text" else 0o755)
    monkeypatch.chdir(tmp_path)
    assert main(["replay", SAMPLE, "--subject", subject]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pagedkv replay: error: ")]
    assert line.startswith(f"pagedkv replay: error: subject={subject!r} is not allowed: expected ")
    assert reason in line
    assert "Violation(" not in line


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
