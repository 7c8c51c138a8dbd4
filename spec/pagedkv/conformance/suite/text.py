"""The report of a broken law: what a person needs to see, and no traceback."""

import re
import shlex
from collections.abc import Collection
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Final
from zlib import crc32

from pagedkv.conformance.counted import counted
from pagedkv.conformance.differential.violation import COPIED
from pagedkv.conformance.failures.known import entry_for
from pagedkv.conformance.failures.replay import ReplayReport
from pagedkv.conformance.suite.run import Run
from pagedkv.spec.trace import Trace, dumps

OF_THE_COPY: Final = "Replayed on a subject that is not copied, it holds."
NOT_AGAIN: Final = "Replayed, it holds: the subject does not do the same every time."
REPLAY: Final = "from pagedkv.conformance.failures.replay import replay; from pagedkv.spec.trace import load"
PLAIN: Final = re.compile("[A-Za-z0-9_.:]{1,100}")
"""Names of subjects that a file can have, all but the colon."""
MOST_LINES: Final = 16
"""Of a trace that are shown; of a longer one, the last before the failure."""


def slug(text: str) -> str:
    """A text as part of a file name.

    >>> slug("refusal is required when need > available")
    'refusal-is-required-when-need-available'
    """
    return re.sub("[^A-Za-z0-9]+", "-", text).strip("-")


def file_name(subject: str, what: str) -> str:
    """Of a failing trace, without its ending: a subject's own, so that none overwrites that of another one.

    >>> file_name("my_module:Allocator", "exhaust-sliding_hits")
    'my_module-Allocator-exhaust-sliding-hits'
    >>> file_name("command:./mine --seed=1", "fuzz-0-1")
    'command-mine-seed-1-55d08cf9-fuzz-0-1'
    """
    if PLAIN.fullmatch(subject):
        return f"{subject.replace(':', '-')}-{slug(what)}"
    return f"{slug(subject)[:60]}-{crc32(subject.encode()):08x}-{slug(what)}"


def go_on(path: str | Path, subject: str = "", limit_s: float | None = None) -> list[str]:
    """The commands that go on from a trace, for a shell. Without the name of a subject, what to call in Python.

    >>> go_on("failures/a b.jsonl", "command:./mine --fast", 0.5)[1]
    "repeat it:  pagedkv replay 'failures/a b.jsonl' --subject 'command:./mine --fast' --limit-s 0.5"
    """
    trace = shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))
    options = f" --subject {shlex.quote(subject)}" + ("" if limit_s is None else f" --limit-s {limit_s:g}")
    again = f"pagedkv replay {trace}{options}" if subject else f"replay(load({str(path)!r}), …)  # {REPLAY}"
    return [f"draw it:    pagedkv explain {trace}{options if subject else ''}", f"repeat it:  {again}"]


def broken_text(run: Run, where: str, report: ReplayReport, trace: Trace, path: Path | None) -> str:
    """The law and how it is broken, the trace with the line that breaks it marked, and the commands that go on from
    there. `report` is of a replay of the trace on the subject; if that holds, it does not do the same every time."""
    operations, repeats = len(trace.lines), report.verdict == "violation"
    lines = [
        f"BROKEN: {report.law}",
        f"  {report.detail}",
        f"in {where}",
        "",
        f"{path or f'nothing can be written to {run.out}'} ({counted(operations, 'operations')}):",
        *shown(trace, report.at_line),
        *([">     (here everything is computed and freed)"] if repeats and report.at_line is None else []),
        "",
    ]
    if not repeats:
        lines += [f"  {OF_THE_COPY if report.law == COPIED else NOT_AGAIN}", ""]
    if path:
        lines += [f"  {line}" for line in go_on(path, run.subject, run.limit_s)]
    if path and repeats:
        name = _free_name(path, {each.name for each in run.known})
        lines += pin_it("--pagedkv-known-failures", path.name, name, report.at_line, report.law)
    return "\n".join(lines)


def pin_it(option: str, file: str, name: str, line: int | None, law: str) -> list[str]:
    """How to pin a trace as a known failure, under a name that is free."""
    renamed = "" if name == file else f" as {name}"
    what = f"  pin it:     copy the file{renamed} beside that of {option}, which gets an entry:"
    return [what, *(f"    {text}" for text in entry_for(name, line, law).splitlines())]


def _free_name(path: Path, pinned: Collection[str]) -> str:
    names = (f"{path.stem}-{number}{path.suffix}" for number in count(2))
    return path.name if path.name not in pinned else next(name for name in names if name not in pinned)


def shown(trace: Trace, at_line: int | None, most: int = MOST_LINES) -> list[str]:
    """The lines of a trace up to the one that is marked, the header and the last of them if there are more than `most`;
    without the note, which says what the report says."""
    text = dumps(replace(trace, header=replace(trace.header, note=""))).splitlines()[:at_line]
    lines = [f"{'>' if number == at_line else ' '} {number:>2}  {line}" for number, line in enumerate(text, start=1)]
    left_out = len(lines) - most
    return lines if left_out <= 0 else [lines[0], f"      … {counted(left_out, 'lines')} …", *lines[left_out + 1 :]]
