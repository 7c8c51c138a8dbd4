"""Random programs on a subject, every operation held against the specification.

Stops at the first violation, makes its program short and writes it as a trace. A capability that the subject declares
and no program exercised is a violation, too: more programs or steps then help. Exit code 1 at either.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace

from pagedkv.cli.inputs import aside, natural, positive, print_json, progress, subject_factory
from pagedkv.cli.report import check_writable, columns, trace_line, write_trace
from pagedkv.conformance.fuzz import FuzzReport
from pagedkv.conformance.fuzz import run as fuzz
from pagedkv.spec.subject import SubjectFactory

HELP = "random programs on a subject"
EVERY_PROGRAMS = 100
"""Programs between two lines of progress."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("--subject", default="optimized", metavar="NAME|module:factory", help="default: optimized")
    parser.add_argument("--programs", type=positive, default=500, help="how many (default: 500)")
    parser.add_argument("--steps", type=positive, default=60, help="operations in each (default: 60)")
    parser.add_argument("--seed", type=natural, default=0, help="draws the programs")
    parser.add_argument("--out", default="failures", metavar="DIR", help="for the trace of a violation")
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """The verb."""

    def tell(programs: int, operations: int) -> None:
        if programs % EVERY_PROGRAMS == 0:
            progress(f"fuzz: {programs} of {arguments.programs} programs, {operations:,} operations")

    factory = subject_factory(arguments.subject)
    check_writable(arguments.out)
    report = run_programs(factory, arguments.seed, arguments.programs, arguments.steps, arguments.out, tell)
    if arguments.json:
        print_json({"subject": arguments.subject, **report.as_json()})
    else:
        print("\n".join(report_lines(report)))
    return int(not report.holds)


def run_programs(
    factory: SubjectFactory, seed: int, programs: int, steps: int, out: str, tell: Callable[[int, int], None]
) -> FuzzReport:
    """Run random programs; a violation is written to `out`, if that can be written to."""
    with aside():
        report = fuzz(factory, seed=seed, programs=programs, steps=steps, progress=tell)
    if found := report.violation:
        path = write_trace(out, f"fuzz-{seed}-{found.program}", found.trace)
        report = replace(report, violation=replace(found, path=path))
    return report


def report_lines(report: FuzzReport) -> list[str]:
    """What ran, by outcome, what it exercised, and what was violated."""
    speed = f"{report.steps_per_second:,.0f} a second"
    lines = [f"{report.programs:,} programs of {report.steps:,} operations, {speed}, seed {report.seed}"]
    kinds = sorted(report.operations, key=lambda kind: -sum(report.operations[kind].values()))
    half = -(-len(kinds) // 2)
    head = ("operation", "ok", "refused", "misuse")
    rows: list[tuple[object, ...]] = [(*head, "   operation", *head[1:])]
    for left, right in zip(kinds[:half], [*kinds[half:], ""][:half], strict=True):
        counts = [report.operations.get(kind, {}).get(outcome, 0) for kind in (left, right) for outcome in head[1:]]
        rows.append((left, *counts[:3], f"   {right}", *counts[3:]))
    lines += columns(rows)
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in report.refusals.items())
    lines.append(f"refusals by reason: {reasons or 'none'}")
    lines.append(
        f"copy-on-writes {report.copy_on_writes:,}, preemptions {report.preemptions:,} (by swap {report.swaps:,}),"
        f" evictions {report.evictions:,}, prefix hits {report.hits:,}, most owners of a block {report.share_depth_max}"
    )
    if report.undeclared:
        lines.append(f"not tested, because the subject does not declare it: {', '.join(report.undeclared)}")
    if report.violation:
        lines.append(
            f"VIOLATED in program {report.violation.program}: {report.violation.law}: {report.violation.detail}"
        )
        lines.append(f"{trace_line(report.violation.path)} ({len(report.violation.trace.lines)} operations)")
    elif report.not_exercised:
        lines.append(f"VIOLATED: declared, but exercised by no program: {', '.join(report.not_exercised)}")
    return lines
