"""Hunting a broken block manager: with random programs, and through the states of small pools."""

from dataclasses import replace
from typing import Final

from pagedkv.conformance.search import exhaustive, fuzz
from pagedkv.conformance.search.exhaustive import slices_for
from pagedkv.conformance.failures.shrinking import Failure, minimise, trace_of
from pagedkv.conformance.programs.plans import declared
from pagedkv.spec import Misuse
from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import Trace

from tests.conformance.mutants.limits import answering
from tests.conformance.mutants.mutation import Mutant
from tests.conformance.mutants.records import Hunt, Kill

PROGRAMS: Final = 3_000
STEPS: Final = 60
STATES: Final = 60
"""Of each slice, at first."""


def subject_of(mutant: Mutant) -> SubjectFactory:
    """The broken manager, with the option switched on without which nothing is broken."""
    broken: SubjectFactory = answering(mutant.load())
    return (lambda config: broken(replace(config, dedup=True))) if "dedup" in mutant.needs else broken


def hunt(mutant: Mutant, seed: int) -> Hunt:
    """Both oracles, on one load of the mutant."""
    return hunted(subject_of(mutant), seed)


def hunted(broken: SubjectFactory, seed: int, *, programs: int = PROGRAMS, steps: int = STEPS) -> Hunt:
    """Both oracles, on a subject. What neither notices goes through the slices whole."""
    random, trace = by_programs(broken, seed, programs=programs, steps=steps)
    states, failure = by_slices(broken)
    if random is states is None:
        states, failure = by_slices(broken, None)
    if trace is None and failure is not None:
        trace = trace_of(minimise(broken, failure))
    return Hunt(tuple(filter(None, (random, states))), trace)


def by_programs(broken: SubjectFactory, seed: int, *, programs: int, steps: int) -> tuple[Kill | None, Trace | None]:
    """Random programs of this seed, and the minimal trace."""
    report = fuzz.run(broken, seed=seed, programs=programs, steps=steps)
    found = report.violation
    if found is None:
        return None, None
    return Kill("ledger", found.law, report.steps + 1, found.program), found.trace  # with the one that shows it


def by_slices(broken: SubjectFactory, most: int | None = STATES) -> tuple[Kill | None, Failure | None]:
    """The slices one after another, each breadth first and up to so many states, and the program that was met."""
    transitions = 0
    for number, part in enumerate(slices_for(declared(broken))):
        try:
            report = exhaustive.run(broken, part, max_states=most)
        except Misuse:  # it cannot be made with the options of the slice
            continue
        transitions += report.transitions
        if failure := report.failure:
            law = f"{part.name}: {failure.violation.law}"
            return Kill("exhaustive", law, transitions, number), failure
    return None, None
