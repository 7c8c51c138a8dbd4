"""Everything that determines what a manager will do, as a value: two managers with equal images have one future.

The image is taken of every attribute of every part, so that nothing can be left out by oversight: what means nothing
is named here, and a new attribute is in the image until it is named. Content that means nothing is that past the end
of a stack, a queue or a row, and in rows and paths that are out of use.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.paths import NOTHING
from pagedkv.optimized.plan import StepPlan
from pagedkv.optimized.rows import ABSENT
from pagedkv.optimized.state import ManagerState

Image: TypeAlias = dict[str, object]

OTHER_PARTS: Final = frozenset({"config", "journal", "windows", "whole_prefix", "events", "paths", "index", "pool",
                                "rows", "buffers", "_journal", "_events", "_index", "_hash",
                                "_idle_queue", "_held_queue"})  # fmt: skip
"""Attributes that are parts themselves, or never change."""

SCRATCH: Final = frozenset({"rows.scratch", "pool._scratch"})
"""Content that means nothing; there must be room enough."""


def parts_of(state: ManagerState) -> dict[str, object]:
    """What the attributes hang on. The queues are read through the pool, which knows what is in them."""
    return {
        "state": state,
        "rows": state.rows,
        "paths": state.paths,
        "index": state.index,
        "pool": state.pool,
        "events": state.events,
    }


def image(manager: BlockManager) -> Image:
    """The image of a manager: a value for each attribute. Shares nothing with it that could change."""
    state = manager._state
    seen: Image = {}
    use = InUse.of(state)
    for part, owner in parts_of(state).items():
        for name, value in vars(owner).items():
            key = f"{part}.{name}"
            if name in OTHER_PARTS and not isinstance(value, (int, np.ndarray, dict, list)):
                continue
            read: Reader = CANONICAL.get(key, _of_known_rows if part == "rows" else _whole)
            seen[key] = read(use, value)
    for name in ("idle", "held"):
        queue = getattr(state.pool, f"_{name}_queue")
        seen[f"pool._{name}_queue"] = len(queue._order), getattr(state.pool, f"{name}_blocks")().tolist()
    return seen


def differences(one: Image, other: Image) -> list[str]:
    """The attributes in which two images differ."""
    return sorted(key for key in one.keys() | other.keys() if key not in one or key not in other or
                  one[key] != other[key])  # fmt: skip


def frozen(value: object) -> object:
    """A value that stays as it is: arrays as bytes."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, dict):
        return {key: frozen(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(frozen(each) for each in value)
    return value


class InUse(NamedTuple):
    """What of a state is somebody's."""

    state: ManagerState
    rows: NDArray[np.intp]
    nodes: NDArray[np.intp]
    spelled: NDArray[np.intp]
    """Paths that have tokens, which empty ones have not."""

    @classmethod
    def of(cls, state: ManagerState) -> "InUse":
        nodes = np.array(state.paths.nodes(), np.intp)
        return cls(
            state, np.flatnonzero(state.rows.state != ABSENT), nodes, nodes[state.paths.parent[nodes] != NOTHING]
        )


Reader: TypeAlias = Callable[[InUse, Any], object]
"""Reads the value of one attribute."""


def _spans(use: InUse, rectangle: Any, line: str) -> object:
    """Of each row as much of (..., num_rows, width) as is in use."""
    used = getattr(use.state.rows, line)
    return rectangle.shape, {row: rectangle[..., row, : used[row]].tobytes() for row in use.rows.tolist()}


def _whole(use: InUse, value: object) -> object:
    return frozen(value)


def _of_known_rows(use: InUse, numbers: Any) -> object:
    """Numbers of the rows, or a list of such; what else there is in whole."""
    if isinstance(numbers, list):
        return [_of_known_rows(use, each) for each in numbers]
    if not isinstance(numbers, np.ndarray):
        return frozen(numbers)
    return numbers.shape, numbers[..., use.rows].tobytes()


def _of_paths(use: InUse, array: Any) -> object:
    """An array over nodes."""
    return array.shape, array[use.nodes].tobytes()


def _stack(part: str, count: str) -> Reader:
    """A stack, up to its end."""

    def canonical(use: InUse, stack: Any) -> object:
        return len(stack), stack[: vars(parts_of(use.state)[part])[count]].tobytes()

    return canonical


CANONICAL: Final[dict[str, Reader]] = {
    "rows.tables": lambda use, tables: _spans(use, tables, "blocks"),
    "rows.tokens": lambda use, tokens: _spans(use, tokens, "length"),
    "rows.state": lambda use, states: states.tobytes(),
    "rows.dirty": lambda use, dirty: tuple(dirty.items()),  # the order of the next plan's updates
    "rows.info": lambda use, info: [known and (*known[:-1], frozen(known.saved)) for known in info],
    "rows._unused": _stack("rows", "_num_unused"),
    **{f"paths.{name}": _of_paths for name in ("parent", "first_child", "users")},
    "paths.tokens": lambda use, tokens: (tokens.shape, tokens[use.spelled].tobytes()),
    "paths._unused": _stack("paths", "_num_unused"),
    "pool._free": _stack("pool", "_num_free"),
    "pool.steps": lambda use, steps: tuple(steps.items()),  # in order: the first is the oldest
    "state.swap_free": _stack("state", "num_swap_free"),
    "events._events": lambda use, events: tuple(events[: use.state.events._count]),
    **{name: lambda use, scratch: len(scratch) for name in SCRATCH},
}
"""How to read what means something only in part."""


def answer(manager: BlockManager, result: object) -> object:
    """What an operation returned, as a value; of a plan what it promises, right after the operation."""
    if not isinstance(result, StepPlan):
        return result
    blocks = manager._state.rows.blocks[result.rows].tolist()
    groups = [
        (
            [group.block_tables[i, :count].tolist() for i, count in enumerate(blocks)],
            group.slot_mapping.tolist(),
            group.copies.tolist(),
            group.copy_rows.tolist(),
            group.update_blocks.tolist(),
        )
        for group in result.groups
    ]
    names = ("rows", "seq_lens", "slot_counts", "refused", "update_rows", "update_columns")
    return groups, result.reasons, [getattr(result, name).tolist() for name in names]
