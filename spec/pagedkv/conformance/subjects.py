"""Subjects by name: the built-in ones, and anybody's as `module:factory`.

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


def subject(name: str) -> SubjectFactory:
    """The factory behind a built-in name or `module:factory`; an attribute of an attribute is written with a dot.

    >>> from pagedkv.spec import Config
    >>> subject("reference")(Config(num_blocks=2, block_size=4)).capabilities.fork
    True
    >>> subject("nobody")
    Traceback (most recent call last):
    ...
    pagedkv.spec.misuse.Misuse: subject='nobody' is not allowed: expected reference, optimized, device or module:factory
    """
    module_name, colon, attribute = BUILT_IN.get(name, name).partition(":")
    if not (module_name and colon and attribute):
        raise Misuse("subject", name, f"{', '.join(BUILT_IN)} or module:factory")
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
