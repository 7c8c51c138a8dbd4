"""The Hypothesis machine as a check: with Hypothesis's database, which brings back what failed before.

Hypothesis's own settings stand (profile, database), except the profile `ci` that it loads by itself where it believes
to be in continuous integration: that one has no database and draws the same programs for ever. What is found is made
short by us, which takes a second; Hypothesis, which knows nothing of operations, takes minutes.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures.shrinking import Excusing, Failure, minimise
from pagedkv.conformance.search.machine import Bytes, Machine, choices, machine_for
from pagedkv.conformance.suite.profiles import Profile
from pagedkv.spec.subject import SubjectFactory


class _Excused(Violation):
    """A violation that is known."""


class _Checked(Machine):
    """Passes over what is excused, and keeps the first failure that is not, made short."""

    excuse: Excusing
    found: list[Failure]
    excused: Counter[str]

    @rule(chooser=choices(48))
    def step(self, chooser: Bytes) -> None:
        """One operation. Of a program that is passed over nothing more is run, and Hypothesis draws it to its end."""
        if not self.failed:
            with suppress(_Excused):
                super().step(chooser)

    def teardown(self) -> None:
        """The end of the program."""
        with suppress(_Excused):
            super().teardown()

    def broke(self, violation: Violation) -> None:
        self.failed = True
        failure = Failure(self.drawn.config, tuple(self.differential.log), violation)
        if (known := self.excuse(failure)) is not None:
            self.excused[known] += 1
            raise _Excused(violation.law, violation.detail, violation.operation) from violation
        if not self.found:
            self.found.append(minimise(type(self).factory, failure, excuse=self.excuse))


def hold_with_database(
    factory: SubjectFactory, name: str, budget: Profile, number: int, excuse: Excusing
) -> tuple[Failure | None, Mapping[str, int], Mapping[str, int]]:
    """Draw programs: those of the database first, then new ones from the seed `number`. The first failure, made short,
    what was done, and what was excused. In the database the subject is known by its name."""
    found, excused = list[Failure](), Counter[str]()
    members: dict[str, Any] = {"excuse": staticmethod(excuse), "found": found, "excused": excused}
    machine: type[_Checked] = type(name, (_Checked, machine_for(factory, name)), members)
    try:
        run_state_machine_as_test(seed(number)(machine), settings=chosen_settings(budget))
    except Violation:
        return found[0], {}, {}
    done = machine.counts
    return None, {"programs": done.subsets.total(), "operations": done.operations.total()}, excused


def chosen_settings(budget: Profile) -> settings:
    """Hypothesis's settings, with our budget."""
    automatic = settings().derandomize and settings().database is None
    return settings(
        settings.get_profile("default") if automatic else settings(),
        max_examples=budget.machine_programs,
        stateful_step_count=budget.steps,
        derandomize=False,
        deadline=None,
        report_multiple_bugs=False,
        phases=[Phase.reuse, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        verbosity=Verbosity.quiet,
    )
