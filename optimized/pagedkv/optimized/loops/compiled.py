"""Compiling, where numba is installed; otherwise functions stay as they are."""

import atexit
import hashlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

numba: Any
try:
    import numba
except ImportError:
    numba = None

COMPLETE: Final = "complete"
"""A file in the folder of compiled code, once all of it is there."""
ROOM: Final = 2**23
"""Bytes that it takes, and more."""

Function = TypeVar("Function", bound=Callable[..., Any])

IS_COMPILED: Final = numba is not None and not numba.config.DISABLE_JIT
"""Whether `compiled` does anything. NUMBA_DISABLE_JIT=1 in the environment, which numba reads, turns it off."""

if numba is None:
    logging.getLogger("pagedkv").warning(
        'the block manager runs uncompiled, and is far slower: pip install "pagedkv[compiled]"'
    )


def cache_folder(sources: Path | None = None) -> Path | None:
    """Where compiled code of a package, this one unless told otherwise, is kept: beside its sources, or with the user's
    other caches; None if neither can be written. NUMBA_CACHE_DIR in the environment goes first. A place where
    everything is already goes before one that is empty, also if it can only be read.

    numba sees a function change with its own file, and does not see what it calls there change in others. So the
    folder is named after all of its sources. Where they are not at hand, nothing is kept.
    """
    here = sources or Path(__file__).parent
    if not (here / "__init__.py").is_file():
        return None
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(chosen)] if chosen else [here / "__pycache__"]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # as it stands if there is none
    if not chosen and not home.startswith("~"):
        places.append(Path(home, "pagedkv"))
    folders = [place / f"{here.name}-{sources_digest(here)}" for place in places]
    for folder in folders:
        if (folder / COMPLETE).is_file():
            found = folder if os.access(folder, os.W_OK) else copy_of(folder)
            if found is not None:
                return found
    return next(filter(has_room, folders), None)


def has_room(folder: Path) -> bool:
    """All compiled code can be written there: else numba fails where it writes, in the middle of an operation."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f"room-{os.getpid()}"
        probe.write_bytes(bytes(ROOM))
        probe.unlink()
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def complete(folder: Path) -> None:
    """Everything is there. Who may read the sources may read it, too, though numba keeps it for its owner."""
    allowed = Path(__file__).stat().st_mode & 0o444
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | allowed | (allowed >> 2 if path.is_dir() else 0))
    (folder / COMPLETE).touch()


def copy_of(folder: Path) -> Path | None:
    """A copy for this process alone, since numba wants to write where it reads."""
    try:
        own = Path(tempfile.mkdtemp(prefix="pagedkv-"))
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        shutil.copytree(folder, own / folder.name, copy_function=shutil.copyfile)
        for path in own.rglob("*"):
            path.chmod(0o700)
    except OSError:
        return None
    return own / folder.name


def sources_digest(folder: Path) -> str:
    """A name for the text of all modules in a folder, and for who compiles them."""
    compiler = f"{sys.version} {numba and numba.__version__} {os.environ.get('NUMBA_BOUNDSCHECK')}"
    text = hashlib.blake2b(compiler.encode(), digest_size=8)
    for path in sorted(folder.glob("*.py")):
        text.update(path.read_bytes())
    return text.hexdigest()


FOLDER: Final = cache_folder() if IS_COMPILED else None
"""The one of this process."""


def compiled(function: Function) -> Function:
    """The function, compiled at its first call for the types that it is called with; or from the cache of an earlier
    process. Without numba the function itself.

    It must not make arrays, only use them: then numba need not count who does, which costs ten times as much as the
    loops themselves.
    """
    return kept_in(FOLDER, function, _nrt=False, forceinline=True) if IS_COMPILED else function


def kept_in(folder: Path | None, function: Function, **options: Any) -> Function:
    """The function, compiled as numba's options say, and kept in a folder if there is one."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or "")  # numba reads it when a function is decorated
    try:
        result: Function = numba.njit(cache=folder is not None, **options)(function)
    finally:
        numba.config.CACHE_DIR = before
    return result


def inlined(function: Function) -> Function:
    """The same for a few lines that are called everywhere: they become part of each caller, which is faster to compile
    than a function for each kind of argument."""
    return numba.njit(_nrt=False, inline="always")(function) if IS_COMPILED else function
