"""Taking back what an operation has done so far, should anything in it fail.

Refusals and misuse are decided before anything is written. What is left are failures from inside: no memory, an
interrupt, a hash function of the caller's that raises. So the manager keeps a journal. Numbers and whole arrays hang
on a few *parts* by their names, and are put back by keeping those names; what is written in place goes through
`put`, `set` and `delete`, which note the old value first. What lies past the end of a queue or a row means nothing, and
is written without a note; past the end of a stack may lie what the same operation has taken off it.
"""

from collections.abc import MutableMapping, MutableSequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

_ABSENT: Final = object()


class Journal:
    """The notes of the operation that is running."""

    def __init__(self) -> None:
        self._notes: list[tuple[Any, Any, Any]] = []
        self._parts: list[dict[str, Any]] = []
        self._before: list[dict[str, Any]] = []

    def watch(self, *parts: object) -> None:
        """From now on operations may give other values to the attributes of these parts."""
        self._parts = [vars(part) for part in parts]

    def begin(self) -> None:
        """An operation starts."""
        self._notes.clear()
        self._before = [names.copy() for names in self._parts]

    def roll_back(self) -> None:
        """Put everything back as it was at `begin`."""
        while self._notes:
            container, key, old = self._notes[-1]
            if old is _ABSENT:
                container.pop(key, None)
            else:
                container[key] = old
            self._notes.pop()
        for names, before in zip(self._parts, self._before, strict=True):
            names.update(before)

    def put(self, array: Array, index: Any, values: Any) -> None:
        """array[index] = values."""
        old = array[index]
        self._notes.append((array, index, old.copy() if isinstance(index, slice) else old))
        array[index] = values

    def note(self, container: Any, key: Any, old: Any) -> None:
        """The caller is about to write or delete container[key], which holds `old`; nobody else will write `old`."""
        self._notes.append((container, key, old))

    def set(self, container: "MutableMapping[Any, Any] | MutableSequence[Any]", key: Any, value: Any) -> None:
        """container[key] = value, in a dictionary or at an existing place of a list."""
        old = container.get(key, _ABSENT) if isinstance(container, dict) else container[key]
        self._notes.append((container, key, old))
        container[key] = value

    def delete(self, container: dict[Any, Any], key: Any) -> None:
        """del container[key]."""
        self._notes.append((container, key, container[key]))
        del container[key]


def doubled(array: Array) -> Array:
    """A new array of twice the length along the first axis; the second half may hold anything."""
    new = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    new[: len(array)] = array
    return new
