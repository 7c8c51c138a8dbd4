"""What the user reads: sections with a verdict each, as text and as JSON, and failures written as trace files."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal, TypeAlias

from pagedkv.cli.inputs import BadInput, progress
from pagedkv.conformance.counted import counted
from pagedkv.conformance.failures.shrinking import Failure, trace_of
from pagedkv.conformance.suite.text import go_on, pin_it, shown
from pagedkv.spec import Misuse
from pagedkv.spec.trace import Trace, save

Status: TypeAlias = Literal["holds", "violated", "not run"]
WIDTH = 118
SHOWN = 20
"""Operations of a trace that are printed, the last ones."""


@dataclass(frozen=True)
class Section:
    """One part of a report."""

    name: str
    status: Status
    lines: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    elapsed_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "status": self.status,
            "elapsed_s": round(self.elapsed_s, 3),
            "lines": list(self.lines),
            "data": dict(self.data),
        }


def verdict(holds: bool) -> Status:
    """The status of a part that ran."""
    return "holds" if holds else "violated"


def merged(name: str, parts: Sequence[Section]) -> Section:
    """Sections of one name as one: violated if any is, not run if all are."""
    statuses = [part.status for part in parts]
    status: Status = "violated" if "violated" in statuses else "holds" if "holds" in statuses else "not run"
    return Section(
        name,
        status,
        tuple(line for part in parts for line in part.lines),
        {"parts": [dict(part.data) for part in parts]} if len(parts) > 1 else dict(parts[0].data),
        sum(part.elapsed_s for part in parts),
    )


def render(sections: Iterable[Section]) -> str:
    """The sections as text: a rule with name, verdict and time, then the lines."""
    text = []
    for section in sections:
        head = f"-- {section.name}: {section.status} "
        text.append(f"{head}{'-' * max(2, WIDTH - len(head) - 9)} {section.elapsed_s:6.1f} s")
        text += [f"   {line}" for line in section.lines]
    return "\n".join(text)


def columns(rows: Sequence[Sequence[object]]) -> list[str]:
    """Rows as aligned lines: numbers to the right with thousands separated, text to the left.

    >>> columns([("slice", "states"), ("core", 12345)])
    ['slice  states', 'core   12,345']
    """
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    numeric = [all(not isinstance(row[i], str) for row in rows[1:]) and len(rows) > 1 for i in range(len(widths))]
    return [
        "  ".join(c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric, strict=True)).rstrip()
        for row in cells
    ]


def check_writable(directory: str) -> None:
    """Raises `BadInput` if no file can be made in `directory` or, where it is not there yet, if it cannot be made.

    Known before anything runs, so that a violation is not found in vain; nothing is left behind.
    """
    path, made = Path(directory), list[Path]()
    try:
        made = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise BadInput(f"nothing can be written to --out {directory!r}: {error.strerror or error}") from error
    finally:
        for each in made:
            with suppress(OSError):
                each.rmdir()


def write_trace(directory: str, name: str, trace: Trace) -> str | None:
    """Write a trace that shows a violation; its path. None, and why on stderr, if that fails: the violation stands."""
    path = Path(directory) / f"{name}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(trace, path)
    except (OSError, Misuse) as error:
        progress(f"the trace of a violation could not be written to {path}: {error}")
        return None
    return str(path)


def write_failure(directory: str, name: str, failure: Failure) -> str | None:
    """Write a program that ends in a violation as a trace file; its path, or None as in `write_trace`."""
    return write_trace(directory, name, trace_of(failure))


def verdict_line(subject: str, holds: bool) -> str:
    """The last line of a report about a subject."""
    return f"{subject}: {'HOLDS' if holds else 'VIOLATED'}"


def trace_line(path: str | None) -> str:
    """Where the trace of a violation is."""
    return f"  trace: {path or 'could not be written'}"


def trace_lines(
    path: str | None, trace: Trace, subject: str = "", limit_s: float | None = None, law: str = ""
) -> list[str]:  # fmt: skip
    """Where the trace of a violation is, the trace itself, whose last line breaks the law, and what to do with it."""
    count = len(trace.lines)
    lines = [f"{trace_line(path)} ({counted(count, 'operations')})"]
    lines += [f"  {line}" for line in shown(trace, count + 1, SHOWN + 1)]
    if path:
        lines += [f"  {line}" for line in go_on(path, subject, limit_s)]
        if law:
            lines += pin_it("--known-failures", Path(path).name, Path(path).name, count + 1, law)
    return lines
