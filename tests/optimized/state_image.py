"""Everything that determines what a manager will do, as a value: two managers with equal images have one future.

The image is taken of every attribute of every part, every array of the memory and every counter, so that nothing can
be left out by oversight: what means nothing is named here, and what is new is in the image until it is named. Content
that means nothing is that past the end of a stack or a row, in rows and paths that are out of use, the neighbours of
blocks that are in no chain, and what serves one operation only.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pagedkv.optimized.loops import memory as words
from pagedkv.optimized.loops.memory import (
    BEFORE, BLOCKS, DIRTY_STACK, FIRST_CHILD, GONE, HELD, HOLES, IDLE, LENGTH, LOGGED, NEWEST_HELD, NEWEST_IDLE, NEXT,
    NEXT_FREE, NODE_STACK, NOTHING, NUM_DIRTY, NUM_FREE, NUM_NODES_UNUSED, NUM_ROWS_UNUSED, NUM_SWAP_FREE, OLDEST_HELD,
    OLDEST_IDLE, PARENT, PLACE, ROOM, ROW_STACK, STATE, USERS, WINDOWS, Memory,
)  # fmt: skip
from pagedkv.optimized.manager import BlockManager
from pagedkv.optimized.plan import StepPlan
from pagedkv.optimized.rows import ABSENT
from pagedkv.optimized.state import ManagerState

Image: TypeAlias = dict[str, object]
Mask: TypeAlias = NDArray[np.bool_]

OTHER_PARTS: Final = frozenset({"config", "journal", "windows", "events", "paths", "index", "pool", "rows", "buffers",
                                "_journal", "_events", "_index", "_hash"})  # fmt: skip
"""Attributes that are parts themselves, or never change; if they are not `PLAIN`."""
PLAIN: Final = (int, np.ndarray, dict, list, tuple)

PASSING: Final = frozenset({"journal.open", "journal.notes", "journal._before", "journal._lines", "memory.log"})
"""What means nothing between two operations."""
PASSING_COUNTERS: Final = frozenset({LOGGED, GONE})
CHAINS: Final[dict[str, tuple[str, int, int, int]]] = {
    "free": ("blocks", NUM_FREE, NEXT_FREE, NEXT),
    "idle": ("blocks", IDLE, OLDEST_IDLE, NEXT),
    "idle backwards": ("blocks", IDLE, NEWEST_IDLE, BEFORE),
    "held": ("holds", HELD, OLDEST_HELD, NEXT),
    "held backwards": ("holds", HELD, NEWEST_HELD, BEFORE),
}
"""The array in which a chain lies, the counters of its length and of its first block, and the column of the next."""

_NAMES: Final = list(vars(words))
COUNTER_NAMES: Final = _NAMES[_NAMES.index("LOGGED") :][:WINDOWS]
"""They are defined in order. What follows them are numbers of the windows."""


def parts_of(state: ManagerState) -> dict[str, object]:
    """What the attributes hang on."""
    return {
        "state": state,
        "rows": state.rows,
        "paths": state.paths,
        "index": state.index,
        "pool": state.pool,
        "events": state.events,
        "journal": state.journal,
    }


def image(manager: BlockManager) -> Image:
    """The image of a manager: a value for each attribute. Shares nothing with it that could change."""
    state = manager._own_state()  # as whoever comes next: what was cut off while it was taken back, that finishes
    memory = state.journal.memory
    seen: Image = {}
    for part, owner in parts_of(state).items():
        for name, value in vars(owner).items():
            key = f"{part}.{name}"
            is_part = key == "journal.memory" or (name in OTHER_PARTS and not isinstance(value, PLAIN))
            if not is_part and key not in PASSING:
                seen[key] = CANONICAL.get(key, _whole)(state, value)
    use = InUse.of(memory)
    for name, array in memory._asdict().items():
        if f"memory.{name}" not in PASSING:
            seen[f"memory.{name}"] = meaning(array, MEANINGLESS[name](use) if name in MEANINGLESS else None)
    return seen | chained(memory) | counted(memory)


def chained(memory: Memory) -> Image:
    """The blocks of each chain, in order."""
    seen: Image = {}
    for name, (field, length, first, column) in CHAINS.items():
        following = getattr(memory, field)[:, column].tolist()
        block, blocks = int(memory.counters[first]), list[int]()
        while len(blocks) < memory.counters[length] and 0 <= block < len(following):
            blocks.append(block)
            block = following[block]
        seen[f"chains.{name}"] = blocks
    return seen


def counted(memory: Memory) -> Image:
    """Each counter by its name. Where a chain begins means nothing if it has no blocks."""
    counters, seen = memory.counters, dict[str, object]()
    lengths = {first: length for _, length, first, _ in CHAINS.values()}
    for number, value in enumerate(counters.tolist()):
        name = COUNTER_NAMES[number] if number < len(COUNTER_NAMES) else number
        if number not in PASSING_COUNTERS:
            seen[f"counters.{name}"] = value if counters[lengths.get(number, number)] or number not in lengths else None
    return seen


def meaning(array: NDArray[Any], meaningless: Mask | None) -> object:
    """An array as a value, without what means nothing."""
    if meaningless is not None:
        array = np.where(meaningless, array.dtype.type(0), array)
    return frozen(array)


def differences(one: Image, other: Image) -> list[str]:
    """The attributes in which two images differ."""
    return sorted(key for key in one.keys() | other.keys() if key not in one or key not in other or
                  one[key] != other[key])  # fmt: skip


def frozen(value: object) -> object:
    """A value that stays as it is: arrays as bytes, numbers of any kind as such."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, dict):
        return {frozen(key): frozen(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(frozen(each) for each in value)
    return int(value) if isinstance(value, np.integer) else value


class InUse(NamedTuple):
    """What of a memory is somebody's."""

    memory: Memory
    rows: Mask
    """(num_rows,)"""
    nodes: Mask
    """(max_nodes,)"""

    @classmethod
    def of(cls, memory: Memory) -> "InUse":
        unused = memory.links[: memory.counters[NUM_NODES_UNUSED], NODE_STACK]
        return cls(memory, memory.numbers[STATE] != ABSENT, ~np.isin(np.arange(len(memory.links)), unused))

    def past(self, counter: int, size: int) -> Mask:
        """What of a stack lies past its end."""
        wrong: Mask = np.arange(size) >= self.memory.counters[counter]
        return wrong


def _of_numbers(use: InUse) -> Mask:
    """The state and the mark of what is dirty mean something of every row: the next one to get it finds them."""
    wrong: Mask = np.zeros(use.memory.numbers.shape, np.bool_)
    wrong[LENGTH : ROOM + 1, ~use.rows] = wrong[HOLES:, ~use.rows] = wrong[PLACE] = True
    wrong[DIRTY_STACK] = use.past(NUM_DIRTY, wrong.shape[1])
    wrong[ROW_STACK] = use.past(NUM_ROWS_UNUSED, wrong.shape[1])
    return wrong


def _of_rows(use: InUse, width: int, line: int) -> Mask:
    """(num_rows, width): past the end of each row, which that line of the numbers says."""
    end = np.where(use.rows, use.memory.numbers[line], 0)
    return np.arange(width) >= end[:, None]


def _of_links(use: InUse) -> Mask:
    """Who holds a path is known of all nodes: the next path in its place finds it."""
    wrong: Mask = np.zeros(use.memory.links.shape, np.bool_)
    wrong[:, [PARENT, FIRST_CHILD, USERS]] = ~use.nodes[:, None]
    wrong[:, NODE_STACK] = use.past(NUM_NODES_UNUSED, len(wrong))
    return wrong


def _neighbours(array: NDArray[Any]) -> Mask:
    """They are read as chains."""
    wrong: Mask = np.zeros(array.shape, np.bool_)
    wrong[:, [NEXT, BEFORE]] = True
    return wrong


MEANINGLESS: Final[dict[str, Callable[[InUse], Mask]]] = {
    "numbers": _of_numbers,
    "tables": lambda use: _of_rows(use, use.memory.tables.shape[2], BLOCKS),
    "tokens": lambda use: _of_rows(use, use.memory.tokens.shape[1], LENGTH),
    "blocks": lambda use: _neighbours(use.memory.blocks),
    "holds": lambda use: _neighbours(use.memory.holds),
    "links": _of_links,
    "spelled": lambda use: ~(use.nodes & (use.memory.links[:, PARENT] != NOTHING))[:, None],  # if it has any tokens
    "counters": lambda use: np.ones(use.memory.counters.shape, np.bool_),  # each is read by itself
}
"""What of an array means nothing, or is read otherwise."""

Reader: TypeAlias = Callable[[ManagerState, Any], object]
"""Reads the value of one attribute."""


def _whole(state: ManagerState, value: object) -> object:
    return frozen(value)


CANONICAL: Final[dict[str, Reader]] = {
    "rows.info": lambda state, info: [known and (*known[:-1], frozen(known.saved)) for known in info],
    "pool.steps": lambda state, steps: tuple(steps.items()),  # in order: the first is the oldest
    "state.swap_free": lambda state, stack: (stack.shape, stack[: state.journal.counters[NUM_SWAP_FREE]].tobytes()),
    "journal.counters": lambda state, counters: counters is state.journal.memory.counters,
    "journal.reading": lambda state, fields: list(map(id, fields)) == list(map(id, state.journal.memory)),
}
"""How to read what is not to be taken as it stands."""


def answer(manager: BlockManager, result: object) -> object:
    """What an operation returned, as a value; of a plan what it promises, right after the operation. Runs no code of
    the manager, in which a fault could strike when all is done."""
    if not isinstance(result, StepPlan):
        return result
    blocks = manager._state.journal.memory.numbers[BLOCKS, result.rows].tolist()
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
