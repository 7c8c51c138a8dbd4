"""Options that verbs share, so that they mean the same everywhere; the pytest plugin has them, too."""

import argparse
from pathlib import Path
from typing import Final

from pagedkv.cli.inputs import natural, positive, progress, subject_factory
from pagedkv.conformance.counted import counted
from pagedkv.conformance.failures.entries import of_subject
from pagedkv.conformance.failures.known import KnownFailure, changed, load
from pagedkv.conformance.suite.profiles import PROFILES
from pagedkv.spec.subject import SubjectFactory

DEFAULT_PROFILE: Final = "pr"
DEFAULT_SUBJECT: Final = "optimized"


def add_subject(parser: argparse.ArgumentParser) -> None:
    """Which subject, and how long it may take."""
    parser.add_argument(
        "--subject", metavar="NAME",
        help="reference, optimized, device, module:factory, process:NAME or command:PROGRAM (default: optimized)",
    )  # fmt: skip
    parser.add_argument(
        "--limit-s", type=float, metavar="SECONDS", help="that an operation may take, of a subject in its own process"
    )
    parser.add_argument("--known-failures", metavar="F.toml", help="traces that must fail, each at its line")
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def chosen_subject(arguments: argparse.Namespace) -> SubjectFactory:
    """The factory of `--subject`. Without one it is ours, which is said: somebody may believe that it is theirs."""
    if arguments.subject is None:
        arguments.subject = DEFAULT_SUBJECT
        progress(f"no --subject: holding pagedkv's own {DEFAULT_SUBJECT} manager")
    return subject_factory(arguments.subject, limit_s=arguments.limit_s)


def add_budget(parser: argparse.ArgumentParser) -> None:
    """How much a random run does."""
    budgets = "; ".join(
        f"{name}: {counted(p.programs, 'programs')} of {counted(p.steps, 'operations')}" for name, p in PROFILES.items()
    )
    parser.add_argument("--profile", choices=list(PROFILES), default=DEFAULT_PROFILE, help=f"{budgets} (default: pr)")
    parser.add_argument("--programs", type=positive, help="how many, instead of the profile's")
    parser.add_argument("--steps", type=positive, help="operations in each, instead of the profile's")
    parser.add_argument("--seed", type=natural, default=0, help="draws the programs (default: 0)")


def add_failures(parser: argparse.ArgumentParser, *, minimize: bool) -> None:
    """What becomes of a violation; `minimize` is the default."""
    parser.add_argument("--out", default="failures", metavar="DIR", help="for the trace of a violation")
    parser.add_argument(
        "--minimize", action=argparse.BooleanOptionalAction, default=minimize,
        help=f"leave out of a failing program what is not needed (default: {'yes' if minimize else 'no'})",
    )  # fmt: skip


def budget(arguments: argparse.Namespace) -> tuple[int, int]:
    """Programs, and operations in each."""
    profile = PROFILES[arguments.profile]
    return arguments.programs or profile.programs, arguments.steps or profile.steps


def known_failures(arguments: argparse.Namespace) -> tuple[KnownFailure, ...]:
    """Those of the file that are about the subject."""
    if arguments.known_failures is None:
        return ()
    return of_subject(load(Path(arguments.known_failures)), arguments.subject)


def changes(known: tuple[KnownFailure, ...], factory: SubjectFactory) -> list[str]:
    """What is to be told of known failures that do not fail as they are pinned: each is a violation."""
    return [why for each in known if (why := changed(each, factory))]


def known_line(known: tuple[KnownFailure, ...], changed_ones: list[str], excused: int, what: str) -> list[str]:
    """The lines of a report about known failures."""
    if not known:
        return []
    told = [f"VIOLATED: {why}" for why in changed_ones]
    kept = len(known) - len(told)
    return [f"known failures: {kept} of {len(known)} fail as pinned; {excused:,} {what} put down to them", *told]
