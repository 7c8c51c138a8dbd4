"""How much of what there is do random programs reach?

The exhaustive check knows every state of a slice, up to relabelling. Here random programs run in the same pool, and
the states of the slice that they pass through are counted. They are not kept to the slice's moves: what they do outside
of it counts as operations and finds nothing, so the share is a lower bound on what the same number of operations within
the slice would reach.
"""

from dataclasses import dataclass, replace

from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.programs.choosing import Dice
from pagedkv.conformance.programs.generator import Programmer
from pagedkv.conformance.programs.plans import NAMESPACES, declared, draw_plan
from pagedkv.conformance.search import exhaustive
from pagedkv.conformance.search.slices import Slice
from pagedkv.spec.subject import SubjectFactory


@dataclass(frozen=True)
class Reached:
    """States of a slice that were reached."""

    slice: str
    states: int
    """All that there are."""
    reached: int
    programs: int
    operations: int


def reached(factory: SubjectFactory, part: Slice, *, seed: int, programs: int, steps: int) -> Reached:
    """Visit the slice exhaustively, then run random programs in its pool, and count the states that both have met.

    A violation is raised as it is: this is for subjects that hold.
    """
    report = exhaustive.run(factory, part)
    if report.violation:
        raise report.violation
    all_states = report.visited
    most = max(len(key[0]) for key in all_states)
    met, operations = set[exhaustive.Key](), 0
    capabilities = declared(factory)
    for number in range(programs):
        dice = Dice(f"{seed}/{number}")
        plan = replace(draw_plan(dice, capabilities), config=part.config, namespaces=NAMESPACES[0])
        differential = Differential(factory, part.config)
        programmer = Programmer(dice, plan, differential.capabilities)
        for _ in range(steps):
            differential.step(programmer.next(differential.state))
            operations += 1
            if len(differential.state.requests) <= most:
                met.add(exhaustive.canonical(differential.state, part.with_tokens))
    return Reached(part.name, len(all_states), len(met & all_states), programs, operations)
