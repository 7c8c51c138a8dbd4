"""The `pagedkv` command: its verbs, and the exit codes.

0: what was asked for holds · 1: a violation was found · 2: misuse, bad input files included, and whatever else kept the
command from an answer: the line on stderr says what. With PAGEDKV_DEBUG=1 in the environment it has a traceback, too.
130 and 141: somebody ended it, by hand or by reading no further.
"""

import argparse
import io
import os
import select
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Final

from pagedkv.cli import attention, audit, exhaust, explain, fuzz, replay, verify
from pagedkv.cli.inputs import BadInput, progress
from pagedkv.conformance.importing import install_hint
from pagedkv.spec.misuse import shown
from pagedkv.spec import Misuse
from pagedkv.spec.trace import TraceError

VERBS: Final[dict[str, ModuleType]] = {
    "verify": verify,
    "replay": replay,
    "explain": explain,
    "fuzz": fuzz,
    "exhaust": exhaust,
    "attention": attention,
    "audit": audit,
}
"""Each module has `HELP`, `configure(parser)` and `run(arguments) -> exit code`."""

MISUSE: Final = 2
INTERRUPTED: Final = 130
"""What shells expect of a command that was stopped by hand."""
UNREAD: Final = 141
"""What shells expect of one whose reader, such as `head`, has seen enough: no verdict, and nothing to complain of."""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(prog="pagedkv", description=__doc__.splitlines()[0] if __doc__ else None)
    top.epilog = (
        "Exit codes: 0 holds, 1 a violation was found, 2 misuse; 130 and 141 if it was interrupted, or read no further."
        " Data on stdout, progress on stderr."
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {installed_version()}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, module in VERBS.items():
        verb = verbs.add_parser(name, help=module.HELP, description=module.__doc__)
        verb.formatter_class = argparse.RawDescriptionHelpFormatter
        module.configure(verb)
    return top


def installed_version() -> str:
    """Of the package."""
    try:
        return version("pagedkv")
    except PackageNotFoundError:
        return "(not installed, run from its sources)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (default: those of the process); the exit code.

    >>> main(["explain", "no/such/file"])
    2
    """
    verb, told = "", io.StringIO()
    try:
        if sys.stdout is None:
            raise BadInput("stdout is closed: there is nowhere to write to")
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # a trace has any characters, a terminal only some
        try:
            with redirect_stdout(told):  # argparse would not tell that a help text could not be written
                parsed = parser().parse_args(arguments)
        except SystemExit as done:
            code = done.code if isinstance(done.code, int) else MISUSE
            print(told.getvalue(), end="")
        else:
            verb = f" {parsed.verb}"
            code = VERBS[parsed.verb].run(parsed)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        progress(f"pagedkv{verb}: interrupted")
        return INTERRUPTED
    except BaseException as error:  # an uncaught one would end with 1, and SystemExit with any code
        unread = isinstance(error, BrokenPipeError) and reader_is_gone()
        why = stdout_problem()
        if unread:
            return UNREAD
        progress(f"pagedkv{verb}: error: {why or problem(error)}")
        if os.environ.get("PAGEDKV_DEBUG") == "1":
            traceback.print_exception(error)
        return MISUSE


def console() -> int:
    """The command in a process of its own: what writes to the stdout of the process, native code, another process or an
    exit handler, is no part of the report, and goes to stderr."""
    out = sys.stdout
    if out is None:
        return main()
    buffering = 1 if out.isatty() else -1
    with open(os.dup(out.fileno()), "w", buffering, out.encoding) as report, redirect_stdout(report):
        with suppress(OSError):  # stderr is closed: nothing can be moved there
            os.dup2(2, 1)
        code = main()
    sys.stdout = sys.stderr
    return code


def problem(error: BaseException) -> str:
    """What went wrong, in one line."""
    if isinstance(error, ImportError):
        text = install_hint(error)
    else:
        text = str(error) if isinstance(error, BadInput | TraceError | Misuse) else shown(error)
    return " ".join(text.split())


def reader_is_gone() -> bool:
    """Whether stdout is a pipe that nobody reads any more: other pipes can break, too, as those of other processes."""
    with suppress(AttributeError, OSError, ValueError):  # no stdout, none of the system, or a system without `poll`
        watch = select.poll()
        watch.register(sys.stdout.fileno(), select.POLLOUT)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in watch.poll(0))
    return False


def stdout_problem() -> str:
    """Why nothing can be written to stdout, if so; then it leads nowhere, for the interpreter flushes it once more.

    That nobody reads it is no problem.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return f"stdout cannot be written to: {getattr(error, 'strerror', None) or error}"
    return ""


if __name__ == "__main__":
    sys.exit(console())
