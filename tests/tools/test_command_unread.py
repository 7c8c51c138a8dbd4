"""The command when nobody reads what it prints, as after `head`: it ends quietly, and not as if it held."""

import os
from pathlib import Path

import pytest

from pagedkv.cli.main import UNREAD, main

from tests.tools.test_command import ADMIT, BROKEN, HEADER, SAMPLE, trace_file
from tests.tools.test_command_robust import EXPLAIN, run, the_line

VERBS = (
    ["--version"],
    ["fuzz", "--help"],
    EXPLAIN,
    ["explain", "--json", SAMPLE],
    ["replay", SAMPLE, "--subject", "reference"],
    ["replay", SAMPLE, "--subject", BROKEN],
    ["exhaust", "--subject", "reference", "--slice", "core", "--max-states", "5", "--json"],
    ["fuzz", "--subject", "reference", "--programs", "1", "--json"],
)


def unread(arguments: list[str], unbuffered: str) -> tuple[int, str]:
    """Exit code and stderr, with a stdout that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    try:
        code, _, stderr = run(arguments, write, PYTHONUNBUFFERED=unbuffered)
    finally:
        os.close(write)
    return code, stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_it_ends_quietly_and_not_as_if_it_held(arguments: list[str], unbuffered: str) -> None:
    code, stderr = unread(arguments, unbuffered)
    assert code == UNREAD == 141
    assert [line for line in stderr.splitlines() if not line.startswith(("replay ", "exhaust "))] == []


def test_misuse_is_told_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "dedup.jsonl"
    path.write_text(HEADER.replace("}", ', "options": {"dedup": true}}') + ADMIT + "\n")
    code, stderr = unread(["replay", str(path), "--subject", "optimized"], "")
    assert code == 2
    assert "nothing was held" in the_line(stderr)


def test_another_pipe_that_breaks_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As that to a process of our own."""

    def broken(*_: object) -> object:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("pagedkv.cli.explain.explain", broken)
    assert main(["explain", trace_file(tmp_path, ADMIT)]) == 2
    assert "BrokenPipeError" in the_line(capfd.readouterr().err)
