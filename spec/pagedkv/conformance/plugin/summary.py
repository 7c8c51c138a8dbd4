"""What a session did with each subject, at its end; told by the reports of its items, wherever these ran."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from pagedkv.conformance.counted import counted
from pagedkv.conformance.told import COUNTED, KNOWN, PREFIX, SEED, UNDECLARED


@dataclass
class _Subject:
    """What the reports of one subject tell."""

    outcomes: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    seeds: set[str] = field(default_factory=set)
    undeclared: set[str] = field(default_factory=set)

    def add(self, outcome: str, told: Mapping[str, object]) -> None:
        """One check. All values are numbers but what is not declared, which is a text."""
        self.outcomes[outcome] += 1
        for name, value in told.items():
            if name == SEED:
                self.seeds.add(str(value))
            elif name == UNDECLARED:
                self.undeclared.update(text for text in [str(value)] if text)
            elif name.startswith(KNOWN):
                self.known[name.removeprefix(KNOWN)] += int(str(value))
            else:
                self.counted[name] += int(str(value))

    def lines(self, name: str) -> list[str]:
        """Of the summary."""
        head = [f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items())]
        head += [counted(self.counted[what], what) for what in COUNTED if self.counted[what]]
        lines = [f"{name}: {', '.join(head)}, seed {' and '.join(sorted(self.seeds))}"]
        lines += [f"  put down to the known failure {known}: {count:,}" for known, count in sorted(self.known.items())]
        lines += [
            f"  not tested, because the subject does not declare it: {names}" for names in sorted(self.undeclared)
        ]
        return lines


def write(terminal: pytest.TerminalReporter) -> None:
    """A section, if there is anything to tell."""
    subjects: dict[str, _Subject] = {}
    for outcome, reports in terminal.stats.items():
        for report in reports:
            if not isinstance(report, pytest.TestReport) or report.when != "call":
                continue
            told = {name.removeprefix(PREFIX): v for name, v in report.user_properties if name.startswith(PREFIX)}
            if told:
                subjects.setdefault(report.nodeid.rpartition("::")[0], _Subject()).add(outcome, told)
    if subjects:
        terminal.section("pagedkv")
    for name, subject in subjects.items():
        for line in subject.lines(name):
            terminal.line(line)
