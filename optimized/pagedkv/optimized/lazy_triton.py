"""Triton on demand: it exists for Linux only, and importing `pagedkv.optimized` must not need it."""

import importlib
import threading
from typing import Any, Final

TRITON_LOCK: Final = threading.RLock()
"""Interpreting, and compiling for another target, change globals of Triton: one at a time."""


def triton_module(name: str) -> Any:
    """The module `name` of Triton, which ships no types.

    Raises `ImportError` with the command that installs Triton where it is missing.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "triton":
            raise
        raise ImportError('the Triton kernels need Triton: pip install "pagedkv[gpu]"', name="triton") from error
