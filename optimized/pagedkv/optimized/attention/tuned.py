"""How large the tiles of a kernel are, read from a table that people read too: `tiles.csv` beside this file.

A row says for which kernel, architecture, dtype, head_dim, group and block_size it holds; `*` is any. Of the rows that
fit a launch the one that names most of head_dim and group as they are, where that is not what they are rounded to, goes
first; of equals the one with the most columns named, and of equals the later. Nothing else decides: shapes and the
card, never what is in a batch, so that no bit depends on the batch.
"""

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

KEYS = ("kernel", "architecture", "dtype", "head_dim", "group", "block_size")
"""`architecture` as in `pagedkv.optimized.audit.targets.TARGETS`. `head_dim` is the larger of K and V. A row may name
it and `group` as they are, or rounded up to a power of two, a head_dim to at least 16, a group to 64 at most."""

MOST_OF_TABLE = 64
"""The largest group to which groups are rounded up; larger ones are cut like it, unless a row names them."""

REGISTERS = 65536
"""Of an NVIDIA multiprocessor, 32 bits each."""


@dataclass(frozen=True)
class Tiling:
    """How one kernel cuts its work."""

    tile: int
    """Positions that one step of the loop over keys takes."""
    rows: int
    """Query tokens times heads of a program, at the least: a power of two, and at least 16."""
    num_warps: int
    num_stages: int
    """Of Triton's pipeline. Looking up blocks takes every second one: n stages make max(1, (n - 1) // 2) buffers of K
    and of V each, and one more where operands of a product are read from there (wgmma)."""


@lru_cache(maxsize=1)
def table() -> tuple[dict[str, str], ...]:
    """The rows of `tiles.csv`."""
    text = resources.files(__package__).joinpath("tiles.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


@lru_cache(maxsize=4096)
def tiling(kernel: str, architecture: str, dtype: str, head_dim: int, group: int, block_size: int) -> Tiling:
    """The tiling of a launch. `KeyError` for a kernel without a row."""
    row = table()[deciding(kernel, architecture, dtype, head_dim, group, block_size)]
    return Tiling(*(int(row[name]) for name in ("tile", "rows", "num_warps", "num_stages")))


def deciding(kernel: str, architecture: str, dtype: str, head_dim: int, group: int, block_size: int) -> int:
    """Which row of the table decides a launch."""
    exact = dict(zip(KEYS, (kernel, architecture, dtype, head_dim, group, block_size), strict=True))
    rounded = exact | {"head_dim": max(16, power_of_two(head_dim)), "group": min(power_of_two(group), MOST_OF_TABLE)}
    wanted = {key: (str(exact[key]), str(rounded[key])) for key in KEYS}
    fitting = [
        (place, row)
        for place, row in enumerate(table())
        if all(row[key] in ("*", *names) for key, names in wanted.items())
    ]
    if not fitting:
        raise KeyError(f"tiles.csv has no row for {wanted}")

    def rank(entry: tuple[int, dict[str, str]]) -> tuple[int, int, int]:
        place, row = entry
        odd = sum(row[key] == name != other for key, (name, other) in wanted.items())
        return odd, sum(row[key] != "*" for key in KEYS), place

    return max(fitting, key=rank)[0]


def max_registers(architecture: str, num_warps: int, most: int = 255) -> dict[str, int]:
    """The option of a launch that allows a thread all the registers there are, or `most`.

    Without it NVIDIA's assembler sets a limit that lets more programs run at once, and spills a little to keep it.
    """
    return {"maxnreg": min(most, REGISTERS // (32 * num_warps))} if architecture.startswith("sm_") else {}


def power_of_two(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()
