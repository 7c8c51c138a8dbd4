"""The configurations of the device pool that the audit compiles: all of them, and the few that have every pair.

What a kernel is compiled for follows from the pool and from the call that launches it. `KERNELS` says what of these
matters to which kernel, so that each configuration is a compilation of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor

from pagedkv.optimized.audit.pairwise import covering_on_targets
from pagedkv.optimized.audit.targets import TARGETS
from pagedkv.optimized.device.arguments import pool_shape
from pagedkv.optimized.device.launches import What, fork_launches, grow_launches, import_launches, release_launches
from pagedkv.optimized.device.state import PoolShape, PoolState, empty_state
from pagedkv.optimized.launch import Launch


class Call(NamedTuple):
    """What an operation is called with."""

    shape: PoolShape
    state: PoolState
    rows: Any
    """(num_asked,), or None: all in order."""
    numbers: Any
    """Another number for each row: a length, a count, a parent; None if the operation takes none."""
    where: Tensor | None
    target: str

    def grow(self, entering: bool, total: int | None = None) -> list[Launch]:
        """To admit or append."""
        return grow_launches(*self[:5], entering, total, self.target)[0]

    def fork(self) -> list[Launch]:
        """From rows that are numbers here."""
        return fork_launches(self.shape, self.state, self.numbers, self.rows, self.where, self.target)[0]

    def release(self, what: What, lengths: Tensor | None = None, computed: Tensor | None = None) -> list[Launch]:
        """To give blocks back."""
        return release_launches(self.shape, self.state, what, self.rows, self.where, lengths, computed, self.target)[0]

    def bring(self, num_holes: Tensor | None = None, owning: bool = False) -> list[Launch]:
        """To import tables as wide as the pool's."""
        tables = torch.zeros(len(self.numbers), self.shape.max_blocks, dtype=torch.int32)
        launches, _ = import_launches(
            self.shape, self.state, self.rows, tables, self.numbers, num_holes, self.where, owning, self.target
        )
        return launches


OPERATIONS: Final[Mapping[str, Callable[[Call], list[Launch]]]] = {
    "admit": lambda call: call.grow(entering=True),
    "append": lambda call: call.grow(entering=False, total=call.shape.num_rows),
    "append counts": lambda call: call.grow(entering=False),
    "fork": lambda call: call.fork(),
    "free": lambda call: call.release("free"),
    "hand_over": lambda call: call.release("hand over"),
    "truncate": lambda call: call.release("truncate", call.numbers),
    "truncate computed": lambda call: call.release("truncate", call.numbers, call.numbers),
    "window": lambda call: call.release("window"),
    "window computed": lambda call: call.release("window", None, call.numbers),
    "import": lambda call: call.bring(),
    "import holes": lambda call: call.bring(call.numbers),
    "import owning": lambda call: call.bring(call.numbers, owning=True),
}
"""What each launches; a second word names what may be given or not."""
WITHOUT_NUMBERS: Final = ("append", "free", "hand_over", "window")

Factors: TypeAlias = Mapping[str, Sequence[Any]]
CHUNKS: Final = (8, 256, 1024)
"""Rows of a call, and of the pool: how many a decision looks at together follows from them."""
NUM_ROWS: Final = (8, 256)
"""The same, where only that matters whether 16 divides them."""
ROWS: Final = ("int32", "int64", "all")
"""Their dtype; or all in order, for which there is no tensor."""
DTYPES: Final = ("int32", "int64")
EITHER: Final = (False, True)
WINDOW: Final = (0, 64)
SINKS: Final = (0, 1)
SIZES: Final = (1, 16, 24)
WIDTHS: Final = (1, 63, 256)
"""Entries of a table row: 1 is compiled in, 16 divides them or does not; how many a program looks at follows."""

