"""What the user names on the command line: traces and subjects, and errors that say what would have been right."""

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from pagedkv.spec import Config
from pagedkv.spec.subject import BlockManagerSubject, SubjectFactory
from pagedkv.spec.trace import Trace, load

SUBJECTS: Final = {
    "reference": "pagedkv.reference.manager:BlockManager",
    "optimized": "pagedkv.optimized.subject:OptimizedSubject",
}
"""Built-in subjects: what each name stands for."""

EXTRAS: Final = {
    "torch": "torch",
    "triton": "gpu",
    "numba": "cpu",
    "hypothesis": "conformance",
    "pytest": "conformance",
}
"""Which extra brings a package."""

REQUIRED: Final = ("capabilities", "admit", "append", "commit", "free", "observe")
"""What every subject has."""


class BadInput(Exception):
    """The command was called in a way that it cannot do; the text says what was wrong and what is allowed."""


def read_trace(path: str) -> Trace:
    """The trace in a file. Raises `TraceError` (file, line, what was expected) or `BadInput` (no such file)."""
    try:
        return load(path)
    except OSError as error:
        raise BadInput(f"trace {path!r} cannot be read: {error.strerror or error}") from error


def subject_factory(name: str) -> SubjectFactory:
    """The factory behind a built-in name, or behind `module:factory` (found from the working directory, too).

    It is called once with a small configuration, so that what is no subject is known at once.

    >>> subject_factory("reference")(Config(num_blocks=2, block_size=4)).capabilities.fork
    True
    """
    factory = _find(SUBJECTS.get(name, name), name)
    try:
        subject = factory(Config(num_blocks=2, block_size=2))
    except ImportError:
        raise
    except Exception as error:
        raise BadInput(f"subject {name!r} cannot be made from Config(num_blocks=2, block_size=2): {error!r}") from error
    missing = [attribute for attribute in REQUIRED if not hasattr(subject, attribute)]
    if missing:
        raise BadInput(f"subject {name!r} makes {subject!r}, which has no {', '.join(missing)}")
    return factory


def _find(target: str, name: str) -> Callable[[Config], BlockManagerSubject]:
    module_name, colon, attribute = target.partition(":")
    if not (module_name and colon and attribute):
        raise BadInput(f"subject {name!r} is not known: expected one of {', '.join(SUBJECTS)}, or module:factory")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise BadInput(
                f"subject {name!r}: there is no module {error.name!r} here or among the installed"
            ) from error
        raise
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise BadInput(f"subject {name!r}: {module_name} has no {attribute!r}")
        found = getattr(found, part)
    if not callable(found):
        raise BadInput(f"subject {name!r}: {target} is not callable; expected a function or class that takes a Config")
    factory: Callable[[Config], BlockManagerSubject] = found
    return factory


def install_hint(error: ImportError) -> str:
    """What to install for a package that is missing."""
    if "pip install" in str(error):
        return str(error)
    package = (error.name or "").split(".")[0]
    if package not in EXTRAS:
        return f"{error}"
    return f'{package} is not installed: pip install "pagedkv[{EXTRAS[package]}]"'


def positive(text: str) -> int:
    """An integer >= 1, for argparse."""
    value = natural(text)
    if value < 1:
        raise ValueError
    return value


def natural(text: str) -> int:
    """An integer >= 0, for argparse."""
    value = int(text)
    if value < 0:
        raise ValueError
    return value


positive.__name__, natural.__name__ = "integer >= 1", "integer >= 0"  # argparse shows the name in its message


def print_json(value: object) -> None:
    """One JSON document on stdout. What JSON has no word for is written as its text."""
    print(json.dumps(value, indent=2, default=str, allow_nan=False))


def progress(text: str) -> None:
    """One line on stderr."""
    print(text, file=sys.stderr, flush=True)
