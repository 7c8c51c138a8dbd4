"""Visit every reachable state of small pools, up to symmetry, and make every transition on the subject.

Without --slice all slices are visited that the subject's capabilities allow. Exit code 1 at a violation; its program
is written as a trace.
"""

import argparse
from typing import Any

from pagedkv.cli.inputs import aside, natural, positive, print_json, progress, subject_factory
from pagedkv.cli.report import check_writable, columns, trace_line, write_failure
from pagedkv.conformance.exhaustive import SliceReport
from pagedkv.conformance.exhaustive import run as visit
from pagedkv.conformance.exhaustive import slices_for
from pagedkv.conformance.shrinking import Failure
from pagedkv.conformance.slices import SLICES
from pagedkv.conformance.plans import small

HELP = "visit every state of small pools"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("--subject", default="optimized", metavar="NAME|module:factory", help="default: optimized")
    parser.add_argument("--slice", action="append", choices=sorted(SLICES), help="may be given more than once")
    parser.add_argument("--max-states", type=positive, help="stop a slice early: a sample, not a proof")
    parser.add_argument("--seed", type=natural, default=0, help="of the relabellings")
    parser.add_argument("--out", default="failures", metavar="DIR", help="for the trace of a violation")
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """The verb."""
    factory = subject_factory(arguments.subject)
    check_writable(arguments.out)
    with aside():
        capabilities = small(factory, 2).capabilities
    names = arguments.slice or [part.name for part in slices_for(capabilities)]
    results = []
    for name in names:
        progress(f"exhaust {name} ...")
        with aside():
            report = visit(factory, name, seed=arguments.seed, max_states=arguments.max_states, progress=None)
        results.append(slice_data(report, arguments.out))
        if report.violation:
            break
    holds = all(result["holds"] for result in results)
    if arguments.json:
        print_json({"subject": arguments.subject, "holds": holds, "slices": results})
    else:
        print("\n".join(slice_lines(results)))
    return int(not holds)


def slice_data(report: SliceReport, out: str) -> dict[str, Any]:
    """One slice as plain values; a violation is written to `out`."""
    data: dict[str, Any] = {
        "slice": report.name,
        "holds": report.violation is None,
        "states": report.states,
        "transitions": report.transitions,
        "refused": report.refused,
        "elapsed_s": round(report.seconds, 3),
    }
    if report.violation:
        failure = Failure(report.path, report.violation)
        data |= {
            "law": report.violation.law,
            "detail": report.violation.detail,
            "trace": write_failure(out, f"exhaust-{report.name}", SLICES[report.name].config, failure),
        }
    return data


def slice_lines(results: list[dict[str, Any]]) -> list[str]:
    """The table of slices, and what was violated."""
    rows: list[tuple[object, ...]] = [("slice", "states", "transitions", "refused", "seconds")]
    rows += [(r["slice"], r["states"], r["transitions"], r["refused"], round(r["elapsed_s"], 1)) for r in results]
    lines = columns(rows)
    for result in results:
        if not result["holds"]:
            lines.append(f"VIOLATED in {result['slice']}: {result['law']}: {result['detail']}")
            lines.append(trace_line(result["trace"]))
    return lines
