"""The form of what a subject says, before its meaning is compared: wrong types and missing parts are violations too."""

from collections.abc import Sequence

from pagedkv.spec import Copy, Ok, Reason, Refused
from pagedkv.spec.subject import Capabilities, Lengths, Snapshot


def malformed_answer(answer: object, rows: int) -> str | None:
    """What is wrong with the form of the outcomes of an operation (of `rows` rows), or None."""
    if not isinstance(answer, Sequence) or len(answer) != rows:
        return f"{rows} outcomes are due, answered {answer!r}"
    return next((wrong for outcome in answer if (wrong := _malformed_outcome(outcome))), None)


def _malformed_outcome(outcome: object) -> str | None:
    if isinstance(outcome, Refused):
        return None if isinstance(outcome.reason, Reason) else f"the reason is {outcome.reason!r}, not a Reason"
    if not isinstance(outcome, Ok):
        return f"{outcome!r} is neither Ok nor Refused"
    for name in ("cached_tokens", "evicted"):
        if type(getattr(outcome, name)) is not int:
            return f"{name} is {getattr(outcome, name)!r}, not an int"
    if not _are_ints(outcome.slots):
        return f"slots is {outcome.slots!r}, not a tuple of int"
    for name in ("copies", "remapped", "swapped"):
        pairs = getattr(outcome, name)
        if type(pairs) is not tuple or not all(isinstance(pair, Copy) and _are_ints(tuple(pair)) for pair in pairs):
            return f"{name} is {pairs!r}, not a tuple of Copy"
    return None


def malformed_snapshot(seen: object, capabilities: Capabilities, *, whole: bool) -> str | None:
    """What is wrong with the form of an observation, or None. A whole one must show the index if that is declared."""
    if not isinstance(seen, Snapshot):
        return f"observe returned {seen!r}, not a Snapshot"
    if type(seen.available_blocks) is not int:
        return f"available_blocks is {seen.available_blocks!r}, not an int"
    if not all(isinstance(lengths, Lengths) for lengths in seen.lengths.values()):
        return f"lengths are {dict(seen.lengths)!r}, not of Lengths"
    wrong = {r: table for r, table in seen.tables.items() if r not in seen.lengths or not _are_ints(table)}
    if wrong:
        return f"tables {wrong!r} are not tuples of int, of requests that have lengths"
    if whole and capabilities.reports_index and seen.index is None:
        return "reports_index is declared, and no index is shown"
    return None


def _are_ints(values: object) -> bool:
    return type(values) is tuple and set(map(type, values)) <= {int}
