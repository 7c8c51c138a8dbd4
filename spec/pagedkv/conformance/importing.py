"""What a name in a command or a file stands for, imported when it is asked for, and what is wrong with it if it is no
subject or cannot be imported. So the kit itself depends on no implementation."""

import importlib
from collections.abc import Mapping
from typing import Any, Final

from pagedkv.conformance.differential.violation import message_of, own_frame
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
"""What every block manager has."""
FORMS: Final = f"{', '.join(BUILT_IN)}, or module:factory"


def imported(name: str, forms: str = FORMS) -> SubjectFactory:
    """The factory behind a name, in this process; an attribute of an attribute is written with a dot.

    `forms` are those that a name may have, for the `Misuse` that it raises, and nothing else: a module that raises
    while it is imported is told with what it raised, and where.

    >>> from pagedkv.spec import Config
    >>> imported("reference")(Config(num_blocks=2, block_size=4)).capabilities.fork
    True
    """
    module_name, colon, attribute = BUILT_IN.get(name, name).partition(":")
    if not (module_name and colon and attribute):
        raise Misuse("subject", name, forms)
    parts = f"{module_name}.{attribute}".split(".")
    if not all(part.isidentifier() for part in parts) or module_name.endswith(".py"):
        raise Misuse(
            "subject", name, "module:factory, both as in an import: words with dots between, no path and no .py"
        )
    found = _found(name, module_name, attribute)
    if not callable(found):
        wrong = f"there is no {attribute}" if found is None else f"{attribute} is of type {type(found).__name__}"
        raise Misuse("subject", name, f"a function or class in {module_name} that makes a subject; {wrong}")
    factory: SubjectFactory = found
    return factory


def _found(name: str, module_name: str, attribute: str) -> Any:
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


def no_subject(made: Any) -> str:
    """What is wrong with what a factory made; empty if it is a subject. Raises what `made` raises.

    >>> no_subject(3)
    'the int that it made has no capabilities, admit, append, commit, free, observe'
    """
    it = f"the {type(made).__name__} that it made"
    if missing := [attribute for attribute in REQUIRED if not hasattr(made, attribute)]:
        return f"{it} has no {', '.join(missing)}"
    declared = made.capabilities
    if not isinstance(declared, Capabilities):
        return f"{it} declares capabilities of type {type(declared).__name__}, not Capabilities"
    undone = [kind for kind in NEEDS if allows(declared, kind) and not hasattr(made, kind)]
    return f"{it} has no {undone[0]}, but declares {' or '.join(NEEDS[undone[0]].split())}" if undone else ""


def _place(error: BaseException) -> str:
    """Where it was raised, unless that is nowhere but here."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}, line {error.lineno})"
    frame = own_frame(error)
    return f" ({frame.filename}, line {frame.lineno})" if frame and not frame.filename.startswith("<") else ""


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
