"""Subjects by name: the built-in ones, anybody's as `module:factory`, and those in a process of their own.

They are imported when they are asked for, so that the kit itself depends on no implementation.
"""

import importlib
from collections.abc import Mapping
from typing import Any, Final

from pagedkv.spec import Misuse
from pagedkv.spec.subject import SubjectFactory

BUILT_IN: Final[Mapping[str, str]] = {
    "reference": "pagedkv.reference.manager:BlockManager",
    "optimized": "pagedkv.optimized.subject:OptimizedSubject",
    "device": "pagedkv.optimized.device.subject:DeviceSubject",
}
"""What each name stands for."""
FORMS: Final = f"{', '.join(BUILT_IN)}, module:factory, process: before one of these, or command: before a program"


def subject(name: str, *, limit_s: float | None = None) -> SubjectFactory:
    """The factory behind a name; an attribute of an attribute is written with a dot.

    * `reference`, `optimized`, `device`, and `module:factory`: in this process.
    * `process:optimized`, `process:module:factory`: in a Python process of its own.
    * `command:./my_subject --flag`: a program that speaks the protocol (`docs/protocol.md`).

    `limit_s`: seconds that an operation may take, 10 if not given. Only what runs in a process of its own has a limit.

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
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it imports is not
        raise Misuse("subject", name, f"a module that can be imported; there is no {error.name}") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise Misuse("subject", name, f"a function or class in {module_name} that makes a subject from a Config")
    factory: SubjectFactory = found
    return factory


def _remote(kind: str, rest: str, limit_s: float | None) -> SubjectFactory:
    from pagedkv.conformance.process import remote  # noqa: PLC0415  # needs a POSIX system

    if kind == "command":
        return remote.command(rest, limit_s=limit_s)
    if rest not in BUILT_IN and not all(rest.partition(":")):
        raise Misuse("subject", f"process:{rest}", FORMS)
    return remote.python(rest, limit_s=limit_s)
