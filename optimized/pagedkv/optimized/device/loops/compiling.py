"""How these loops are compiled, see `pagedkv.optimized.loops.compiled`; and where they are kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from pagedkv.optimized.loops.compiled import IS_COMPILED, cache_folder, kept_in

FOLDER: Final = cache_folder(Path(__file__).parent) if IS_COMPILED else None
"""Of this process."""

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function, compiled at its first call, or from the cache; without numba the function itself."""
    return kept_in(FOLDER, function, _nrt=False, forceinline=True) if IS_COMPILED else function
