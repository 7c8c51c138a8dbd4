"""Replay traces on a subject, every operation held against the specification and against what the trace expects.

All traces are read before the first runs. A trace that needs what the subject does not declare is "not applicable",
which is no violation. Exit code 1 at a violation.
"""

import argparse
from typing import Any

from pagedkv.cli.inputs import aside, print_json, progress, read_trace, subject_factory
from pagedkv.conformance.replay import ReplayReport, replay
from pagedkv.spec import Misuse
from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import Trace

HELP = "replay traces on a subject"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("trace", nargs="+", metavar="TRACE", help="trace files")
    parser.add_argument("--subject", default="optimized", metavar="NAME|module:factory", help="default: optimized")
    parser.add_argument(
        "--touched-only", action="store_true",
        help="compare after an operation what it touched, and everything at the end: for long traces",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the reports as JSON")


def run(arguments: argparse.Namespace) -> int:
    """The verb."""
    factory = subject_factory(arguments.subject)
    traces = {path: read_trace(path) for path in arguments.trace}
    reports: dict[str, ReplayReport] = {}
    for path, trace in traces.items():
        progress(f"replay {path} ...")
        reports[path] = replayed(trace, factory, arguments.touched_only)
    holds = all(report.verdict != "violation" for report in reports.values())
    if arguments.json:
        results: list[dict[str, Any]] = [{"trace": path, **report.as_json()} for path, report in reports.items()]
        print_json({"subject": arguments.subject, "holds": holds, "traces": results})
    else:
        for path, report in reports.items():
            print(f"{path}: {_verdict(path, report)}")
    return int(not holds)


def replayed(trace: Trace, factory: SubjectFactory, touched_only: bool) -> ReplayReport:
    """Replay one trace. To a subject that cannot be made with its pool, it does not apply."""
    try:
        with aside():
            return replay(trace, factory, touched_only=touched_only)
    except Misuse as misuse:
        return ReplayReport("not applicable", detail=f"the subject cannot be made: {misuse}")


def _verdict(path: str, report: ReplayReport) -> str:
    if report.verdict == "not applicable":
        return f"not applicable: {report.detail}"
    if report.verdict == "holds":
        return f"holds, {report.operations} operations"
    place = f"{path}:{report.at_line}" if report.at_line else "after the last line"
    return f"VIOLATED at {place}: {report.law}: {report.detail}"
