"""The command when things go wrong: one line on stderr and exit code 2, and a violation that was found is told."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pagedkv.cli.main import main
from pagedkv.cli.parts import Options, run_part
from pagedkv.cli.report import check_writable

from tests.tools.test_command import BROKEN, HEADER, SAMPLE, trace_file

ROOT = Path(__file__).parents[2]
BAD = "tests.tools.bad_subjects:"
EXPLAIN = ["explain", SAMPLE]
ADMIT = '{"op": "admit", "request": "a", "tokens": [1, 2, 3]}'


def run(arguments: list[str], stdout: int | None = subprocess.PIPE, **environment: str) -> tuple[int, str, str]:
    """The command in a process of its own: exit code, stdout, stderr. `stdout` None: closed."""
    roots = os.pathsep.join(str(ROOT / root) for root in ("spec", "reference", "optimized", "tools", "."))
    done = subprocess.run(
        [sys.executable, "-m", "pagedkv.cli.main", *arguments], check=False, text=True, encoding="utf-8",
        stdout=subprocess.DEVNULL if stdout is None else stdout, stderr=subprocess.PIPE, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": roots, **environment},
        preexec_fn=(lambda: os.close(1)) if stdout is None else None,
    )  # fmt: skip
    return done.returncode, done.stdout or "", done.stderr


def the_line(stderr: str) -> str:
    """The one line of an error, progress left out."""
    assert "Traceback" not in stderr
    assert "Exception ignored" not in stderr
    (line,) = [line for line in stderr.splitlines() if "error: " in line]
    return line


# --- exceptions -----------------------------------------------------------------------------------------------------


def test_whatever_is_raised_ends_with_2_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> object:
        raise ZeroDivisionError("one\nover none")

    monkeypatch.setattr("pagedkv.cli.explain.explain", fail)
    monkeypatch.delenv("PAGEDKV_DEBUG", raising=False)
    assert main(EXPLAIN) == 2
    line = the_line(capsys.readouterr().err)
    assert line.startswith("pagedkv explain: error: ZeroDivisionError(")
    monkeypatch.setenv("PAGEDKV_DEBUG", "1")
    assert main(EXPLAIN) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("code", [0, 1, None, "text"])
def test_an_exit_is_no_verdict(code: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: object) -> object:
        raise SystemExit(code)

    monkeypatch.setattr("pagedkv.cli.explain.explain", leave)
    assert main(EXPLAIN) == 2


def test_pools_that_a_subject_does_not_have_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "--subject", BAD + "Small", "--programs", "60"]) == 0
    assert re.search(
        r"pools that the subject does not have, by what it refused: num_blocks \d+", capsys.readouterr().out
    )


@pytest.mark.parametrize("line", ['"t": ' + "9" * 5_000, '"t": ' + "9" * 400, '"x-deep": ' + "[" * 100_000])
def test_a_trace_of_extremes_is_a_bad_line(tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace_file(tmp_path, '{"op": "free", "request": "a", ' + line + "}")
    assert main(["explain", path]) == 2
    assert f"{path}:2:" in the_line(capsys.readouterr().err)


# --- subjects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('broken')", "broken"),
        ("import sys; sys.exit(0)", "SystemExit"),
        ("def", "SyntaxError"),
        ("import no_such_package", "no_such_package"),
        ("class E(BaseException):\n    pass\nraise E('why')", "E: why"),
        ("class E(Exception):\n    __str__ = None\nraise E()", "E: what it says cannot be shown"),
        ("from pagedkv.spec import nothing_there", "nothing_there"),
    ],
)
@pytest.mark.parametrize("verb", [["verify"], ["fuzz"], ["exhaust"], ["replay", SAMPLE]], ids=lambda verb: verb[0])
def test_a_module_that_cannot_be_imported_is_named(
    verb: list[str], source: str, reason: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "bad_module_of_mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main([*verb, "--subject", "bad_module_of_mine:Subject"]) == 2
    line = the_line(capsys.readouterr().err)
    assert "'bad_module_of_mine:Subject'" in line
    assert reason in line


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("..:x", "..:x"),
        (BAD + "raises", "memory"),
        (BAD + "exits", "SystemExit"),
        (BAD + "Undeclared", "declares capabilities of type dict, not Capabilities"),
        (BAD + "something", "the dict that it made has no capabilities, admit, "),
        (BAD + "nothing_fits", "; it raised Misuse('num_blocks=2 is not allowed: expected more') (bad_subjects.py:"),
        ("builtins:int", "Config"),
    ],
)
@pytest.mark.parametrize("verb", ["fuzz", "exhaust", "replay"])
def test_what_makes_no_subject_is_named(
    verb: str, subject: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, *([SAMPLE] if verb == "replay" else []), "--subject", subject]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    line = the_line(printed.err)
    assert repr(subject) in line
    assert reason in line


def test_a_subject_that_cannot_be_made_for_a_part_is_a_violation_with_its_pool(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    verify = ["verify", "--quick", "--only", "programs", "--no-progress", "--out", str(tmp_path), "--subject"]
    assert main([*verify, BAD + "Later"]) == 1
    text = capfd.readouterr().out
    assert "making it raised SystemExit(0) (bad_subjects.py:" in text
    assert '"num_blocks": 3' in text, "one more than those that it makes"
    assert main([*verify, BAD + "Exiting"]) == 1
    assert "SystemExit" in capfd.readouterr().out


def test_a_subject_that_exits_in_an_operation_is_a_violation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--subject", BAD + "Exiting", "--out", str(tmp_path)]
    assert main(["fuzz", "--programs", "20", *out]) == 1
    assert main(["exhaust", "--slice", "core", *out]) == 1
    assert main(["replay", trace_file(tmp_path, ADMIT), *out[:2]]) == 1
    assert "SystemExit" in capsys.readouterr().out


def test_a_part_that_exits_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagedkv.cli.parts.importlib.import_module", lambda name: sys.exit(0))
    assert run_part("programs", Options(quiet=True)).status == "violated"


def test_a_pool_that_the_subject_does_not_make_is_not_applicable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", trace_file(tmp_path, ADMIT), "--subject", BAD + "Small"]) == 2
    text = capsys.readouterr().out
    assert "not applicable: the subject cannot be made with the pool of the trace: num_blocks=4 is not allowed" in text


def test_what_a_subject_prints_is_not_in_the_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    talking = ["--subject", BAD + "Talking", "--out", str(tmp_path), "--json"]
    program = trace_file(tmp_path, ADMIT, '{"op": "free", "request": "a"}')
    for arguments in (
        ["fuzz", "--programs", "2", *talking],
        ["exhaust", "--slice", "core", "--max-states", "5", *talking],
        ["replay", program, *talking[:2], "--json"],
        ["verify", "--quick", "--only", "workload", *talking],
    ):
        main(arguments)
        printed = capfd.readouterr()
        assert json.loads(printed.out)["subject"] == BAD + "Talking"
        assert "freed" in printed.err


def test_what_is_written_to_the_stdout_of_the_process_is_not_in_the_report(tmp_path: Path) -> None:
    """By native code, by another process, at the exit of the interpreter."""
    arguments = ["--subject", BAD + "Writing", "--out", str(tmp_path), "--programs", "2", "--json"]
    code, stdout, stderr = run(["fuzz", *arguments])
    assert (code, json.loads(stdout)["subject"]) == (0, BAD + "Writing")
    assert [text for text in ("native", "interpreter", "child", "at the end") if text not in stderr] == []


# --- where the report and the traces go -----------------------------------------------------------------------------


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [EXPLAIN, ["explain", "--json", SAMPLE], ["--help"], ["--version"]], ids=str)
def test_a_full_stdout_ends_with_2(arguments: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        code, _, stderr = run(arguments, full.fileno(), PYTHONUNBUFFERED=unbuffered)
    assert code == 2
    assert "No space left on device" in the_line(stderr)


def test_a_closed_stdout_ends_with_2() -> None:
    code, _, stderr = run(EXPLAIN, None)
    assert code == 2
    assert "stdout is closed" in the_line(stderr)


def test_ids_of_any_alphabet_are_drawn_on_an_ascii_terminal(tmp_path: Path) -> None:
    path = trace_file(tmp_path, ADMIT.replace('"a"', '"\\u00e9\\ud83d\\ude00"'))
    code, stdout, stderr = run(["explain", path], PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (code, stderr) == (0, "")
    assert "admit request=\\xe9\\U0001f600 " in stdout


@pytest.mark.parametrize("verb", [["fuzz", "--programs", "1"], ["exhaust", "--slice", "core"], ["verify", "--quick"]])
def test_that_nothing_can_be_written_is_known_before_anything_runs(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for ran in ("fuzz.fuzz", "exhaust.visit", "verify.run_parts"):
        monkeypatch.setattr(f"pagedkv.cli.{ran}", lambda *_, **__: pytest.fail("it ran"))
    (tmp_path / "file").write_text("")
    assert main([*verb, "--subject", BROKEN, "--out", str(tmp_path / "file" / "folder")]) == 2
    assert "nothing can be written to --out" in the_line(capsys.readouterr().err)


def test_the_look_at_out_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(str(tmp_path / "new" / "folder"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    check_writable(str(tmp_path / "mine"))
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


@pytest.mark.parametrize("verb", [["fuzz", "--programs", "5"], ["exhaust", "--slice", "core"]], ids=lambda v: v[0])
def test_a_violation_is_told_although_its_trace_cannot_be_written(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pagedkv.cli.report.save", full)
    arguments = [*verb, "--subject", BROKEN, "--out", str(tmp_path)]
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert "VIOLATED" in printed.out
    assert "trace: could not be written" in printed.out
    assert "No space left on device" in printed.err
    assert main([*arguments, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["slices"][0]["trace"] if "slices" in document else document["violation"]["path"]) is None


def test_an_error_of_the_subject_is_not_blamed_on_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pagedkv.cli.fuzz.fuzz", lost)
    assert main(["fuzz", "--subject", "reference", "--out", str(tmp_path)]) == 2
    assert "--out" not in the_line(capsys.readouterr().err)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("pagedkv ")


def test_a_large_pool_is_explained_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large.jsonl"
    path.write_text(HEADER.replace('"num_blocks": 4', '"num_blocks": 1000000') + (ADMIT + "\n") * 2)
    assert main(["explain", str(path)]) == 0
    assert "pool, changed blocks: 0:1 1:1" in capsys.readouterr().out