GROWING: Final = ("admit", "append", "append counts")
IMPORTING: Final = ("import", "import holes", "import owning")
KERNELS: Final[Mapping[str, Factors]] = {
    "grow_decide": {
        "operation": GROWING, "asked": CHUNKS, "rows": ROWS, "numbers": DTYPES, "where": EITHER, "block_size": SIZES,
        "max_blocks": WIDTHS,
    },
    "grow_apply": {
        "operation": GROWING, "asked": NUM_ROWS, "rows": ROWS, "numbers": DTYPES, "block_size": SIZES,
        "max_blocks": WIDTHS,
    },
    "fork_decide": {"operation": ("fork",), "asked": CHUNKS, "rows": DTYPES, "numbers": DTYPES, "where": EITHER},
    "fork_apply": {
        "operation": ("fork",), "asked": NUM_ROWS, "rows": DTYPES, "numbers": DTYPES, "block_size": SIZES,
        "max_blocks": WIDTHS,
    },
    "release_decide": {
        "operation": ("free", "truncate", "truncate computed", "window", "window computed"), "asked": CHUNKS,
        "rows": ROWS, "numbers": DTYPES, "where": EITHER, "window": WINDOW, "sinks": SINKS, "block_size": SIZES,
    },
    "release_disown": {"operation": ("hand_over",), "rows": ROWS, "max_blocks": WIDTHS},
    "release_drop": {"operation": ("free", "window"), "rows": ROWS, "max_blocks": WIDTHS},
    "release_mark": {"operation": ("free", "window"), "rows": ROWS, "max_blocks": WIDTHS},
    "release_scan": {"operation": ("free",), "asked": CHUNKS},
    "release_push": {
        "operation": ("free", "truncate", "window"), "asked": NUM_ROWS, "rows": ROWS, "numbers": DTYPES,
        "sinks": SINKS, "max_blocks": WIDTHS,
    },
    "import_check": {
        "operation": IMPORTING, "numbers": DTYPES, "window": WINDOW, "sinks": SINKS,
        "block_size": SIZES, "max_blocks": WIDTHS,
    },
    "import_decide": {
        "operation": ("import",), "asked": CHUNKS, "rows": ROWS, "numbers": DTYPES, "where": EITHER,
        "block_size": SIZES,
    },
    "import_apply": {
        "operation": IMPORTING, "asked": NUM_ROWS, "rows": ROWS, "numbers": DTYPES, "sinks": SINKS,
        "block_size": SIZES, "max_blocks": WIDTHS,
    },
}  # fmt: skip
"""By the name of the launch the values of all that matters to the kernel. Of operations that launch the same, one."""


class Configuration(NamedTuple):
    """One way in which a kernel is compiled; None for what does not matter to it."""

    kernel: str
    operation: str
    """A key of `OPERATIONS`."""
    asked: int | None = None
    """Rows of the call, and of the pool."""
    rows: str | None = None
    """One of `ROWS`."""
    numbers: str | None = None
    """Their dtype."""
    where: bool | None = None
    """Whether it is given."""
    window: int | None = None
    sinks: int | None = None
    """Blocks."""
    block_size: int | None = None
    max_blocks: int | None = None

    def __str__(self) -> str:
        """
        >>> str(Configuration("grow_decide", "append", 256, "int64", None, True, None, None, 24, 63))
        'grow_decide append asked=256 rows=int64 where block_size=24 max_blocks=63'
        """
        told = (name if value is True else f"{name}={value}" for name, value in self._asdict().items() if value)
        return " ".join([self.kernel, self.operation, *list(told)[2:]])


DEMANDING: Final = (
    Configuration("grow_decide", "append counts", 1024, "int64", "int64", True, None, None, 24, 63),
    Configuration("grow_decide", "admit", 256, "int32", "int32", True, None, None, 24, 1),
    Configuration("release_decide", "truncate computed", 1024, "int64", "int64", True, 64, 1, 24),
)
"""What needs most registers, or has had too few. It is always compiled, for every target."""


def configurations() -> list[Configuration]:
    """All of them: every kernel with every combination of its factors."""
    found = []
    for kernel, factors in KERNELS.items():
        for values in product(*factors.values()):
            found.append(_sensible(Configuration(kernel, **dict(zip(factors, values, strict=True)))))
    return list(dict.fromkeys(found))


def _sensible(configuration: Configuration) -> Configuration:
    """Without numbers that the operation does not take, and without sinks where there is no window."""
    if configuration.operation in WITHOUT_NUMBERS:
        configuration = configuration._replace(numbers=None)
    return configuration._replace(sinks=0) if configuration.sinks and configuration.window == 0 else configuration


@lru_cache(maxsize=1)
def pairwise() -> tuple[tuple[str, Configuration], ...]:
    """Few targets and configurations that have every pair of values that all of them have, and the demanding ones."""
    return covering_on_targets(configurations(), [(target, each) for target in TARGETS for each in DEMANDING])


def launch_for(configuration: Configuration, target: str) -> Launch:
    """The launch of a configuration on a target: tensors on the CPU, for their types and shapes only."""
    launches = launches_of(configuration, target)
    launch = next(each for each in launches if each.name == configuration.kernel)
    return replace(launch, configuration=str(configuration))


def launches_of(call: Configuration, target: str, fill: Sequence[int] = (0,)) -> list[Launch]:
    """What the call launches, in order, whatever its kernel; its tensors hold these numbers, over and over."""
    asked, block_size, sinks = 8 if call.asked is None else call.asked, call.block_size or 16, call.sinks or 0
    num_rows, window = max(1, asked), 64 if call.window or sinks else None
    shape = pool_shape(
        8 * num_rows, block_size, num_rows, call.max_blocks or 16, window, sinks * block_size, 0, leased=False
    )
    held = torch.tensor(fill).repeat(asked + 1)[: asked + 1]
    rows = None if call.rows == "all" else held[1:].to(getattr(torch, call.rows or "int64"))
    numbers = None if call.operation in WITHOUT_NUMBERS else held[:-1].to(getattr(torch, call.numbers or "int64"))
    where = held[1:] > 0 if call.where else None
    return OPERATIONS[call.operation](Call(shape, empty_state(shape, held.device), rows, numbers, where, target))
