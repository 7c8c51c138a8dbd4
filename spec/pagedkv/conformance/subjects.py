"""Subjects by name: the built-in ones, anybody's as `module:factory`, and those in a process of their own.

They are imported when they are asked for, so that the kit itself depends on no implementation.
"""

import importlib
import traceback
from collections.abc import Mapping
from typing import Any, Final

from pagedkv.conformance.differential.violation import message_of
from pagedkv.conformance.programs.plans import NEEDS, allows
from pagedkv.spec import Misuse
from pagedkv.spec.subject import Capabilities, SubjectFactory

BUILT_IN: Final[Mapping[str, str]] = {
    "reference": "pagedkv.reference.manager:BlockManager",
    "optimized": "pagedkv.optimized.subject:OptimizedSubject",
    "device": "pagedkv.optimized.device.subject:DeviceSubject",
}
"""What each name stands for."""
REQUIRED: Final = ("capabilities", "admit", "append", "commit", "free", "observe")
"""What every subject has."""
FORMS: Final = f"{', '.join(BUILT_IN)}, module:factory, process: before one of these, or command: before a program"


def subject(name: str, *, limit_s: float | None = None) -> SubjectFactory:
    """The factory behind a name; an attribute of an attribute is written with a dot.

    * `reference`, `optimized`, `device`, and `module:factory`: in this process.
    * `process:optimized`, `process:module:factory`: in a Python process of its own.
    * `command:./my_subject --flag`: a program that speaks the protocol (`docs/protocol.md`).

    `limit_s`: seconds that an operation may take in a process of its own, 10 if not given; in this one it has those of
    `in_time`.
    Raises `Misuse`, and nothing else: a module that raises while it is imported is told with what it raised, and where.

    >>> from pagedkv.spec import Config
    >>> subject("reference")(Config(num_blocks=2, block_size=4)).capabilities.fork
    True
    >>> subject("nobody")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    pagedkv.spec.misuse.Misuse: subject='nobody' is not allowed: expected reference, optimized, device, ...
    """
    kind, _, rest = name.partition(":")
    if kind in ("process", "command"):
        return _remote(kind, rest, limit_s)
    if limit_s is not None:
        raise Misuse("limit_s", limit_s, f"a subject in a process of its own, which {name} is not: process:{name}")
    module_name, colon, attribute = BUILT_IN.get(name, name).partition(":")
    if not (module_name and colon and attribute):
        raise Misuse("subject", name, FORMS)
    parts = f"{module_name}.{attribute}".split(".")
    if not all(part.isidentifier() for part in parts) or module_name.endswith(".py"):
        raise Misuse(
            "subject", name, "module:factory, both as in an import: words with dots between, no path and no .py"
        )
    found = _imported(name, module_name, attribute)
    if not callable(found):
        wrong = f"there is no {attribute}" if found is None else f"{attribute} is of type {type(found).__name__}"
        raise Misuse("subject", name, f"a function or class in {module_name} that makes a subject; {wrong}")
    factory: SubjectFactory = found
    return factory


def _imported(name: str, module_name: str, attribute: str) -> Any:
    """What stands there, None if nothing does. An error in somebody's module is theirs to see, in one line."""
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part, None)
        return found
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            told = f"there is no {error.name}: install it, or go to the folder that has it"
        elif isinstance(error, ImportError):
            told = install_hint(error) + _place(error)
        else:
            said = error.msg if isinstance(error, SyntaxError) else message_of(error)
            told = f"{type(error).__name__}: {said}{_place(error)}"
        raise Misuse("subject", name, f"a module that can be imported; {' '.join(told.split())}") from error


def no_subject(made: object) -> str:
    """What is wrong with what a factory made; empty if it is a subject. Raises what `made` raises.

    >>> no_subject(3)
    'the int that it made has no capabilities, admit, append, commit, free, observe'
    """
    it = f"the {type(made).__name__} that it made"
    if missing := [attribute for attribute in REQUIRED if not hasattr(made, attribute)]:
        return f"{it} has no {', '.join(missing)}"
    declared: Any = made.capabilities  # type: ignore[attr-defined]  # it has one
    if not isinstance(declared, Capabilities):
        return f"{it} declares capabilities of type {type(declared).__name__}, not Capabilities"
    undone = [kind for kind in NEEDS if allows(declared, kind) and not hasattr(made, kind)]
    return f"{it} has no {undone[0]}, but declares {' or '.join(NEEDS[undone[0]].split())}" if undone else ""


def _place(error: BaseException) -> str:
    """Where it was raised, unless that is nowhere but here."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames[1:] else ""


EXTRAS: Final[Mapping[str, str]] = {
    "torch": "torch",
    "triton": "gpu",
    "numba": "cpu",
    "hypothesis": "conformance",
    "pytest": "conformance",
}
"""Which extra brings a package."""


def install_hint(error: ImportError, extra: str = "") -> str:
    """What to install for a package that is missing: `extra`, or else the one that brings it.

    >>> install_hint(ModuleNotFoundError("No module named 'numba'", name="numba"))
    'numba is not installed: pip install "pagedkv[cpu]"'
    """
    package = (error.name or "").split(".")[0]
    extra = extra or EXTRAS.get(package, "")
    if "pip install" in str(error) or not (package and extra):
        return str(error)
    return f'{package} is not installed: pip install "pagedkv[{extra}]"'


def _remote(kind: str, rest: str, limit_s: float | None) -> SubjectFactory:
    try:
        from pagedkv.conformance.process import remote  # noqa: PLC0415  # needs a POSIX system
    except ImportError as error:
        raise Misuse("subject", f"{kind}:{rest}", f"a POSIX system for a process of its own ({error})") from error
    if kind == "command":
        return remote.command(rest, limit_s=limit_s)
    if rest not in BUILT_IN and not all(rest.partition(":")):
        raise Misuse("subject", f"process:{rest}", FORMS)
    return remote.python(rest, limit_s=limit_s)
