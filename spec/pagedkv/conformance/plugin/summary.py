"""What a session did with each subject, at its end; told by the reports of its items, wherever these ran."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

from pagedkv.conformance.suite.run import Run

PREFIX: Final = "pagedkv "
"""Of the names of properties in reports, which also stand in JUnit files."""


COUNTED: Final = ("traces", "states", "transitions", "programs", "operations")
"""What is counted, in the order in which it is told."""
UNDECLARED: Final = "not declared"
ABOUT: Final = ("seed", UNDECLARED)


def properties(run: Run | None, done: Mapping[str, int]) -> list[tuple[str, object]]:
    """What is to be told about a check, as properties of its report: of which run, and what was done."""
    told: dict[str, object] = {**done}
    if run:
        told |= {"seed": run.seed, UNDECLARED: ", ".join(run.undeclared)}
    return [(PREFIX + name, value) for name, value in told.items()]


@dataclass
class _Subject:
    """What the reports of one subject tell."""

    outcomes: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    about: dict[str, object] = field(default_factory=dict)

    def add(self, outcome: str, told: Mapping[str, object]) -> None:
        """One check."""
        self.outcomes[outcome] += 1
        for name, value in told.items():
            if name in ABOUT:
                self.about[name] = value
            else:
                self.totals[name] += int(str(value))

    def lines(self, name: str) -> list[str]:
        """Of the summary."""
        head = [f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items())]
        head += [f"{self.totals[what]:,} {what}" for what in COUNTED if self.totals[what]]
        lines = [f"{name}: {', '.join(head)}, seed {self.about['seed']}"]
        for what in sorted(self.totals.keys() - COUNTED):
            lines.append(f"  put down to {what.replace('known ', 'the known failure ')}: {self.totals[what]:,}")
        if self.about[UNDECLARED]:
            lines.append(f"  not exercised (not declared): {self.about[UNDECLARED]}")
        return lines


class Summary:
    """A pytest plugin that prints the summary."""

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """A section, if there is anything to tell."""
        subjects: dict[str, _Subject] = {}
        for outcome, reports in terminalreporter.stats.items():
            for report in reports:
                if not isinstance(report, pytest.TestReport) or report.when != "call":
                    continue
                told = {name.removeprefix(PREFIX): v for name, v in report.user_properties if name.startswith(PREFIX)}
                if told:
                    subjects.setdefault(report.nodeid.rpartition("::")[0], _Subject()).add(outcome, told)
        if subjects:
            terminalreporter.section("pagedkv")
        for name, subject in subjects.items():
            for line in subject.lines(name):
                terminalreporter.line(line)
