"""The names of files with failing traces, and the commands that go on from one."""

import shlex
from pathlib import Path

import pytest
from pagedkv.cli.main import main
from pagedkv.conformance.suite.text import file_name, go_on
from pagedkv.spec.trace import DATA

SUBJECTS = [
    "reference", "process:reference", "a.b:C", "a_b:C", "a:b_C", "a.b:C.d", "uni:Ä", "uni:Ö", "command:./p --f=1",
    "command:./p --f 1", "command:./p  --f 1", "command:./p " + "x" * 300, "command:./p " + "x" * 301, "a:" + "b" * 300,
]  # fmt: skip


def test_no_two_subjects_share_a_file_and_every_name_is_short_and_plain() -> None:
    names = [file_name(subject, "fuzz-0-1") for subject in SUBJECTS]
    assert len(set(map(str.lower, names))) == len(SUBJECTS)
    for name in names:
        assert len(name) < 150
        assert name.isascii()
        assert shlex.quote(name) == name


@pytest.mark.parametrize("folder", ["-x", "with space", "it's"])
def test_the_commands_run_as_they_are_printed(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(folder).mkdir()
    trace = Path(folder, "a.jsonl")
    trace.write_bytes((DATA / "sample.jsonl").read_bytes())
    for line in go_on(trace, "reference"):
        program, *arguments = shlex.split(line.partition(":")[2])
        assert program == "pagedkv"
        assert main(arguments) == 0
    capsys.readouterr()
