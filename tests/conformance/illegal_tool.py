"""One way to break the reference manager, as a value."""

from typing import Final

from tests.conformance.mutants.mutation import Mutant, Replacement

_PACKAGE: Final = "pagedkv.reference"
_ORDER: Final = ("arguments", "index", "pool", "base", "residency", "growth", "prefixes", "manager")
"""In import order: what comes after a module may have taken something from it."""


def mutant(name: str, breaks: str, module: str, *replacements: Replacement, needs: str = "") -> Mutant:
    later = _ORDER[_ORDER.index(module) + 1 :]
    return Mutant(
        name,
        breaks,
        f"{_PACKAGE}.{module}",
        replacements,
        dependents=tuple(f"{_PACKAGE}.{dependent}" for dependent in later),
        attribute="BlockManager",
        needs=frozenset(needs.split()),
    )
