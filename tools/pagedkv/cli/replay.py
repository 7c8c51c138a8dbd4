"""Replay traces on a subject, every operation held against the specification and against what the trace expects.

All traces are read before the first runs. A trace that needs what the subject does not declare is "not applicable",
which is no violation; if none applies, nothing was held, and the exit code is 2. Exit code 1 at a violation. With
--minimize, what is not needed to break the law is left out, and the shorter trace is written to --out and printed.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pagedkv.cli import options
from pagedkv.cli.inputs import BadInput, aside, print_json, progress, read_trace
from pagedkv.cli.report import check_writable, trace_lines, verdict_line, write_trace
from pagedkv.conformance import corpus
from pagedkv.conformance.counted import counted
from pagedkv.conformance.failures.known import Excuse, KnownFailure
from pagedkv.conformance.failures.replay import ReplayReport, replay
from pagedkv.conformance.failures.shrinking import failure_of, minimise, trace_of
from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import Trace

CORPUS: Final = "corpus/"
"""Before the names of the traces that come with the kit."""
HELP = "replay traces on a subject"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("trace", nargs="*", metavar="TRACE", help="trace files")
    parser.add_argument("--corpus", action="store_true", help="the traces of public bugs that come with the kit, too")
    options.add_subject(parser)
    options.add_failures(parser, minimize=False)
    parser.add_argument(
        "--touched-only", action="store_true",
        help="compare after an operation what it touched, and everything at the end: for long traces",
    )  # fmt: skip


@dataclass(frozen=True)
class Replayed:
    """What became of one file."""

    path: str
    report: ReplayReport
    pinned: KnownFailure | None = None
    """The known failure that this trace is."""
    minimal: Trace | None = None
    minimal_path: str | None = None
    stopped: str = ""
    """Why it may not be minimal."""

    @property
    def holds(self) -> bool:
        """A trace that is pinned has to fail as it is pinned, any other one must not fail."""
        if self.pinned:
            report, pinned = self.report, self.pinned
            return report.verdict == "violation" and (report.at_line, report.law) == (pinned.line, pinned.law)
        return self.report.verdict != "violation"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "trace": self.path,
            **self.report.as_json(),
            "holds": self.holds,
            "minimal": self.minimal_path,
            "stopped": self.stopped,
        }


def run(arguments: argparse.Namespace) -> int:
    """The verb."""
    factory = options.chosen_subject(arguments)
    known = options.known_failures(arguments)
    traces = {path: read_trace(path) for path in arguments.trace}
    if arguments.corpus:
        traces |= {f"{CORPUS}{path.name}": trace for path, trace in corpus.traces().items()}
    if not traces:
        raise BadInput("no TRACE: expected trace files, or --corpus")
    if arguments.minimize:
        check_writable(arguments.out)
    results = []
    for path, trace in traces.items():
        if not path.startswith(CORPUS):
            progress(f"replay {path} ...")
        with aside():
            report = replay(trace, factory, touched_only=arguments.touched_only)
        result = Replayed(path, report, next((each for each in known if each.trace == trace), None))
        if arguments.minimize and report.verdict == "violation":
            with aside():
                excuse = None if result.pinned else Excuse(known, factory)
            result = _minimal(result, trace, factory, arguments.out, excuse)
        results.append(result)
    holds = all(result.holds for result in results)
    if arguments.json:
        print_json({"subject": arguments.subject, "holds": holds, "traces": [result.as_json() for result in results]})
    else:
        told = [result for result in results if not (result.path.startswith(CORPUS) and result.holds)]
        lines = [line for result in told for line in _lines(result, traces[result.path], arguments)]
        print("\n".join([*lines, *_summary(results), verdict_line(arguments.subject, holds)]))
    if all(result.report.verdict == "not applicable" for result in results):
        raise BadInput(f"nothing was held: none of the traces applies to {arguments.subject!r}")
    return int(not holds)


def _minimal(
    result: Replayed, trace: Trace, factory: SubjectFactory, out: str, excuse: Excuse | None
) -> Replayed:  # fmt: skip
    """With the minimal trace, unless it breaks no law: then it is the trace's own expectation that is not met."""
    with aside():
        failure = failure_of(trace, factory)
        if failure is None:
            return result
        shorter = minimise(factory, failure, excuse=excuse)
        minimal = trace_of(shorter)
    path = write_trace(out, f"{Path(result.path).stem}-minimal", minimal)
    return replace(result, minimal=minimal, minimal_path=path, stopped=shorter.stopped)


def _summary(results: Sequence[Replayed]) -> list[str]:
    """Of several traces."""
    counts = Counter(result.report.verdict for result in results)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return [f"{counted(len(results), 'traces')}: {told}"] if len(results) > 1 else []


def _lines(result: Replayed, trace: Trace, arguments: argparse.Namespace) -> list[str]:
    lines = [f"{result.path}: {_verdict(result)}"]
    if result.path.startswith(CORPUS) and trace.header.note:
        lines.append(f"  {trace.header.note}")
    if result.minimal:
        lines += [f"  {result.stopped}"] if result.stopped else []
        lines += trace_lines(result.minimal_path, result.minimal, arguments.subject, arguments.limit_s)
    elif arguments.minimize and result.report.verdict == "violation":
        lines.append("  not made minimal: no law is broken, the trace expects something else than the specification")
    return lines


def _verdict(result: Replayed) -> str:
    report, pinned = result.report, result.pinned
    if report.verdict == "not applicable":
        return f"not applicable: {report.detail}"
    if report.verdict == "holds":
        told = f"holds, {counted(report.operations, 'operations')}"
        return f"VIOLATED: pinned as a known failure, and it {told}: remove its entry" if pinned else told
    place = f"at {result.path}:{report.at_line}: " if report.at_line else ""
    what = f"{place}{report.law}: {report.detail}"
    if not pinned:
        return f"VIOLATED {what}"
    return f"fails as pinned, {what}" if result.holds else f"VIOLATED: pinned, but it fails {what}"
