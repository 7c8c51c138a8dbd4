"""What the user names on the command line: traces and subjects, and errors that say what would have been right."""

import importlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any

from pagedkv.conformance.subjects import subject as find_subject
from pagedkv.conformance.suite.run import capabilities_of
from pagedkv.spec import Misuse
from pagedkv.spec.misuse import shown
from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import Trace, load


class BadInput(Exception):
    """The command was called in a way that it cannot do; the text says what was wrong and what is allowed."""


def read_trace(path: str) -> Trace:
    """The trace in a file. Raises `TraceError` (file, line, what was expected) or `BadInput` (no such file)."""
    try:
        return load(path)
    except OSError as error:
        raise BadInput(f"trace {path!r} cannot be read: {error.strerror or error}") from error


def subject_factory(name: str, *, limit_s: float | None = None) -> SubjectFactory:
    """The factory behind a name of `conformance.subjects` (modules are found from the working directory, too).

    It is called once with a small configuration, so that what is no subject is known at once: `BadInput`, which names
    the subject.

    >>> from pagedkv.spec import Config
    >>> subject_factory("reference")(Config(num_blocks=2, block_size=4)).capabilities.fork
    True
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with aside():
            factory = find_subject(name, limit_s=limit_s)
            capabilities_of(name, factory)
    except Misuse as misuse:
        raise BadInput(str(misuse)) from misuse
    return factory


def named(name: str, option: str) -> Any:
    """The function behind `module:function`, found from the working directory, too. Raises `BadInput`."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise BadInput(f"{option} {name!r}: expected module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with aside():
            found: Any = getattr(importlib.import_module(module_name), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BadInput(f"{option} {name!r} cannot be imported: {shown(error)}") from error
    if not callable(found):
        raise BadInput(f"{option} {name!r}: expected a function, not a {type(found).__name__}")
    return found


@contextmanager
def aside() -> Iterator[None]:
    """What a subject prints goes to stderr: stdout is for the report."""
    with redirect_stdout(sys.stderr):
        yield


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
    """One JSON document on stdout."""
    print(json.dumps(plain(value), indent=2, allow_nan=False))


def plain(value: object) -> object:
    """A value as JSON has it: tuples are lists, and what JSON has no word for is written as its text.

    >>> plain({"rho": float("inf"), 1: (True, None)})
    {'rho': 'inf', '1': [True, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


def progress(text: str) -> None:
    """One line on stderr. Where that cannot be written to, nobody is told, and the work goes on."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
