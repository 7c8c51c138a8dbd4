"""Taking back what an operation has done so far, should anything in it fail.

Refusals and misuse are mostly decided before anything is written. What is left are failures from inside: no memory, an
interrupt, a hash function of the caller's that raises. So the manager keeps a journal. The loops log what they
overwrite by themselves; what is written from outside them goes through `put`, `set` and `delete`, which note the old
value first. What lies past the end of a row means nothing, and is written without a note.
"""

from collections.abc import MutableMapping, MutableSequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pagedkv.optimized.loops import calls
from pagedkv.optimized.loops.memory import GONE, LOGGED, Fields, Memory

Array: TypeAlias = NDArray[Any]

MOST_LINES: Final = 2**18
"""Lines of a log that are kept from one operation to the next: 4 MiB."""

_ABSENT: Final = object()
_LOG: Final = object()
_MEMORY: Final = object()


class Journal:
    """The memory of a manager, and the notes of the operation that is running on it."""

    def __init__(self, memory: Memory) -> None:
        self.notes: list[tuple[Any, Any, Any]] = []
        """(container, key, old) of what is about to be written: container[key] held `old`, or nothing, and nobody else
        will write `old`."""
        self.open = False
        """An operation has begun, and has neither ended nor been taken back."""
        self._before = memory.counters.copy()
        self.counters = memory.counters
        self._use(memory)

    def begin(self, most_lines: int = MOST_LINES) -> None:
        """An operation starts. The log that it gets has no more lines than that."""
        self.notes.clear()
        if self._lines > most_lines:
            self._resize(most_lines)
        self.counters[LOGGED] = self.counters[GONE] = 0
        self._before = self.counters.copy()
        self.open = True

    def fields(self) -> Fields:
        """The memory for a loop that is about to write. One that only reads can do with `reading`."""
        self.notes.append((_LOG, self.counters[LOGGED], None))
        return self.reading

    def roll_back(self) -> None:
        """Put everything back as it was at `begin`, the latest first. It can be cut off anywhere, and done again."""
        self.open = True
        while self.notes:
            container, key, old = self.notes[-1]
            if container is _LOG:
                calls.undo(self.reading, int(key))  # which needs no memory, should that be what is missing
            elif container is _MEMORY:
                self._use(old)
            elif old is _ABSENT:
                container.pop(key, None)
            else:
                container[key] = old
            self.notes.pop()
        self.counters[:] = self._before
        self.open = False

    def replace(self, **arrays: Array) -> None:
        """From now on these fields of the memory are other arrays."""
        self.notes.append((_MEMORY, None, self.memory))
        self._use(self.memory._replace(**arrays))

    def lengthen(self) -> int:
        """Between operations: more lines for the log, and how many it has now."""
        self._resize(8 * self._lines)
        return self._lines

    def put(self, array: Array, index: Any, values: Any) -> None:
        """array[index] = values."""
        old = array[index]
        self.notes.append((array, index, old.copy() if isinstance(old, np.ndarray) else old))
        array[index] = values

    def set(self, container: "MutableMapping[Any, Any] | MutableSequence[Any]", key: Any, value: Any) -> None:
        """container[key] = value, in a dictionary or at an existing place of a list."""
        old = container.get(key, _ABSENT) if isinstance(container, dict) else container[key]
        self.notes.append((container, key, old))
        container[key] = value

    def delete(self, container: dict[Any, Any], key: Any) -> None:
        """del container[key]."""
        self.notes.append((container, key, container[key]))
        del container[key]

    def copy(self) -> "Journal":
        """Another memory with the same content, and nothing noted."""
        copies = {name: array.copy() for name, array in self.memory._asdict().items() if name != "log"}
        return Journal(self.memory._replace(**copies, log=np.empty((256, 2), np.int64)))

    def _resize(self, lines: int) -> None:
        self._use(self.memory._replace(log=np.empty((lines, 2), np.int64)))

    def _use(self, memory: Memory) -> None:
        self.memory, self.reading, self._lines = memory, tuple(memory), len(memory.log)


def enlarged(array: Array, *shape: int) -> Array:
    """A larger array that begins as this one and goes on with zeros."""
    new = np.zeros(shape, array.dtype)
    new[tuple(map(slice, array.shape))] = array
    return new
