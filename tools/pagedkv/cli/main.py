"""The `pagedkv` command: its verbs, and the three exit codes.

0: what was asked for holds · 1: a violation was found · 2: misuse, bad input files included.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final

from pagedkv.cli import exhaust, explain, fuzz, replay, verify
from pagedkv.cli.inputs import BadInput, install_hint
from pagedkv.spec.trace import TraceError

VERBS: Final[dict[str, ModuleType]] = {
    "verify": verify,
    "replay": replay,
    "explain": explain,
    "fuzz": fuzz,
    "exhaust": exhaust,
}
"""Each module has `HELP`, `configure(parser)` and `run(arguments) -> exit code`."""

MISUSE: Final = 2
INTERRUPTED: Final = 130
"""What shells expect of a command that was stopped by hand."""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(prog="pagedkv", description=__doc__.splitlines()[0] if __doc__ else None)
    top.epilog = "Exit codes: 0 holds, 1 a violation was found, 2 misuse. Data on stdout, progress on stderr."
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, module in VERBS.items():
        verb = verbs.add_parser(name, help=module.HELP, description=module.__doc__)
        verb.formatter_class = argparse.RawDescriptionHelpFormatter
        module.configure(verb)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with `arguments` (default: those of the process); the exit code.

    >>> main(["explain", "no/such/file"])
    2
    """
    try:
        parsed = parser().parse_args(arguments)
    except SystemExit as done:  # argparse has written its message
        return done.code if isinstance(done.code, int) else MISUSE
    try:
        code: int = VERBS[parsed.verb].run(parsed)
        sys.stdout.flush()
        return code
    except (BadInput, TraceError) as error:
        print(f"pagedkv {parsed.verb}: error: {error}", file=sys.stderr)
    except ImportError as error:
        print(f"pagedkv {parsed.verb}: error: {install_hint(error)}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"pagedkv {parsed.verb}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read has read enough; let the interpreter's own flush find no closed pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return MISUSE


if __name__ == "__main__":
    sys.exit(main())
