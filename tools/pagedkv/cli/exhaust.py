"""Visit every reachable state of small pools, up to symmetry, and make every transition on the subject.

Without --slice all slices are visited that the subject's capabilities allow. Exit code 1 at a violation; its program
is made minimal and written as a trace.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from pagedkv.cli import options
from pagedkv.cli.inputs import BadInput, aside, natural, positive, print_json, progress
from pagedkv.cli.report import check_writable, columns, trace_line, trace_lines, verdict_line, write_trace
from pagedkv.conformance.failures.known import Excuse
from pagedkv.conformance.failures.shrinking import Failure, minimise, trace_of
from pagedkv.conformance.programs.plans import declared
from pagedkv.conformance.search.exhaustive import SliceReport, for_subject, lacks, slices_for, unvisited
from pagedkv.conformance.search.exhaustive import run as visit
from pagedkv.conformance.search.slices import SLICES, Slice
from pagedkv.conformance.suite.text import file_name
from pagedkv.spec.subject import Capabilities
from pagedkv.spec.trace import load

HELP = "visit every state of small pools"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    options.add_subject(parser)
    parser.add_argument("--slice", action="append", choices=sorted(SLICES), help="may be given more than once")
    parser.add_argument("--max-states", type=positive, help="stop a slice early: a sample, not a proof")
    parser.add_argument("--seed", type=natural, default=0, help="of the relabellings")
    options.add_failures(parser, minimize=True)


def run(arguments: argparse.Namespace) -> int:
    """The verb."""
    factory, subject = options.chosen_subject(arguments), arguments.subject
    known = options.known_failures(arguments)
    check_writable(arguments.out)
    with aside():
        capabilities = declared(factory)
        changed = options.changes(known, factory)
        excuse = Excuse(known, factory)
    parts = _asked(arguments, capabilities) if arguments.slice else slices_for(capabilities)
    shorter = partial(minimise, factory, excuse=excuse) if arguments.minimize else None
    results = []
    for part in parts:
        progress(f"exhaust {part.name} ...")
        with aside():
            report = visit(factory, part, seed=arguments.seed, max_states=arguments.max_states, excuse=excuse)
            results.append(slice_data(report, arguments.out, subject, shorter))
        if report.violation:
            break
    excused = sum(count for result in results for count in result["excused"].values())
    holds = all(result["holds"] for result in results) and not changed
    idle = [] if arguments.slice else unvisited(capabilities, parts)
    if arguments.json:
        document = {"subject": subject, "holds": holds, "known_failures_changed": changed}
        print_json({**document, "slices": results, "unvisited": idle})
    else:
        lines = slice_lines(results, subject, arguments.limit_s)
        lines += options.known_line(known, changed, excused, "transitions")
        lines += ["a sample, not a proof: --max-states"] if arguments.max_states and holds else []
        lines += [f"declared, and none of these slices is about it: {', '.join(idle)}"] if idle else []
        print("\n".join([*lines, verdict_line(subject, holds)]))
    return int(not holds)


def _asked(arguments: argparse.Namespace, capabilities: Capabilities) -> list[Slice]:
    """The slices that were asked for. Raises `BadInput` for one that the subject cannot run."""
    for name in arguments.slice:
        if missing := lacks(capabilities, SLICES[name]):
            told = f"it requires {', '.join(missing)}, which {arguments.subject} does not declare"
            raise BadInput(f"--slice {name} does not apply: {told}")
    return [for_subject(SLICES[name], capabilities) for name in arguments.slice]


def slice_data(
    report: SliceReport, out: str, subject: str = "", shorter: Callable[[Failure], Failure] | None = None
) -> dict[str, Any]:  # fmt: skip
    """One slice as plain values; a violation is written to `out`, made minimal by `shorter` if that is given."""
    data: dict[str, Any] = {
        "slice": report.name,
        "holds": report.violation is None,
        "states": report.states,
        "transitions": report.transitions,
        "refused": report.refused,
        "excused": report.excused,
        "complete": report.complete,
        "elapsed_s": round(report.seconds, 3),
    }
    if failure := report.failure:
        failure = shorter(failure) if shorter else failure
        data |= {
            "law": failure.violation.law,
            "detail": failure.violation.detail,
            "stopped": failure.stopped,
            "trace": write_trace(out, file_name(subject, f"exhaust-{report.name}"), trace_of(failure)),
        }
    return data


def slice_lines(results: list[dict[str, Any]], subject: str = "", limit_s: float | None = None) -> list[str]:
    """The table of slices, and what was violated."""
    rows: list[tuple[object, ...]] = [("slice", "states", "transitions", "refused", "seconds")]
    rows += [(r["slice"], r["states"], r["transitions"], r["refused"], round(r["elapsed_s"], 1)) for r in results]
    lines = columns(rows)
    for result in results:
        if not result["holds"]:
            lines.append(f"VIOLATED in {result['slice']}: {result['law']}: {result['detail']}")
            lines += [f"  {result['stopped']}"] if result["stopped"] else []
            path = result["trace"]
            lines += trace_lines(path, load(path), subject, limit_s, result["law"]) if path else [trace_line(None)]
    return lines
