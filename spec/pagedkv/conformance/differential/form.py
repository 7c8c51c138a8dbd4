"""The form of what a subject says, before its meaning is compared: wrong types and missing parts are violations too."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

from pagedkv.conformance.counted import counted
from pagedkv.spec import Copy, Identity, Ok, Reason, Refused
from pagedkv.spec.misuse import shown
from pagedkv.spec.subject import Capabilities, Lengths, Snapshot

INT = "an int of 64 bits"
INTS = range(-(2**63), 2**63)
"""What is larger than that no text may be able to show."""


def malformed_answer(answer: object, rows: int) -> str | None:
    """What is wrong with the form of the outcomes of an operation (of `rows` rows), or None."""
    if not isinstance(answer, Sequence) or len(answer) != rows:
        return f"{counted(rows, 'outcomes')} due, answered {shown(answer)}"
    return next((wrong for outcome in answer if (wrong := _malformed_outcome(outcome))), None)


def _malformed_outcome(outcome: object) -> str | None:
    if isinstance(outcome, Refused):
        return None if isinstance(outcome.reason, Reason) else f"the reason is {shown(outcome.reason)}, not a Reason"
    if not isinstance(outcome, Ok):
        return f"{shown(outcome)} is neither Ok nor Refused"
    for name in ("cached_tokens", "evicted"):
        if not _are_ints((getattr(outcome, name),)):
            return f"{name} is {shown(getattr(outcome, name))}, not {INT}"
    if not _are_ints(outcome.slots):
        return f"slots is {shown(outcome.slots)}, not a tuple, each {INT}"
    for name in ("copies", "remapped", "swapped"):
        pairs = getattr(outcome, name)
        if type(pairs) is not tuple or not all(isinstance(pair, Copy) and _are_ints(tuple(pair)) for pair in pairs):
            return f"{name} is {shown(pairs)}, not a tuple of Copy"
    return None


def malformed_snapshot(seen: object, capabilities: Capabilities, *, whole: bool) -> str | None:
    """What is wrong with the form of an observation, or None. A whole one must show the index if that is declared."""
    if not isinstance(seen, Snapshot):
        return f"observe returned {shown(seen)}, not a Snapshot"
    for name in ("tables", "lengths", "references", "index"):
        value = getattr(seen, name)
        if not isinstance(value, Mapping) and not (value is None and name in ("references", "index")):
            return f"{name} is {shown(value)}, not a mapping"
    if not _are_ints((seen.available_blocks,)):
        return f"available_blocks is {shown(seen.available_blocks)}, not {INT}"
    if not all(map(_is_lengths, seen.lengths.values())):
        return f"lengths are {shown(dict(seen.lengths))}, not of Lengths"
    wrong = {r: table for r, table in seen.tables.items() if r not in seen.lengths or not _are_ints(table)}
    if wrong:
        return f"tables {shown(wrong)} are not tuples, each {INT}, of requests that have lengths"
    index = seen.index or {}
    if not _are_ints(tuple(index)) or not all(isinstance(identity, Identity) for identity in index.values()):
        return f"index is {shown(dict(index))}, not an Identity for each block"
    if not _are_ints(tuple(seen.references or ())) or not _are_ints(tuple((seen.references or {}).values())):
        return f"references are {shown(dict(seen.references or {}))}, not a count for each block"
    if whole and capabilities.reports_index and seen.index is None:
        return "reports_index is declared, and no index is shown"
    return None


def copying(subject: object) -> Callable[[], Any] | None:
    """The `copy` of a subject, if it has one: what it has from `dict` or another collection is not meant so.

    >>> class Manager(dict): ...
    >>> copying(Manager())
    """
    owner = next((kind for kind in type(subject).__mro__ if "copy" in vars(kind)), None)
    method = getattr(subject, "copy", None)
    return method if callable(method) and getattr(owner, "__module__", "") not in ("builtins", "collections") else None


def _is_lengths(lengths: object) -> bool:
    """NumPy's integers count as such here."""
    if not isinstance(lengths, Lengths):
        return False
    numbers = (lengths.length, lengths.reserved, lengths.computed)
    integers = all(isinstance(number, Integral) and int(number) in INTS for number in numbers)
    return integers and isinstance(lengths.resident, bool)


def _are_ints(values: object) -> bool:
    if type(values) is not tuple or not set(map(type, values)) <= {int}:
        return False
    return not values or (min(values) in INTS and max(values) in INTS)
