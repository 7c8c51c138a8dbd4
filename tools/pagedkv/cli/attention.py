"""An attention kernel, held against the specification: bitwise relations, exact probes, the rounding bound, writes.

A subject is any object of `pagedkv.spec.attention_subject.AttentionSubject`, and NAME is what makes it. Only what it
declares is tested; what it declares and no case exercised is a violation, too. Every law that is broken is told with
the smallest case found, and `--law LAW --case CASE` runs that one again. Exit code 1 at either. The subject runs in
this process: a kernel that hangs or crashes takes the command with it. With PAGEDKV_DEBUG=1 in the environment whatever
a subject raised has its traceback.
"""

import argparse
import ast
import os
import traceback
from typing import Any

from pagedkv.cli.inputs import BadInput, aside, named, natural, print_json, progress
from pagedkv.cli.report import verdict_line
from pagedkv.conformance.attention import Case, run as hold
from pagedkv.conformance.attention.bench import Bench
from pagedkv.conformance.attention.judging import judge
from pagedkv.conformance.attention.runner import SHAPE
from pagedkv.conformance.subjects import install_hint
from pagedkv.spec.attention_subject import AttentionCapabilities, AttentionSubject

HELP = "an attention kernel against the specification"


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments."""
    parser.add_argument("--subject", required=True, metavar="module:factory", help="what makes the subject")
    parser.add_argument("--size", choices=("tiny", "full"), default="full", help="tiny: for interpreted kernels")
    parser.add_argument("--seed", type=natural, default=0, help="draws contents and placements")
    parser.add_argument(
        "--fix", action="append", default=[], metavar="FIELD=VALUE",
        help=f"for a kernel made for one shape: {', '.join(sorted(SHAPE))}",
    )  # fmt: skip
    parser.add_argument("--first", action="store_true", help="end at the first violation")
    parser.add_argument("--law", help="with --case: only this law")
    parser.add_argument("--case", help='with --law: "Case(...)" as a report prints it')
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """The verb."""
    if (arguments.law is None) != (arguments.case is None):
        raise BadInput("--law and --case go together")
    subject = made(arguments.subject)
    if arguments.law is not None:
        return once(arguments, subject)
    shape = fixed(arguments.fix)
    with aside():
        report = hold(
            subject, seed=arguments.seed, size=arguments.size, shape=shape, stop_at_first=arguments.first,
            progress=progress,
        )  # fmt: skip
    if arguments.json:
        data = report.as_json()
        print_json({**data, "holds": data.pop("ok")})
    else:
        print("\n".join([*report.lines(), verdict_line(arguments.subject, report.ok)]))
    for failure in report.failures:
        trace_of(failure.error)
    return int(not report.ok)


def once(arguments: argparse.Namespace, subject: AttentionSubject) -> int:
    """One law on one case."""
    with aside():
        judged = judge(Bench(subject), arguments.law, case_of(arguments.case))
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


def made(name: str) -> AttentionSubject:
    """The subject that `module:factory` makes. Raises `BadInput`."""
    factory = named(name, "--subject")
    try:
        with aside():
            subject: Any = factory()
    except ImportError as error:
        raise BadInput(f"subject {name!r} cannot be made: {install_hint(error)}") from error
    except (Exception, SystemExit) as error:
        raise BadInput(f"subject {name!r} cannot be made: {error!r}") from error
    wanted = ["name", "capabilities", "rounding", "attend"]
    if getattr(getattr(subject, "capabilities", None), "writes", False):
        wanted += ["write_kv", "copy_blocks"]
    missing = [each for each in wanted if not hasattr(subject, each)]
    if missing:
        raise BadInput(f"subject {name!r} makes a {type(subject).__name__}, which has no {', '.join(missing)}")
    if not isinstance(subject.capabilities, AttentionCapabilities):
        kind = type(subject.capabilities).__name__
        raise BadInput(f"subject {name!r} has capabilities of type {kind}: expected AttentionCapabilities")
    found: AttentionSubject = subject
    return found


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


def case_of(text: str) -> Case:
    """The case that a report prints: literals only, nothing else is evaluated.

    >>> case_of("Case(lengths=(9,), window=3)").window
    3
    """
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "Case" or call.args:
            raise ValueError("no Case(...)")
        return Case(**{str(word.arg): ast.literal_eval(word.value) for word in call.keywords})
    except (SyntaxError, ValueError, TypeError) as error:
        raise BadInput(f"--case {text!r}: expected Case(name=value, ...) as a report prints it ({error})") from error
