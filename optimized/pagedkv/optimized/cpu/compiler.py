"""How the loops are compiled: they do not hold the interpreter's lock, make no arrays, and are kept on disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from pagedkv.optimized.loops.compiled import cache_folder, kept_in

FOLDER: Final = cache_folder(Path(__file__).parent)
"""Where this process keeps them."""

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function, compiled at its first call, or from the cache. A division by zero is not looked for."""
    return kept_in(FOLDER, function, _nrt=False, nogil=True, error_model="numpy")


def inlined(function: Function) -> Function:
    """The same, at the place of each call: for what would have more arguments than registers to pass them in."""
    return kept_in(FOLDER, function, _nrt=False, nogil=True, error_model="numpy", forceinline=True)
