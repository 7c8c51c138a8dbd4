"""One way to break the optimized manager, as a value."""

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from pagedkv.optimized import subject
from pagedkv.optimized.loops import compiled

from tests.conformance.mutants.mutation import Mutant, Replacement

_PACKAGE: Final = "pagedkv.optimized"
_SUBJECT: Final = "subject"
_FOLDER: Final = Path(subject.__file__).parent


class UncompiledMutant(Mutant):
    """A mutant whose loops are plain Python. Compiled, a caller has the code of what it calls inside, and code that is
    kept goes by the text on disk, which a mutant leaves alone; and what is broken may write past the end of an array,
    which compiled code does not notice."""

    def load(self) -> Any:
        """The broken subject, freshly made."""
        with uncompiled():
            return super().load()


def mutant(name: str, breaks: str, module: str, *replacements: Replacement) -> Mutant:
    """An `OptimizedSubject` with one module altered, which is named as in `pagedkv.optimized`: "loops.rows", say."""
    later = tuple(f"{_PACKAGE}.{dependent}" for dependent in dependents_of(module))
    return UncompiledMutant(name, breaks, f"{_PACKAGE}.{module}", replacements, later, attribute="OptimizedSubject")


@contextmanager
def uncompiled() -> Iterator[None]:
    """In here the modules of the subject are imported anew, and nothing is compiled. Afterwards the old ones return."""
    names = [f"{_PACKAGE}.{module}" for module in imports() if module != "loops.compiled"]
    old = {name: sys.modules.pop(name) for name in names}
    with patch.object(compiled, "IS_COMPILED", False):
        try:
            for name in names:
                package, _, module = name.rpartition(".")
                delattr(sys.modules[package], module)
            yield
        finally:
            sys.modules.update(old)
            for name in names:
                package, _, module = name.rpartition(".")
                setattr(sys.modules[package], module, old[name])


@cache
def dependents_of(module: str) -> tuple[str, ...]:
    """What of the subject imports this module, directly or not, in import order: the subject comes last."""
    found = {module}
    for other, imported in imports().items():
        if found & set(imported):
            found.add(other)
    assert _SUBJECT in found, f"the subject has no module {module}"
    return tuple(other for other in imports() if other in found - {module})


@cache
def imports() -> dict[str, tuple[str, ...]]:
    """The modules that the subject consists of, in import order, and what each imports of them."""
    found: dict[str, tuple[str, ...]] = {}
    more = [_SUBJECT]
    while more:
        module = more.pop()
        if module not in found:
            found[module] = tuple(_imported_by(module))
            more += found[module]
    return {module: found[module] for module in TopologicalSorter(found).static_order()}


def _imported_by(module: str) -> Iterator[str]:
    """The modules of the package that this one imports as it is loaded."""
    for node in ast.parse(_file(module).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{_PACKAGE}."):
            base = str(node.module).removeprefix(_PACKAGE).removeprefix(".")
            within = [f"{base}.{alias.name}".removeprefix(".") for alias in node.names]
            yield from (name for name in [base, *within] if _file(name).is_file())


def _file(module: str) -> Path:
    return _FOLDER.joinpath(*module.split(".")).with_suffix(".py")
