"""Every named way to break the kernels of the pool, or its loops, is noticed by the program that is known to show it.

`make mutants` hunts for these programs unaided; what the kit's own programs show has a trace besides.
"""

import json
import random
import sys
from functools import cache
from types import ModuleType
from typing import Any

import pytest
import torch
from pagedkv.optimized.device import launches, loops, on_the_cpu
from pagedkv.optimized.device.loops import giving_back
from pagedkv.optimized.device.on_the_cpu import LoopOperations
from pagedkv.optimized.loops.compiled import IS_COMPILED
from torch import Tensor

from tests.conformance.mutants.campaign import DATA, results
from tests.conformance.mutants.catalogue import CATALOGUE, Entry
from tests.conformance.mutants.device import OF_LOOPS, notices
from tests.conformance.mutants.mutation import Mutant
from tests.conformance.mutants.records import Kill
from tests.optimized.device.laws import LAWS, Law
from tests.optimized.device.loop_mutants import LOOP_MUTANTS
from tests.optimized.device.mutant_tool import KERNELS, LOOPS, kernel, loop, modules

ENTRIES = {key: entry for key, entry in CATALOGUE.items() if entry.family.name in ("pool-kernels", "pool-loops")}
SEED = json.loads(DATA.read_text(encoding="utf-8"))["seed"]
PROGRAMS = 60
"""That a mutant is hunted with anew, at the most."""


def laws_of(entry: Entry) -> Any:
    """Of loops, or of kernels."""
    return OF_LOOPS if entry.family.name == "pool-loops" else LAWS


def soonest(key: str) -> Kill | None:
    """What noticed a mutant in the earliest program of calls; None: only programs of the kit did."""
    kills = [kill for kill in results()[key].kills if kill.law in laws_of(ENTRIES[key])]
    return min(kills, key=lambda kill: kill.program, default=None)


KNOWN = {key: kill for key in ENTRIES if (kill := soonest(key))}


@cache
def holds(of_loops: bool, law: str, program: int) -> bool:
    """Whether what is intact keeps a law in a program."""
    laws, intact = (OF_LOOPS, LoopOperations) if of_loops else (LAWS, launches)
    return not notices(laws[law], intact, SEED, program)


@pytest.mark.parametrize("key", KNOWN)
def test_a_known_program_breaks_its_law_on_the_mutant_and_none_on_what_is_intact(key: str) -> None:
    """Repair: `make mutants ARGS="--only KEY"`."""
    entry, kill = ENTRIES[key], KNOWN[key]
    assert isinstance(entry.mutant, Mutant)
    assert notices(laws_of(entry)[kill.law], entry.mutant.load(), SEED, kill.program)
    assert holds(entry.family.name == "pool-loops", kill.law, kill.program)


def test_what_no_such_program_shows_has_a_trace() -> None:
    assert all(results()[key].trace_length is not None for key in ENTRIES if key not in KNOWN)


def test_programs_of_another_seed_find_mutants_too(pytestconfig: pytest.Config) -> None:
    """The seed follows the commit: every commit draws other mutants, and other programs."""
    seed = int(pytestconfig.getoption("--hypothesis-seed") or 0)
    soon = [key for key, kill in KNOWN.items() if kill.program < 8]
    for key in random.Random(seed).sample(soon, 3):
        law, loaded = laws_of(ENTRIES[key])[KNOWN[key].law], ENTRIES[key].mutant.load()  # type: ignore[union-attr]  # no CPU loop
        assert any(notices(law, loaded, seed, number) for number in range(PROGRAMS)), f"{key}, seed {seed}"


@pytest.mark.parametrize(
    ("laws", "made", "operations"), [(LAWS, launches, launches), (OF_LOOPS, on_the_cpu, LoopOperations)]
)
def test_no_law_depends_on_what_memory_held(
    laws: dict[str, Law], made: ModuleType, operations: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a mutant that leaves memory as it was is noticed on one day, and not on another."""
    unfilled: list[object] = []
    real = torch.empty

    def spied(*args: Any, **options: Any) -> Tensor:
        if sys._getframe(1).f_globals["__name__"] == made.__name__:
            unfilled.append(args)
        return real(*args, **options)

    monkeypatch.setattr(torch, "empty", spied)
    for name, law in laws.items():
        assert law(operations, SEED, 4) is None
        assert not unfilled, name


@pytest.mark.parametrize("law", LAWS)
def test_kernels_loaded_anew_are_no_fault(law: str) -> None:
    """What is found of a mutant is its fault: loaded in the same way, with nothing altered, all laws hold."""
    for mutant in (kernel(file, "nothing is broken", law) for file in ("rows", "release")):
        loaded = mutant.load()
        assert loaded is not launches
        assert not any(notices(LAWS[law], loaded, 0, number) for number in range(4))


@pytest.mark.parametrize("law", OF_LOOPS)
def test_loops_loaded_anew_are_no_fault(law: str) -> None:
    for mutant in (loop(file, "nothing is broken", law) for file in ("rows", "giving_back")):
        loaded = mutant.load()
        assert loaded is not LoopOperations
        assert not any(notices(OF_LOOPS[law], loaded, 0, number) for number in range(10))


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
    assert {entry.mutant.module for entry in ENTRIES.values() if isinstance(entry.mutant, Mutant)} == of_them
