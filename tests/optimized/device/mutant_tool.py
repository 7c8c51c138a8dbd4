"""How kernels and loops of the device pool are broken by name; see `tests.conformance.mutants.mutation`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from pagedkv.optimized.device import launches, loops
from pagedkv.optimized.device.loops import compiling
from pagedkv.optimized.kernels import pool

from tests.conformance.mutants.mutation import Mutant, Replacement

DEVICE: Final = "pagedkv.optimized.device"
KERNELS: Final = pool.__name__
LOOPS: Final = loops.__name__
HERE: Final = {name: Path(str(import_module(name).__file__)).parent for name in (KERNELS, LOOPS)}


def modules(package: str, *, first: str) -> tuple[str, ...]:
    """All modules of a package by their full names, the one that the others import first."""
    names = sorted(path.stem for path in HERE[package].glob("*.py") if path.stem not in ("__init__", "compiling"))
    return tuple(f"{package}.{name}" for name in (first, *(name for name in names if name != first)))


class UncompiledMutant(Mutant):
    """A mutant whose loops are plain Python: compiling takes seconds, and a compiled caller has the intact code of what
    it calls inside. What is broken may also write past the end of an array, which plain Python notices."""

    def load(self) -> Any:
        """The broken `LoopOperations`."""
        with uncompiled():
            return super().load()


@contextmanager
def uncompiled() -> Iterator[None]:
    """In here the loops are imported anew, and nothing is compiled. Afterwards the old ones return."""
    names = modules(LOOPS, first="rows")
    old = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    before = dict(vars(loops))
    for name in old:
        delattr(loops, name.rpartition(".")[2])
    with patch.object(compiling, "IS_COMPILED", False):
        try:
            yield
        finally:
            for name in names:
                sys.modules.pop(name, None)
            sys.modules.update(old)
            vars(loops).update(before)


def kernel(file: str, name: str, law: str, *replacements: Replacement) -> Mutant:
    """A mutant of one file of the kernels. What is loaded is the module of launches."""
    on_top = modules(KERNELS, first="rows")[1:] if file == "rows" else ()
    return Mutant(name, law, f"{KERNELS}.{file}", replacements, (*on_top, launches.__name__))


def loop(file: str, name: str, law: str, *replacements: Replacement) -> Mutant:
    """A mutant of one file of the loops. What is loaded is `LoopOperations`."""
    on_top = modules(LOOPS, first="rows")[1:] if file == "rows" else ()
    dependents = (*on_top, f"{DEVICE}.on_the_cpu")
    return UncompiledMutant(name, law, f"{LOOPS}.{file}", replacements, dependents, "LoopOperations")
