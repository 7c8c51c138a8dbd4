"""Random programs on a subject, every operation held against the specification.

Stops at the first violation, makes its program short and writes it as a trace. A capability that the subject declares
and no program exercised is a violation, too: more programs or steps then help. Exit code 1 at either.
"""

import argparse

from pagedkv.cli.inputs import natural, positive, print_json, progress, subject_factory
from pagedkv.cli.report import columns, writing
from pagedkv.conformance.fuzz import FuzzReport
from pagedkv.conformance.fuzz import run as fuzz

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
    with writing(arguments.out):
        report = fuzz(
            factory, seed=arguments.seed, programs=arguments.programs, steps=arguments.steps,
            out_dir=arguments.out, progress=tell,
        )  # fmt: skip
    if arguments.json:
        print_json({"subject": arguments.subject, **report.as_json()})
    else:
        print("\n".join(report_lines(report)))
    return int(not report.holds)


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
        lines.append(f"  trace: {report.violation.path} ({len(report.violation.trace.lines)} operations)")
    elif report.not_exercised:
        lines.append(f"VIOLATED: declared, but exercised by no program: {', '.join(report.not_exercised)}")
    return lines
