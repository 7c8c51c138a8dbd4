"""Broken optimized managers are broken where they say, and nowhere else. What finds them is tested in `mutants`."""

import sys
from importlib import import_module
from types import ModuleType

import pytest
from pagedkv.conformance.search.fuzz import run
from pagedkv.optimized.loops import blocks, compiled
from pagedkv.optimized.subject import OptimizedSubject

from tests.conformance.broken_manager import BROKEN_MANAGERS
from tests.conformance.broken_manager_tool import imports, mutant, uncompiled


def test_the_list_is_long_and_names_are_distinct() -> None:
    assert len({mutant.name for mutant in BROKEN_MANAGERS}) == len(BROKEN_MANAGERS) >= 65


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
