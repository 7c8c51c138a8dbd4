"""What is known of the bugs of other projects, and where each is noticed here.

A *fact* is a bug as its project met it; the facts are data (`facts.jsonl`), in our own words. A *record* says that the
cause of a bug has a counterpart in a block manager of our kind: a trace of the corpus sets it off, a mutant of the
reference has it, and the record names the law and the line of the trace at which the kit notices. What cannot arise
here, and what no trace can show, says so in its fact. Bugs of kernels (`kernel_facts.jsonl`) have no trace: their
records name mutants of the catalogue.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pagedkv.conformance import corpus
from tests.conformance.mutants.mutation import Mutant

FACTS: Final = Path(__file__).parent / "facts.jsonl"
KERNEL_FACTS: Final = Path(__file__).parent / "kernel_facts.jsonl"

EXPECTATION: Final = "the trace's expectation"
CRASH: Final = "misuse raises Misuse, and nothing else is raised"


@dataclass(frozen=True)
class Fact:
    """A bug of another project."""

    id: str
    project: str
    kind: str
    """Its class; see `kernels.CLASSES`."""
    links: tuple[str, ...]
    wrong: str
    """What went wrong there, and why."""
    cannot_arise: str = ""
    """Why no manager of our kind can have it; empty: it can."""
    own_test: str = ""
    """The test that it needs because no trace can show it; empty: a trace can."""


@dataclass(frozen=True)
class Record:
    """How a bug is set off, re-created and noticed here."""

    bug: str
    mutant: Mutant
    """The reference manager with the same cause in it; bugs of one cause share one."""
    law: str
    """That the kit names when the trace runs on the mutant …"""
    at_line: int
    """… and the line of the trace at which it does."""
    nearest: str = ""
    """Where our design gives the cause another shape, or the cause is not known: what the mutant does."""

    @property
    def trace(self) -> Path:
        """The one file of the corpus that begins with the bug's id."""
        (path,) = (path for path in corpus.files() if path.name.startswith(f"{self.bug}_"))
        return path


def facts(path: Path = FACTS) -> Iterator[Fact]:
    """Those of block managers, or of another file, in the order of their ids."""
    for line in path.read_text(encoding="utf-8").splitlines():
        fact = json.loads(line)
        yield Fact(**{**fact, "links": tuple(fact["links"])})
