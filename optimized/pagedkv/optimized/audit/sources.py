"""The sources that decide what a kernel of attention does: one short hash names them. (Those of the device pool lie in
a folder of their own: no figure is kept of them.)

A figure measured on a kernel (its error, its registers, its speed) belongs to these sources. Beside the figure stands
their hash, and another hash marks the figure as stale.
"""

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
BESIDE = ("attend_launches.py", "merge_launches.py", "move_launches.py", "cutting.py", "tuned.py", "tiles.csv")
"""Files of `pagedkv.optimized.attention` that choose what a kernel is compiled for; those that exist count."""
DIGITS = 12


def kernel_sources() -> list[Path]:
    """The Triton kernels and what prepares their launches, sorted by name."""
    beside = (PACKAGE / "attention" / name for name in BESIDE)
    found = [*(PACKAGE / "kernels").glob("*.py"), *(path for path in beside if path.exists())]
    return sorted(found, key=lambda path: path.relative_to(PACKAGE).as_posix())


def kernel_source_hash() -> str:
    """The first 12 hexadecimal digits of the SHA-256 of names and contents; line ends do not matter."""
    digest = hashlib.sha256()
    for path in kernel_sources():
        text = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.relative_to(PACKAGE).as_posix()} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:DIGITS]
