"""Random programs on a subject, every operation held against the specification.

Stops at the first violation, makes its program minimal and writes it as a trace. A capability that the subject declares
and no program exercised is a violation, too, once so much was run that one should have. Exit code 1 at either.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pagedkv.cli import options
from pagedkv.cli.inputs import aside, print_json, progress
from pagedkv.cli.report import check_writable, columns, trace_lines, verdict_line, write_trace
from pagedkv.conformance.counted import counted
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.known import Excuse
from pagedkv.conformance.failures.shrinking import BUDGET_S, Failure
from pagedkv.conformance.programs.counting import PLACES
from pagedkv.conformance.programs.plans import declared
from pagedkv.conformance.search.exhaustive import slices_for
from pagedkv.conformance.search.fuzz import ENOUGH, FuzzReport
from pagedkv.conformance.search.fuzz import run as fuzz
from pagedkv.conformance.search.measures import Reached, reached
from pagedkv.conformance.suite.text import NOT_AGAIN, file_name
from pagedkv.spec import Misuse
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
            progress(f"fuzz: {done} of {counted(programs, 'programs')}, {counted(operations, 'operations')}")

    factory = options.chosen_subject(arguments)
    known = options.known_failures(arguments)
    check_writable(arguments.out)
    with aside():
        changed = options.changes(known, factory)
        excuse = Excuse(known, factory)
    fuzzed = run_programs(
        factory, arguments.seed, programs, steps, arguments.out, tell, subject=arguments.subject,
        minimal=arguments.minimize, excuse=excuse,
    )  # fmt: skip
    report = fuzzed.report
    measured = arguments.states and not report.violation
    states, broken = _states(factory, arguments.seed, programs, steps) if measured else ([], "")
    holds = report.holds and not changed and not broken
    if arguments.json:
        document = {"subject": arguments.subject, **fuzzed.as_json(), "known_failures_changed": changed}
        print_json({**document, "states": [vars(each) for each in states], "holds": holds})
    else:
        known_lines = options.known_line(known, changed, sum(report.excused.values()), "programs")
        lines = fuzzed.lines(arguments.subject, arguments.limit_s)
        lines += [*known_lines, *state_lines(states), *([broken] if broken else [])]
        print("\n".join([*lines, verdict_line(arguments.subject, holds)]))
    return int(not holds)


class Fuzzed(NamedTuple):
    """A report, and where the trace of its violation is; None: there is none, or it could not be written."""

    report: FuzzReport
    path: str | None

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        data = self.report.as_json()
        if self.report.violation:
            data["violation"] |= {"path": self.path, "stopped": self.report.violation.failure.stopped}
        return data

    def lines(self, subject: str = "", limit_s: float | None = None) -> list[str]:
        """What ran, and what was violated."""
        lines, found = report_lines(self.report), self.report.violation
        if found:
            lines.append(f"VIOLATED in program {found.program + 1}: {found.law}: {found.detail}")
            lines += [f"  {found.failure.stopped}"] if found.failure.stopped else []
            lines += [] if found.repeats else [f"  {NOT_AGAIN}"]
            lines += trace_lines(self.path, found.trace, subject, limit_s, found.law if found.repeats else "")
        return lines


def run_programs(
    factory: SubjectFactory, seed: int, programs: int, steps: int, out: str, tell: Callable[[int, int], None],
    *, subject: str = "", minimal: bool = True, excuse: Excuse | None = None,
) -> Fuzzed:  # fmt: skip
    """Run random programs; a violation is written to `out`, if that can be written to."""
    with aside():
        report = fuzz(
            factory, seed=seed, programs=programs, steps=steps, minimal=minimal, excuse=excuse, progress=tell, met=_met
        )
    found = report.violation
    if found is None:
        return Fuzzed(report, None)
    return Fuzzed(report, write_trace(out, file_name(subject, f"fuzz-{seed}-{found.program + 1}"), found.trace))


def _met(failure: Failure) -> None:
    long = counted(len(failure.program), "operations")
    progress(f"violated: {failure.violation.law}; making {long} short, {BUDGET_S:g} s at most")


def _states(factory: SubjectFactory, seed: int, programs: int, steps: int) -> tuple[list[Reached], str]:
    """What was reached of each slice, and the violation that ended it, if any."""
    found = list[Reached]()
    with aside():
        parts = slices_for(declared(factory))
    for part in parts:
        progress(f"states of {part.name} ...")
        try:
            with aside():
                found.append(reached(factory, part, seed=seed, programs=programs, steps=steps))
        except Violation as violation:
            return found, f"VIOLATED in the pool of {part.name}: {violation.law}: {violation.detail}"
        except Misuse:  # it does not have this pool
            continue
    return found, ""


def report_lines(report: FuzzReport) -> list[str]:
    """What ran, by outcome, and what it exercised."""
    speed = f"{report.steps_per_second:,.0f} a second"
    ran = f"{counted(report.programs, 'programs')}, {counted(report.steps, 'operations')}"
    lines = [f"{ran}, {speed}, seed {report.seed}"]
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
    if report.not_made:
        pools = ", ".join(f"{argument} {count:,}" for argument, count in report.not_made.items())
        lines.append(f"pools that the subject does not have, by what it refused: {pools}")
    if idle and report.enough and not report.violation:
        lines.append(f"VIOLATED: declared, but exercised by no program: {idle}")
    elif idle and not report.violation:
        lines.append(f"not exercised yet, in fewer than {ENOUGH:,} operations: {idle}")
    return lines


def _outcomes(operations: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Operations by kind and outcome, in two halves beside each other."""
    kinds = sorted(operations, key=lambda kind: -sum(operations[kind].values()))
    half = -(-len(kinds) // 2)
    head = ("operation", "ok", "refused", "misuse")
    rows: list[tuple[object, ...]] = [(*head, "   operation", *head[1:])]
    for left, right in zip(kinds[:half], [*kinds[half:], ""][:half], strict=True):
        counts = [operations[kind].get(each, 0) if kind else "" for kind in (left, right) for each in head[1:]]
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
