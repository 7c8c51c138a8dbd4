"""Every named way to break the kernels of the pool, or its loops, is noticed by the law that it breaks."""

import sys
from typing import Any, cast

import pytest
from pagedkv.conformance import fuzz
from pagedkv.conformance.mutation import Mutant
from pagedkv.optimized.device import launches, loops
from pagedkv.optimized.device.loops import giving_back
from pagedkv.optimized.loops.compiled import IS_COMPILED
from pagedkv.spec.subject import SubjectFactory
from pagedkv.optimized.device.on_the_cpu import LoopOperations
from pagedkv.optimized.device.pool import DevicePool
from pagedkv.optimized.device.subject import DeviceSubject

from tests.optimized.device.host_mutants import HOST_KERNELS, HOST_LOOPS
from tests.optimized.device.laws import LAWS, broken_invariant, wrong_loops
from tests.optimized.device.loop_mutants import LOOP_MUTANTS
from tests.optimized.device.mutant_tool import KERNELS, LOOPS, kernel, loop, modules
from tests.optimized.device.pool_mutants import FOUND_AT, KERNEL_MUTANTS
from tests.optimized.device.pools import Make, carried_out

PROGRAMS = 70
"""That a mutant is hunted with, at the most."""
MUTANTS = (*KERNEL_MUTANTS, *HOST_KERNELS, *LOOP_MUTANTS, *HOST_LOOPS)


def subject_of(make: Make) -> SubjectFactory:
    """A subject of the conformance kit whose pool `make` carries out."""

    class Subject(DeviceSubject):
        def _new_pool(self, num_rows: int, *, leased: bool = False) -> DevicePool:
            return carried_out(super()._new_pool(num_rows, leased=leased), make)

    return cast(SubjectFactory, Subject)


def hunted(mutant: Mutant, loaded: Any, programs: int = PROGRAMS) -> str | None:
    """What the law says that the mutant breaks: launches of its own, or `LoopOperations`."""
    if mutant.breaks == "fuzz":
        found = fuzz.run(subject_of(loaded), seed=1, programs=5 * programs, steps=40).violation
        return None if found is None else f"{found.law}: {found.detail}"
    of_loops = {"state": wrong_loops, "invariants": broken_invariant}
    law = of_loops[mutant.breaks] if isinstance(loaded, type) else LAWS[mutant.breaks]
    hint = FOUND_AT.get(mutant.name, 0)
    return next(filter(None, (law(loaded, seed, 10) for seed in (hint, *range(programs)))), None)


def title(mutant: Mutant) -> str:
    """Its package, its file and its name."""
    return f"{'.'.join(mutant.module.split('.')[-2:])}: {mutant.name}"


def test_the_list_is_long_and_names_are_distinct() -> None:
    assert len({title(mutant) for mutant in MUTANTS}) == len(MUTANTS) >= 70
    assert {mutant.breaks for mutant in MUTANTS} == {*LAWS, "fuzz"}


@pytest.mark.parametrize("mutant", MUTANTS, ids=title)
def test_a_mutant_is_noticed_by_the_law_that_it_breaks(mutant: Mutant) -> None:
    assert hunted(mutant, mutant.load()) is not None, f"{mutant.name} was not noticed"


@pytest.mark.parametrize("law", LAWS)
def test_kernels_loaded_anew_are_no_fault(law: str) -> None:
    """What is found of a mutant is its fault: loaded in the same way, with nothing altered, all laws hold."""
    for mutant in (kernel(file, "nothing is broken", law) for file in ("rows", "release")):
        loaded = mutant.load()
        assert loaded is not launches
        assert hunted(mutant, loaded, 4) is None


@pytest.mark.parametrize("law", ["fuzz", "invariants", "state"])
def test_loops_loaded_anew_are_no_fault(law: str) -> None:
    for mutant in (loop(file, "nothing is broken", law) for file in ("rows", "giving_back")):
        loaded = mutant.load()
        assert loaded is not LoopOperations
        assert hunted(mutant, loaded, 10) is None


def test_mutants_are_uncompiled_and_leave_the_loops_as_they_were() -> None:
    before = {name: module for name, module in sys.modules.items() if "__mutant_" not in name}
    loaded = LOOP_MUTANTS[0].load()
    of_mutant = sys.modules[loaded.__module__]
    assert not hasattr(of_mutant.giving_back.free, "py_func")
    assert not hasattr(of_mutant.growth.grow, "py_func")
    assert {name: module for name, module in sys.modules.items() if "__mutant_" not in name} == before
    assert loops.giving_back is giving_back
    assert hasattr(giving_back.free, "py_func") == IS_COMPILED


def test_every_file_of_the_kernels_and_loops_has_mutants() -> None:
    of_them = {*modules(KERNELS, first="rows"), *modules(LOOPS, first="rows")}
    assert {mutant.module for mutant in MUTANTS} == of_them
