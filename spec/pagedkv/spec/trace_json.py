"""Traces, the reading: taking JSON strictly.

A reader takes the name of what it reads and a value parsed from JSON, and returns what it means. Whatever it does not
expect is an error that says so: a key misspelt in a trace must not turn an expectation into nothing.
"""

import json
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from pagedkv.spec.words import Misuse

Reader: TypeAlias = Callable[[str, object], Any]
"""(name, JSON value) -> meaning; raises `Misuse`."""

SAFE_INTEGER = 2**53
"""Beyond it, JSON readers that keep numbers as doubles disagree on integers."""


class TraceError(ValueError):
    """A line that is no trace line: `file`, `line` (from 1) and what was found and expected there."""

    def __init__(self, file: str, line: int, problem: str) -> None:
        super().__init__(f"{file}:{line}: {problem}")
        self.file, self.line, self.problem = file, line, problem


def decode(text: str) -> object:
    """One JSON value. A key given twice, NaN and Infinity are errors, which plain JSON readers let pass.

    >>> decode('{"op": "free", "op": "resume"}')
    Traceback (most recent call last):
    ...
    pagedkv.spec.misuse.Misuse: key='op' is not allowed: expected each key once
    """

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise Misuse("key", key, "each key once")
            found[key] = value
        return found

    def constant(name: str) -> object:
        raise Misuse("number", name, "a finite number")

    try:
        value: object = json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except Misuse:
        raise
    except (ValueError, RecursionError) as error:  # no JSON, an integer of thousands of digits, nested too deep
        raise Misuse("line", text[:80], f"one JSON object ({error})") from error
    return value


def string(name: str, value: object) -> str:
    """Any text: request ids, namespaces, steps, notes. Half a surrogate pair, which JSON can write, is no text."""
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        raise Misuse(name, value, "a string of Unicode characters")
    return value


def boolean(name: str, value: object) -> bool:
    """true or false; 0 and 1 are numbers."""
    if not isinstance(value, bool):
        raise Misuse(name, value, "true or false")
    return value


def number(name: str, value: object) -> float:
    """Any finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise Misuse(name, value, "a number")
    return float(value)


def integer(name: str, value: object) -> int:
    """Any integer, also written 5.0 as JSON may. Negative ones pass: what is right is for the operation to say."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > SAFE_INTEGER:
        raise Misuse(name, value, "an integer")
    return value


def at_least(least: int) -> Reader:
    """An integer that is not below `least`."""

    def read(name: str, value: object) -> int:
        result = integer(name, value)
        if result < least:
            raise Misuse(name, value, f"an integer >= {least}")
        return result

    return read


def nullable(reader: Reader) -> Reader:
    """null reads as None."""
    return lambda name, value: None if value is None else reader(name, value)


def one_of(allowed: Collection[str]) -> Reader:
    """One of a closed set of strings."""

    def read(name: str, value: object) -> str:
        if value not in allowed:
            raise Misuse(name, value, "one of " + ", ".join(repr(str(word)) for word in allowed))
        return str(value)

    return read


def array(reader: Reader) -> Reader:
    """A list, read item by item into a tuple."""

    def read(name: str, value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Misuse(name, value, "a list")
        return tuple(reader(f"{name}[{i}]", item) for i, item in enumerate(value))

    return read


def record(name: str, value: object, readers: Mapping[str, Reader], required: Collection[str] = ()) -> dict[str, Any]:
    """An object with the keys of `readers`, those of `required` at the least. Keys starting "x-" are skipped.

    >>> record("line", {"request": "a", "x-mine": 1}, {"request": string})
    {'request': 'a'}
    """
    if not isinstance(value, dict):
        raise Misuse(name, value, "an object")
    keys = [key for key in value if not key.startswith("x-")]
    for key in keys:
        if key not in readers:
            raise Misuse(f"{name} key", key, "one of " + ", ".join(readers) + ", or a key that starts with x-")
    for key in required:
        if key not in keys:
            raise Misuse(f"{name} keys", ", ".join(keys), f"{key!r} among them")
    return {key: readers[key](key if name == "line" else f"{name}.{key}", value[key]) for key in keys}
