"""How much a run does: budgets in programs and operations, never in seconds, so that a seed repeats a run exactly.

`pr` is for every change and takes seconds; `nightly` is forty times as much. The plugin, the base class and the command
share them.

>>> PROFILES["pr"].programs * PROFILES["pr"].steps
30000
"""

import os
import random
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pagedkv.spec import Misuse


@dataclass(frozen=True)
class Profile:
    """What the random parts of a run may spend. The exhaustive slices have their own, fixed, size."""

    programs: int
    """Random programs of `fuzz`."""
    steps: int
    """Operations in each program, of both kinds."""
    machine_programs: int
    """Programs that Hypothesis draws, from its database first."""


PROFILES: Final[Mapping[str, Profile]] = {
    "pr": Profile(programs=500, steps=60, machine_programs=50),
    "nightly": Profile(programs=20_000, steps=60, machine_programs=2_000),
}
"""By name."""


def profile(name: str) -> Profile:
    """The profile of a name; an unknown one is `Misuse`."""
    if name not in PROFILES:
        raise Misuse("profile", name, f"one of {', '.join(PROFILES)}")
    return PROFILES[name]


def seed_of_commit(directory: str | Path = ".") -> int:
    """A seed that follows the commit: a failure can be repeated, and a new commit tries new programs. Without git or a
    commit it is drawn at random, once for all workers of pytest-xdist; whoever calls prints it."""
    command = ["git", "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        told = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True, timeout=10).stdout
        return int(told[:8], 16)
    except (OSError, subprocess.SubprocessError, ValueError):
        return random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID")).randrange(1 << 32)
