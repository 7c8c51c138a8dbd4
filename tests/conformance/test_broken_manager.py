"""Every named way to break the optimized manager is found unaided, and leaves a trace that shows it to anybody."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from pagedkv.conformance.fuzz import run
from pagedkv.conformance.mutation import Mutant
from pagedkv.conformance.replay import replay
from pagedkv.optimized.loops import blocks, compiled
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.spec.trace import load

from tests.conformance.broken_manager import BROKEN_MANAGERS
from tests.conformance.broken_manager_tool import imports, mutant, uncompiled


def test_the_list_is_long_and_names_are_distinct() -> None:
    assert len({mutant.name for mutant in BROKEN_MANAGERS}) == len(BROKEN_MANAGERS) >= 65


@pytest.mark.parametrize("mutant", BROKEN_MANAGERS, ids=lambda mutant: mutant.name)
def test_a_broken_manager_is_found_and_its_trace_replays(mutant: Mutant, tmp_path: Path) -> None:
    broken = mutant.load()
    found = run(broken, seed=1, programs=1_500, out_dir=tmp_path).violation
    assert found is not None, f"{mutant.name} was not found: {mutant.breaks}"
    assert found.path is not None
    trace = load(Path(found.path))
    again = replay(trace, broken)
    assert (again.verdict, again.law) == ("violation", found.law)
    assert replay(trace, OptimizedSubject).verdict == "holds"


@pytest.mark.parametrize("module", [module for module in imports() if module not in ("subject", "loops.compiled")])
def test_a_module_loaded_anew_is_no_fault(module: str) -> None:
    """What is found of a mutant is its fault: loaded in the same way, with nothing altered, a manager holds."""
    intact = mutant("nothing is broken", "", module).load()
    assert intact is not OptimizedSubject
    assert run(intact, seed=1, programs=5).violation is None


def compiled_functions(module: ModuleType) -> list[str]:
    """Those of a module, and of the modules of ours that it has imported whole."""
    whole = [value for value in vars(module).values() if isinstance(value, ModuleType) and "pagedkv" in value.__name__]
    return [name for each in (module, *whole) for name, value in vars(each).items() if hasattr(value, "py_func")]


def test_mutants_are_uncompiled_through_and_through() -> None:
    with uncompiled():
        modules = [import_module(f"pagedkv.optimized.{module}") for module in reversed(imports())]
        assert {module.__name__: compiled_functions(module) for module in modules if compiled_functions(module)} == {}
    assert bool(compiled_functions(import_module("pagedkv.optimized.loops.calls"))) == compiled.IS_COMPILED


def test_mutants_leave_the_manager_as_it_was() -> None:
    """The compiled loops are back, in every place where an import looks."""
    before = {name: module for name, module in sys.modules.items() if "__mutant_" not in name}
    BROKEN_MANAGERS[0].load()
    assert {name: module for name, module in sys.modules.items() if "__mutant_" not in name} == before
    assert before["pagedkv.optimized.loops"].blocks is blocks
    assert before["pagedkv.optimized"].subject.OptimizedSubject is OptimizedSubject
    assert hasattr(blocks.take, "py_func") == compiled.IS_COMPILED
