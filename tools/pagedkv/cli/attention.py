"""An attention kernel, held against the specification: bitwise relations, exact probes, the rounding bound, writes.

A subject is any object of `pagedkv.spec.attention_subject.AttentionSubject`, and NAME is what makes it. Only what it
declares is tested; what it declares and no case exercised is a violation, too. Every law that is broken is told with
the smallest case found, and `--law LAW --case CASE` runs that one again. Exit code 1 at either. With `--known-failures`
what is put down to a pinned case is counted and no violation, and a pinned case that holds is one. The subject runs in
this process, where a kernel that hangs or crashes takes the command with it; `process:` before its name gives it one of
its own, and then that breaks the law at hand. With PAGEDKV_DEBUG=1 in the environment whatever a subject raised has its
traceback.
"""

import argparse
import os
import sys
import traceback

from pagedkv.cli.inputs import BadInput, aside, natural, print_json, progress
from pagedkv.cli.report import verdict_line
from pagedkv.conformance.attention import run as hold
from pagedkv.conformance.attention.cases import case_of
from pagedkv.conformance.attention.held import Held, held
from pagedkv.conformance.attention.pins import load
from pagedkv.conformance.attention.runner import SHAPE
from pagedkv.conformance.attention.subjects import made
from pagedkv.spec.attention_subject import AttentionSubject

HELP = "an attention kernel against the specification"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("--subject", required=True, metavar="[process:]module:factory", help="what makes the subject")
    parser.add_argument("--limit-s", type=float, metavar="S", help="for a check in a process of its own (120)")
    parser.add_argument("--size", choices=("tiny", "full"), default="full", help="tiny: for interpreted kernels")
    parser.add_argument("--seed", type=natural, default=0, help="draws contents and placements")
    parser.add_argument(
        "--fix", action="append", default=[], metavar="FIELD=VALUE",
        help=f"for a kernel made for one shape: {', '.join(sorted(SHAPE))}",
    )  # fmt: skip
    parser.add_argument("--known-failures", metavar="F.toml", help="cases that must break a law, each the smallest")
    parser.add_argument("--first", action="store_true", help="end at the first violation")
    parser.add_argument("--law", help="with --case: only this law")
    parser.add_argument("--case", help='with --law: "Case(...)" as a report prints it')
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """The verb."""
    if (arguments.law is None) != (arguments.case is None):
        raise BadInput("--law and --case go together")
    if arguments.law is not None and arguments.known_failures is not None:
        raise BadInput("--known-failures is for a whole run, and --law for one case")
    subject = found(arguments.subject, arguments.limit_s)
    if arguments.law is not None:
        return once(arguments, subject)
    shape, path = fixed(arguments.fix), arguments.known_failures
    known = load(path, arguments.subject) if path is not None else ()
    with aside():
        report = hold(
            subject, seed=arguments.seed, size=arguments.size, shape=shape, stop_at_first=arguments.first,
            known=known, progress=progress,
        )  # fmt: skip
    if arguments.json:
        data = report.as_json()
        print_json({**data, "holds": data.pop("ok")})
    else:
        print("\n".join([*report.lines(), verdict_line(arguments.subject, report.ok)]))
    for failure in report.failures:
        trace_of(failure.error)
    return int(not report.ok)


def once(arguments: argparse.Namespace, subject: AttentionSubject | Held) -> int:
    """One law on one case."""
    with aside():
        judged = held(subject).judge(arguments.law, case_of(arguments.case), fresh=True)
    holds, detail = judged.detail is None, judged.detail
    if arguments.json:
        data = {"law": arguments.law, "case": arguments.case, "checked": judged.checked}
        print_json({**data, "holds": holds, "detail": detail})
    elif not judged.checked:
        print(f"not applicable: {arguments.law} says nothing of this case")
    else:
        print("holds" if holds else f"VIOLATED {arguments.law}: {detail}")
    trace_of(judged.error)
    return int(not holds)


def trace_of(error: BaseException | None) -> None:
    """Its traceback on stderr, if that is asked for."""
    if error is not None and os.environ.get("PAGEDKV_DEBUG") == "1":
        traceback.print_exception(error)


def found(name: str, limit_s: float | None = None) -> AttentionSubject | Held:
    """The subject of a name, found from the working directory, too."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    with aside():
        return made(name, limit_s=limit_s)


def fixed(pairs: list[str]) -> dict[str, int]:
    """Fields of every case.

    >>> fixed(["block_size=16", "head_dim=64"])
    {'block_size': 16, 'head_dim': 64}
    """
    shape = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in SHAPE or not value.isdecimal() or int(value) < 1:
            raise BadInput(f"--fix {pair!r}: expected FIELD=VALUE, a field of {', '.join(sorted(SHAPE))} and its size")
        shape[name] = int(value)
    return shape
