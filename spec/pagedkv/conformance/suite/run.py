"""A subject, and what it is to be held against: the options of a test run, looked at before anything runs."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from pagedkv.conformance.differential.violation import Violation, raised
from pagedkv.conformance.failures.entries import of_subject
from pagedkv.conformance.failures.known import Excuse, KnownFailure, load
from pagedkv.conformance.importing import install_hint, no_subject
from pagedkv.conformance.programs.counting import exercised
from pagedkv.conformance.programs.plans import probe
from pagedkv.conformance.subjects import subject as subject_named
from pagedkv.conformance.suite.profiles import Profile, profile, seed_of_commit
from pagedkv.spec import Misuse
from pagedkv.spec.subject import Capabilities, SubjectFactory
from pagedkv.spec.trace import load as load_trace

FACTORY: Final = "a factory that makes a subject from a Config"
PROGRAM: Final = "a program that answers the header of a trace, as docs/protocol.md says"


@dataclass(frozen=True)
class Options:
    """What can be chosen; the names are those of the plugin's options."""

    known_failures: str | Path | None = None
    """A TOML file, as in `known`."""
    profile: str = "pr"
    programs: int | None = None
    """In place of the profile's, for `fuzz` and at most for the machine."""
    steps: int | None = None
    """In place of the profile's."""
    seed: int | None = None
    """None: from the commit, or else at random."""
    traces: str | Path | None = None
    """A trace file or a directory of them, which must hold."""
    out: str | Path = "failures"
    """Where failing programs are written."""
    limit_s: float | None = None
    """Seconds for an operation of a subject in a process of its own."""


@dataclass(frozen=True)
class Run:
    """A subject, and what it is to be held against."""

    name: str
    """As reports have it."""
    subject: str
    """As in `--subject`, so that a command can repeat what was found; empty if no name leads to it."""
    factory: SubjectFactory
    capabilities: Capabilities
    budget: Profile
    seed: int
    known: tuple[KnownFailure, ...]
    traces: tuple[Path, ...]
    out: Path
    limit_s: float | None = None

    @cached_property
    def excuse(self) -> Excuse:
        """Of what is known: that costs runs of every pinned trace, so it is worked out once."""
        return Excuse(self.known, self.factory)

    @property
    def undeclared(self) -> tuple[str, ...]:
        """Capabilities that are not declared, for which nothing is checked."""
        return exercised(self.capabilities, {})[1]


def run_of(subject: SubjectFactory | str, options: Options | None = None, *, name: str | None = None) -> Run:
    """A run of a subject, or of the one that has this name. What cannot be run is `Misuse`, and says what could.

    >>> run_of("reference", Options(steps=0))
    Traceback (most recent call last):
    ...
    pagedkv.spec.misuse.Misuse: steps=0 is not allowed: expected an integer >= 1
    """
    chosen = options or Options()
    for argument, least in (("programs", 1), ("steps", 1), ("seed", 0)):
        if (value := getattr(chosen, argument)) is not None and value < least:
            raise Misuse(argument, value, f"an integer >= {least}")
    budget = profile(chosen.profile)
    programs = chosen.programs or budget.programs
    factory = subject_named(subject, limit_s=chosen.limit_s) if isinstance(subject, str) else subject
    if name is None:
        name = subject if isinstance(subject, str) else getattr(subject, "__qualname__", repr(subject))
    found = subject if isinstance(subject, str) else _named(subject)
    return Run(
        name=name,
        subject=found,
        factory=factory,
        capabilities=capabilities_of(name, factory),
        budget=replace(
            budget, programs=programs, steps=chosen.steps or budget.steps,
            machine_programs=min(programs, budget.machine_programs),
        ),
        seed=seed_of_commit() if chosen.seed is None else chosen.seed,
        known=of_subject(load(chosen.known_failures), name, found) if chosen.known_failures else (),
        traces=trace_files(chosen.traces),
        out=Path(chosen.out),
        limit_s=chosen.limit_s,
    )  # fmt: skip


def _named(factory: SubjectFactory) -> str:
    """The name under which a factory is found, if there is one."""
    name = f"{getattr(factory, '__module__', '')}:{getattr(factory, '__qualname__', '')}"
    try:
        return name if subject_named(name) is factory else ""
    except (Misuse, ImportError):  # it is local to something, or bound to it
        return ""


def trace_files(traces: str | Path | None) -> tuple[Path, ...]:
    """A trace file, or those of a directory. `TraceError` if one is none: better now than after all the rest."""
    if traces is None:
        return ()
    path = Path(traces)
    files = tuple(sorted(path.glob("*.jsonl"))) if path.is_dir() else (path,)
    if not files:
        raise Misuse("traces", str(traces), "a trace file, or a directory with *.jsonl in it")
    for file in files:
        if not file.is_file():
            raise Misuse("traces", str(file), "a trace file")
        load_trace(file)
    return files


def capabilities_of(name: str, factory: SubjectFactory) -> Capabilities:
    """What a subject declares, with everything switched on that it has. `Misuse` if it is no subject."""
    try:
        made = probe(factory)
        if not (wrong := no_subject(made)):
            return made.capabilities
    except Misuse as misuse:
        if misuse.argument == "subject":  # its process says so
            raise
        small = "one that can be made with 2 blocks of 2, if need be without a prefix cache"
        raise Misuse("subject", name, f"{small}; it raised {raised(misuse)}") from misuse
    except ImportError as error:
        raise Misuse("subject", name, f"one that can be made here; {install_hint(error)}") from error
    except Violation as failure:  # of a process of its own
        wanted = PROGRAM if name.startswith("command:") else FACTORY
        raise Misuse("subject", name, f"{wanted}; {failure.detail}") from failure
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Misuse("subject", name, f"{FACTORY}; it raised {raised(error)}") from error
    raise Misuse("subject", name, f"{FACTORY}; {wrong}")
