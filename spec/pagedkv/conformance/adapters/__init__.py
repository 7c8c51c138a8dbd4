"""Subjects around block managers and kernels of other projects, so that they can be held against the specification.

Each module is one adapter, named after the project, and imports that project only when a subject is made. An adapter
calls what the project's own scheduler calls, in its order, and repairs nothing. What the scheduler decides before it
calls (is the request known, can it ever be served, is there a place for it) is in `scheduler`, once for all.
"""

import importlib
from typing import Any


def third_party(module: str, package: str) -> Any:
    """A module of somebody else's package, or an error that says what to install.

    >>> third_party("engine_that_nobody_has.pool", "engine-that-nobody-has==1.0")
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: this subject needs engine_that_nobody_has: pip install engine-that-nobody-has==1.0
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name != top:
            raise  # it is there, and something that it needs is not
        raise ModuleNotFoundError(f"this subject needs {top}: pip install {package}", name=top) from None
