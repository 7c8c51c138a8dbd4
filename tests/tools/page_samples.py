"""The samples on the page about the command, and how they are written anew.

    python -m tests.tools.page_samples          # the cheap ones, which the tests also compare
    python -m tests.tools.page_samples --long   # all of them: minutes, and the speeds of this machine

A sample is a `console` block that starts with `$ pagedkv`. One marked `<!-- long: why -->` is a record of a run, one
marked `<!-- fixed: why -->` is never run.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from pagedkv.cli.main import main as pagedkv

PAGE = Path(__file__).parents[2] / "docs" / "command.md"
SAMPLE = re.compile(
    r"(?P<mark><!-- (?:long|fixed): .*? -->\n)?```console\n\$ pagedkv (?P<command>.*?)\n(?P<output>.*?)```", re.DOTALL
)
FILE = re.compile(r"<!-- file: (\S+) -->\n```json\n(.*?)```", re.DOTALL)


class Sample(NamedTuple):
    """One sample: how it is marked ("", "long" or "fixed"), the arguments, and what the page shows."""

    mark: str
    command: str
    output: str


def sample_of(match: re.Match[str]) -> Sample:
    """A match of `SAMPLE`."""
    mark = re.search(r"long|fixed", match["mark"] or "")
    return Sample(mark[0] if mark else "", match["command"], match["output"])


def samples() -> list[Sample]:
    """Those of the page, in order."""
    return [sample_of(match) for match in SAMPLE.finditer(PAGE.read_text(encoding="utf-8"))]


def write_files(folder: Path) -> None:
    """The files that the page shows, for the commands that read them."""
    for name, content in FILE.findall(PAGE.read_text(encoding="utf-8")):
        (folder / name).write_text(content, encoding="utf-8")


def printed(command: str) -> str:
    """What a command prints in a folder with the files of the page."""
    before, out = Path.cwd(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        write_files(Path(folder))
        os.chdir(folder)
        try:
            pagedkv(shlex.split(command))
        finally:
            os.chdir(before)
    return out.getvalue()


def renewed(match: re.Match[str], long: bool) -> str:
    """A sample with its output as it is now."""
    mark, command, _ = sample_of(match)
    if mark == "fixed" or (mark == "long" and not long):
        return match[0]
    return f"{match['mark'] or ''}```console\n$ pagedkv {command}\n{printed(command)}```"


def main(arguments: list[str]) -> None:
    """Rewrite the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(SAMPLE.sub(lambda match: renewed(match, "--long" in arguments), text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
