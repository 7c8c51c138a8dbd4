"""Random programs on a subject, every operation held against the specification.

Stops at the first violation, makes its program minimal and writes it as a trace. A capability that the subject declares
and no program exercised is a violation, too, once so much was run that one should have. Exit code 1 at either.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace

from pagedkv.cli import options
from pagedkv.cli.inputs import aside, print_json, progress, subject_factory
from pagedkv.cli.report import check_writable, columns, trace_lines, write_trace
from pagedkv.conformance.failures.known import Excuse
from pagedkv.conformance.programs.counting import PLACES
from pagedkv.conformance.programs.plans import declared
from pagedkv.conformance.search.exhaustive import slices_for
from pagedkv.conformance.search.fuzz import ENOUGH, FuzzReport
from pagedkv.conformance.search.fuzz import run as fuzz
from pagedkv.conformance.search.measures import Reached, reached
from pagedkv.spec.subject import SubjectFactory

HELP = "random programs on a subject"
EVERY_PROGRAMS = 100
"""Programs between two lines of progress."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    options.add_subject(parser)
    options.add_budget(parser)
    options.add_failures(parser, minimize=True)
    parser.add_argument(
        "--states", action="store_true",
        help="afterwards as many programs in the pool of each slice: how many of its states do they reach?",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """The verb."""
    programs, steps = options.budget(arguments)

    def tell(done: int, operations: int) -> None:
        if done % EVERY_PROGRAMS == 0:
            progress(f"fuzz: {done} of {programs} programs, {operations:,} operations")

    factory = subject_factory(arguments.subject, limit_s=arguments.limit_s)
    known = options.known_failures(arguments)
    check_writable(arguments.out)
    with aside():
        changed = options.changes(known, factory)
    report = run_programs(
        factory, arguments.seed, programs, steps, arguments.out, tell,
        minimal=arguments.minimize, excuse=Excuse(known, factory),
    )  # fmt: skip
    states = _states(factory, arguments.seed, programs, steps) if arguments.states and not report.violation else []
    holds = report.holds and not changed
    if arguments.json:
        document = {"subject": arguments.subject, **report.as_json(), "known_failures_changed": changed}
        print_json({**document, "states": [vars(each) for each in states], "holds": holds})
    else:
        known_lines = options.known_line(known, changed, sum(report.excused.values()), "programs")
        print(
            "\n".join([*report_lines(report, arguments.subject, arguments.limit_s), *known_lines, *state_lines(states)])
        )
    return int(not holds)


def run_programs(
    factory: SubjectFactory, seed: int, programs: int, steps: int, out: str, tell: Callable[[int, int], None],
    *, minimal: bool = True, excuse: Excuse | None = None,
) -> FuzzReport:  # fmt: skip
    """Run random programs; a violation is written to `out`, if that can be written to."""
    with aside():
        report = fuzz(factory, seed=seed, programs=programs, steps=steps, minimal=minimal, excuse=excuse, progress=tell)
    if found := report.violation:
        path = write_trace(out, f"fuzz-{seed}-{found.program}", found.trace)
        report = replace(report, violation=replace(found, path=path))
    return report


def _states(factory: SubjectFactory, seed: int, programs: int, steps: int) -> list[Reached]:
    found = []
    with aside():
        parts = list(slices_for(declared(factory)))
    for part in parts:
        progress(f"states of {part.name} ...")
        with aside():
            found.append(reached(factory, part, seed=seed, programs=programs, steps=steps))
    return found


def report_lines(report: FuzzReport, subject: str = "", limit_s: float | None = None) -> list[str]:
    """What ran, by outcome, what it exercised, and what was violated."""
    speed = f"{report.steps_per_second:,.0f} a second"
    lines = [f"{report.programs:,} programs of {report.steps:,} operations, {speed}, seed {report.seed}"]
    lines += _outcomes(report.operations)
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in report.refusals.items())
    lines.append(f"refusals by reason: {reasons or 'none'}")
    lines.append(
        f"copy-on-writes {report.copy_on_writes:,}, preemptions {report.preemptions:,} (by swap {report.swaps:,}),"
        f" evictions {report.evictions:,}, prefix hits {report.hits:,}, most owners of a block {report.share_depth_max}"
    )
    lines += _depths(report)
    if report.undeclared:
        lines.append(f"not tested, because the subject does not declare it: {', '.join(report.undeclared)}")
    idle = ", ".join(report.not_exercised)
    if found := report.violation:
        lines.append(f"VIOLATED in program {found.program}: {found.law}: {found.detail}")
        lines += trace_lines(found.path, found.trace, subject, limit_s)
    elif idle and report.enough:
        lines.append(f"VIOLATED: declared, but exercised by no program: {idle}")
    elif idle:
        lines.append(f"not exercised yet, in fewer than {ENOUGH:,} operations: {idle}")
    return lines


def _outcomes(operations: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Operations by kind and outcome, in two halves beside each other."""
    kinds = sorted(operations, key=lambda kind: -sum(operations[kind].values()))
    half = -(-len(kinds) // 2)
    head = ("operation", "ok", "refused", "misuse")
    rows: list[tuple[object, ...]] = [(*head, "   operation", *head[1:])]
    for left, right in zip(kinds[:half], [*kinds[half:], ""][:half], strict=True):
        counts = [operations.get(kind, {}).get(outcome, 0) for kind in (left, right) for outcome in head[1:]]
        rows.append((left, *counts[:3], f"   {right}", *counts[3:]))
    return columns(rows)


def _depths(report: FuzzReport) -> list[str]:
    """How far the programs got."""

    def histogram(counts: Mapping[int, int]) -> str:
        return ", ".join(f"{depth}: {programs:,}" for depth, programs in counts.items())

    lengths = []
    for kind, counts in report.lengths.items():
        total = max(1, sum(counts.values()))
        lengths.append(f"{kind} {'/'.join(f'{100 * counts[place] / total:.0f}' for place in PLACES)}")
    return [
        f"lengths modulo the block size, in % {'/'.join(PLACES)}: {', '.join(lengths)}",
        f"programs by most owners of a block: {histogram(report.share_depths)}",
        f"programs by depth of their forks: {histogram(report.fork_depths)}; out of blocks: {report.exhausted:,}",
    ]


def state_lines(states: list[Reached]) -> list[str]:
    """The states of each slice that random programs reached."""
    rows: list[tuple[object, ...]] = [("slice", "states", "reached", "in %", "operations")]
    rows += [(s.slice, s.states, s.reached, round(100 * s.reached / s.states), s.operations) for s in states]
    return columns(rows) if states else []
