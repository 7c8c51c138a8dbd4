"""The Hypothesis machine as a check: with Hypothesis's database, which brings back what failed before.

Hypothesis's own settings stand (profile, database), except the profile `ci` that it loads by itself where it believes
to be in continuous integration: that one has no database and draws the same programs for ever.
"""

from collections.abc import Mapping
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from pagedkv.conformance.failures.shrinking import Excusing, Failure
from pagedkv.conformance.programs.counting import Counts
from pagedkv.conformance.search.machine import machine_for
from pagedkv.conformance.suite.profiles import Profile
from pagedkv.spec.subject import SubjectFactory


class Held(NamedTuple):
    """What a run of the machine has done."""

    counts: Counts
    excused: Mapping[str, int]
    """Programs that failed in a way that is known, by what is known."""
    failure: Failure | None
    """The first that is not known, made short."""


def hold(
    factory: SubjectFactory, name: str, budget: Profile, number: int, excuse: Excusing | None = None
) -> Held:  # fmt: skip
    """Draw programs: those of the database first, then new ones from the seed `number`. In the database the subject is
    known by its name."""
    machine = machine_for(factory, name, None, excuse)
    try:
        run_state_machine_as_test(seed(number)(machine), settings=chosen_settings(budget))
    except Exception:  # also what Hypothesis says of a subject that does not fail every time, in words of its own
        if not machine.shortest:
            raise
    return Held(machine.counts, machine.excused, next(iter(machine.shortest.values()), None))


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
