"""Hunting what breaks the device pool: every law of its kernels in turn, on one random program after another."""

from typing import Any, Final, cast

import torch
from pagedkv.optimized.device.pool import DevicePool
from pagedkv.optimized.device.subject import DeviceSubject
from pagedkv.spec.subject import SubjectFactory

from tests.conformance.mutants.managers import by_programs, by_slices
from tests.conformance.mutants.mutation import Mutant
from tests.conformance.mutants.records import Hunt, Kill
from tests.optimized.device.laws import FAULTS, LAWS, Law, broken_invariant, wrong_loops
from tests.optimized.device.pools import Make, carried_out

CALLS: Final = 10
"""Of one program."""
PROGRAMS: Final = 600
ALL: Final = 60
"""Programs that every law gets; from there on only the two that rare faults need, and that take the least time."""
AT_LEAST: Final = 4
"""Programs that every law gets, also after another one has noticed the mutant."""
STEPS: Final = 40

OF_KERNELS: Final = {
    "state": "relations", "pieces": "relations", "invariants": "ledger", "order": "order", "races": "order",
}  # fmt: skip
"""By law, the oracle. "state" and "pieces" hold kernels and loops against each other, bit for bit."""


OF_LOOPS: Final[dict[str, Law]] = {"state": wrong_loops, "invariants": broken_invariant}


def subject_of(make: Make) -> SubjectFactory:
    """A subject of the conformance kit whose pool `make` carries out."""

    class Subject(DeviceSubject):
        def _new_pool(self, num_rows: int, *, leased: bool = False) -> DevicePool:
            return carried_out(super()._new_pool(num_rows, leased=leased), make)

    return cast(SubjectFactory, Subject)


def hunt_kernels(mutant: Mutant, seed: int) -> Hunt:
    """Launches of its own: the kernels are interpreted."""
    return Hunt(_by_laws(mutant.load(), LAWS, seed))


def hunt_loops(mutant: Mutant, seed: int) -> Hunt:
    """`LoopOperations`: the laws of the pool, and the kit's programs and slices on a subject of it."""
    loaded = mutant.load()
    kills = {kill.oracle: kill for kill in _by_laws(loaded, OF_LOOPS, seed)}
    random, trace = by_programs(subject_of(loaded), seed, programs=350, steps=STEPS)
    for kill in (random, by_slices(subject_of(loaded))[0]):
        if kill is not None:
            kills[kill.oracle] = kill
    return Hunt(tuple(kills.values()), trace)


def _by_laws(loaded: Any, laws: dict[str, Law], seed: int) -> tuple[Kill, ...]:
    """The first kill of each oracle."""
    torch.set_num_threads(1)
    kills: dict[str, Kill] = {}
    for number in range(PROGRAMS):
        if kills and number >= AT_LEAST:
            break
        for name, law in laws.items():
            if number >= ALL and name not in ("state", "invariants"):
                continue
            oracle = OF_KERNELS[name]
            if oracle not in kills and notices(law, loaded, seed, number):
                kills[oracle] = Kill(oracle, name, CALLS * (number + 1), number)
    return tuple(kills.values())


def notices(law: Law, loaded: Any, seed: int, program: int) -> bool:
    """Whether a law says something of one program of a run, or what is broken ends it."""
    try:
        return law(loaded, 1_000 * seed + program, CALLS) is not None
    except FAULTS:
        return True
