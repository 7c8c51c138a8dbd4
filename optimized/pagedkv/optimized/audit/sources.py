"""The sources that decide what a kernel does: a short hash names those of attention, another one those of all kernels.

A figure measured on a kernel (its error, its registers, its speed) belongs to these sources. Beside the figure stands
their hash, and another hash marks the figure as stale. Errors and speeds are kept of attention alone; what the compiler
makes of a kernel, of the device pool's as well.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
ATTENTION = ("attend_launches.py", "merge_launches.py", "move_launches.py", "cutting.py", "tuned.py", "tiles.csv")
"""Files of `pagedkv.optimized.attention` that choose what a kernel is compiled for; those that exist count."""
POOL = ("launches.py", "outcomes.py", "state.py")
"""Files of `pagedkv.optimized.device` that do so, or have numbers that are compiled in."""
DIGITS = 12


def kernel_sources() -> list[Path]:
    """The Triton kernels of attention and what prepares their launches, sorted by name."""
    beside = (PACKAGE / "attention" / name for name in ATTENTION)
    return _by_name([*(PACKAGE / "kernels").glob("*.py"), *(path for path in beside if path.exists())])


def audited_sources() -> list[Path]:
    """These, and the same of the device pool: what `pagedkv audit` compiles."""
    of_pool = [*(PACKAGE / "kernels" / "pool").glob("*.py"), *(PACKAGE / "device" / name for name in POOL)]
    return _by_name([*kernel_sources(), *of_pool])


def kernel_source_hash() -> str:
    """The first 12 hexadecimal digits of the SHA-256 of names and contents of `kernel_sources`; line ends do not
    matter."""
    return _hash(kernel_sources())


def audited_source_hash() -> str:
    """The same of `audited_sources`."""
    return _hash(audited_sources())


def _by_name(paths: Sequence[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.relative_to(PACKAGE).as_posix())


def _hash(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        text = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.relative_to(PACKAGE).as_posix()} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:DIGITS]
