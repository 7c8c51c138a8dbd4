"""The parts of `verify`, each a module with `run(options) -> Section`, run by name in a process of its own.

Kernels are either interpreted or compiled in one process, never both, and a part that crashes takes no other with it.
A part is imported only when it runs, so that a missing extra costs that part alone.
"""

import importlib
import time
import traceback
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pagedkv.cli.inputs import BadInput, aside, progress
from pagedkv.cli.report import Section, merged
from pagedkv.conformance.importing import install_hint


@dataclass(frozen=True)
class Options:
    """What the parts are told."""

    subject: str = "optimized"
    quick: bool = False
    seed: int = 0
    out: str = "failures"
    quiet: bool = False

    def say(self, text: str) -> None:
        """A line of progress."""
        if not self.quiet:
            progress(text)


class Part(NamedTuple):
    """Where a part is, and in which section of the report it appears."""

    section: str
    module: str
    extra: str = ""
    """What to install for a part that holds what is ours and no block manager, whichever of those is named."""


PARTS: Final[dict[str, Part]] = {
    "workload": Part("workload", "pagedkv.cli.parts.workload"),
    "kernels": Part("kernels compiled", "pagedkv.cli.parts.kernels", extra="gpu"),
    "exhaustive": Part("exhaustive slices", "pagedkv.cli.parts.exhaustive"),
    "attention": Part("attention", "pagedkv.cli.parts.attention", extra="torch"),
    "device": Part("device pool", "pagedkv.cli.parts.device", extra="torch"),
    "programs": Part("random programs", "pagedkv.cli.parts.programs"),
    "interpreted": Part("attention", "pagedkv.cli.parts.interpreted", extra="gpu"),
}
"""By name, the longest first, so that two processes end at about the same time."""

ORDER: Final = ("exhaustive slices", "random programs", "device pool", "attention", "kernels compiled", "workload")
"""Of the report."""


def run_part(name: str, options: Options) -> Section:
    """Run one part. "not run" if a package is missing or at misuse; any other exception or exit is a violation."""
    start, section = time.perf_counter(), PARTS[name].section
    options.say(f"{name} ...")
    try:
        with aside():
            module: Any = importlib.import_module(PARTS[name].module)
            found: Section = module.run(options)
    except (Exception, SystemExit) as error:
        found = _without(name, error)
    options.say(f"{name}: {found.status}")
    return Section(section, found.status, found.lines, found.data, time.perf_counter() - start)


def _without(name: str, error: BaseException) -> Section:
    """What to say of a part that raised. No extra brings a module of our own: that one missing is a crash."""
    section = PARTS[name].section
    if isinstance(error, BadInput):
        return Section(section, "not run", (f"{name} not run: {error}",), {"part": name, "misuse": str(error)})
    if isinstance(error, ImportError) and not (error.name or "").startswith("pagedkv"):
        why = install_hint(error, PARTS[name].extra)
        return Section(section, "not run", (f"{name} not run: {why}",), {"part": name, "why": why})
    where = "".join(traceback.format_exception(error)[-2:])
    return Section(section, "violated", (f"{name} crashed: {error!r}",), {"part": name, "crashed": where})


def combine(results: list[Section]) -> list[Section]:
    """The results in the order of the report, those of one section together."""
    return [merged(name, parts) for name in ORDER if (parts := [r for r in results if r.name == name])]
