"""The page about the command shows what the command prints: its cheap examples are run and compared."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagedkv.cli.main import VERBS, main

PAGE = Path(__file__).parents[2] / "docs" / "command.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLE = re.compile(r"(<!-- long: .*? -->\n)?```console\n\$ pagedkv (.*?)\n(.*?)```", re.DOTALL)
FILE = re.compile(r"<!-- file: (\S+) -->\n```json\n(.*?)```", re.DOTALL)
TIME = re.compile(r"\b[\d,.]+(?= s\b| a second\b|$)", re.MULTILINE)
"""What differs from run to run: seconds and speeds."""


def examples() -> Iterator[tuple[str, str]]:
    """Command line and output; what is marked as long is a sample of a run, and is not repeated here."""
    for long, command, output in EXAMPLE.findall(TEXT):
        if not long:
            yield command, output


def comparable(text: str) -> str:
    return TIME.sub("#", "\n".join(line.rstrip() for line in text.strip().splitlines()))


@pytest.mark.parametrize(("command", "output"), list(examples()), ids=[command for command, _ in examples()])
def test_an_example_prints_what_the_page_shows(
    command: str,
    output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, content in FILE.findall(TEXT):
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) == 0
    assert comparable(capsys.readouterr().out) == comparable(output)


def test_every_verb_has_a_chapter_and_an_example() -> None:
    chapters = re.findall(r"^## (\w+)$", TEXT, re.MULTILINE)
    assert chapters == list(VERBS)
    shown = {command.split()[0] for _, command, _ in EXAMPLE.findall(TEXT)}
    assert shown == set(VERBS)


def test_the_comparison_sees_a_difference() -> None:
    assert comparable("core 307 states 1.2 s") == comparable("core 307 states 9.9 s")
    assert comparable("core 307 states") != comparable("core 308 states")
