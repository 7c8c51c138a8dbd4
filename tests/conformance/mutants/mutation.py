"""Breaking a module on purpose, without touching its file: what a test suite does not notice, it does not test.

A mutant is a module compiled from altered source text under a private name. The original, and everybody who imported
it, go on as they were. Modules between the altered one and the one under test (its *dependents*) are loaded again
too, so that inside the mutant `from package.altered import thing` finds the altered `thing`.

>>> broken = mutated_module("pagedkv.spec.words", [("return -(-length // block_size)", "return length // block_size")])
>>> import pagedkv.spec.words as original
>>> broken.ceil_div(5, 4), original.ceil_div(5, 4)
(1, 2)
"""

import builtins
import importlib
import importlib.util
import itertools
import linecache
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeAlias

Replacement: TypeAlias = tuple[str, str]
"""(anchor, what stands in its place). The anchor occurs exactly once in the source."""

_numbers = itertools.count()


class MutationError(ValueError):
    """A mutant that does not apply: its anchor is gone or ambiguous, and so it would test nothing."""


@dataclass(frozen=True)
class Mutant:
    """A named way to break an implementation."""

    name: str
    breaks: str
    """The law that it breaks, in a few words."""
    module: str
    """The module to alter, by its full name."""
    replacements: tuple[Replacement, ...]
    dependents: tuple[str, ...] = ()
    """Modules to load again on top of it, in import order; the last one is the module under test."""
    attribute: str = ""
    """What to take from the module under test; empty: the module itself."""
    needs: frozenset[str] = frozenset()
    """Capabilities or configuration without which nothing can be seen of it, e.g. "swap"."""

    def load(self) -> Any:
        """The broken `attribute`, freshly made."""
        module = mutated_module(self.module, self.replacements, self.dependents)
        return getattr(module, self.attribute) if self.attribute else module


def mutated_module(module_name: str, replacements: Sequence[Replacement], dependents: Sequence[str] = ()) -> ModuleType:
    """A copy of a module with parts of its source replaced, or the last of `dependents` loaded on top of it.

    Raises `MutationError` unless each anchor occurs exactly once, in the text as the replacements before it left it.
    """
    number = next(_numbers)
    copies: dict[str, ModuleType] = {}
    copies[module_name] = _load(module_name, altered(module_name, replacements), number, copies)
    for dependent in dependents:
        copies[dependent] = _load(dependent, None, number, copies)
    return copies[dependents[-1] if dependents else module_name]


def altered(module_name: str, replacements: Sequence[Replacement]) -> str:
    """The source text of a module with the replacements made, one after another."""
    text = _source(module_name)
    for anchor, replacement in replacements:
        if text.count(anchor) != 1:
            raise MutationError(f"anchor occurs {text.count(anchor)} times, not once, in {module_name}: {anchor!r}")
        text = text.replace(anchor, replacement)
    return text


def _source(module_name: str) -> str:
    return _path(module_name).read_text(encoding="utf-8")


def _path(module_name: str) -> Path:
    spec = importlib.util.find_spec(module_name)
    if spec is None or spec.origin is None or not spec.has_location:
        raise MutationError(f"no source file for module {module_name!r}")
    return Path(spec.origin)


def _load(module_name: str, text: str | None, number: int, copies: Mapping[str, ModuleType]) -> ModuleType:
    """Run `text`, or a module's own text, as a module whose imports see `copies` instead of the originals."""
    private = f"{module_name}__mutant_{number}"
    module = ModuleType(private)
    module.__package__ = module_name.rpartition(".")[0]
    if text is None:
        filename = str(_path(module_name))
        code = _compiled(filename, _source(module_name))
    else:
        filename = f"<{private}>"
        code = compile(text, filename, "exec", dont_inherit=True)
        # What reads text back (inspect, tracebacks, kernel compilers) asks linecache; no mtime: it never expires.
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    module.__file__ = filename
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _importer(copies)}
    sys.modules[private] = module  # dataclasses looks its module up there
    exec(code, module.__dict__)
    return module


@cache
def _compiled(filename: str, text: str) -> CodeType:
    """The code of a module that is loaded again as it is: most of the time of loading a mutant, if made each time."""
    return compile(text, filename, "exec", dont_inherit=True)


def _importer(copies: Mapping[str, ModuleType]) -> Any:
    """`__import__`, except that it finds the copies."""

    def find(
        name: str,
        globals: Mapping[str, object] | None = None,  # the builtin's own name for it
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        package = str((globals or {}).get("__package__") or "")
        absolute = importlib.util.resolve_name("." * level + name, package) if level else name
        if not fromlist:
            if absolute in copies:
                raise MutationError(f"write `from ... import ...`: `import {absolute}` would find the original")
            return builtins.__import__(name, globals, locals, (), level)
        found = copies[absolute] if absolute in copies else importlib.import_module(absolute)
        submodules = {item: copies[f"{absolute}.{item}"] for item in fromlist if f"{absolute}.{item}" in copies}
        for item in fromlist:  # as the import statement does for submodules not imported yet
            if hasattr(found, "__path__") and item != "*" and item not in submodules and not hasattr(found, item):
                importlib.import_module(f"{absolute}.{item}")
        if submodules:  # `from package import altered`
            stand_in = ModuleType(absolute)
            stand_in.__dict__.update({**vars(found), **submodules})
            return stand_in
        return found

    return find
