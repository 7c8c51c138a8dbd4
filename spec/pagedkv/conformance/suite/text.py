"""The report of a broken law: what a person needs to see, and no traceback."""

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Final

from pagedkv.conformance.failures.known import entry_for
from pagedkv.conformance.failures.replay import ReplayReport
from pagedkv.spec.trace import Trace, dumps

MOST_LINES: Final = 16
"""Of a trace that are shown; of a longer one, the last before the failure."""


def slug(text: str) -> str:
    """A text as part of a file name.

    >>> slug("refusal is required when need > available")
    'refusal-is-required-when-need-available'
    """
    return re.sub("[^A-Za-z0-9]+", "-", text).strip("-")


def go_on(path: str | Path, subject: str = "", limit_s: float | None = None) -> list[str]:
    """The commands that go on from a trace, for a shell.

    >>> go_on("failures/a b.jsonl", "command:./mine --fast", 0.5)[1]
    "repeat it:  pagedkv replay 'failures/a b.jsonl' --subject 'command:./mine --fast' --limit-s 0.5"
    """
    trace = shlex.quote(str(path))
    options = f" --subject {shlex.quote(subject)}" if subject else ""
    options += "" if limit_s is None else f" --limit-s {limit_s:g}"
    return [f"draw it:    pagedkv explain {trace}", f"repeat it:  pagedkv replay {trace}{options}"]


def broken_text(
    subject: str, limit_s: float | None, where: str, report: ReplayReport, trace: Trace, path: Path
) -> str:  # fmt: skip
    """The law and how it is broken, the trace with the line that breaks it marked, and the commands that go on from
    there. `report` is of a replay of the trace on the subject."""
    operations = len(trace.lines)
    lines = [
        f"BROKEN: {report.law}",
        f"  {report.detail}",
        f"in {where}",
        "",
        f"{path} ({operations} operation{'s' * (operations != 1)}):",
        *_shown(trace, report.at_line),
        "",
        *(f"  {line}" for line in go_on(path, subject, limit_s)),
        "  pin it:     move the file beside that of --pagedkv-known-failures, which gets an entry:",
        *(f"    {line}" for line in entry_for(path.name, report.at_line, report.law).splitlines()),
    ]
    return "\n".join(lines)


def _shown(trace: Trace, at_line: int | None) -> list[str]:
    """The lines of a trace up to the one that is marked, without the note, which says what the report says."""
    shown = []
    for number, text in enumerate(dumps(replace(trace, header=replace(trace.header, note=""))).splitlines(), start=1):
        shown.append(f"{'>' if number == at_line else ' '} {number:>2}  {text}")
        if number == at_line:
            break
    else:
        shown.append(">     (here everything is computed and freed)")
    left_out = len(shown) - MOST_LINES
    return shown if left_out <= 0 else [shown[0], f"      … {left_out} lines …", *shown[left_out + 1 :]]
