"""Chapter 13b. Between two states: what no operation does.

The invariants of the chapter before speak of one state. These speak of the state before an operation and the state
after it: copy-on-write and the frame rule, seen from outside.
"""

from collections.abc import Sequence

from pagedkv.spec.state import State
from pagedkv.spec.words import RequestId


def shared_blocks_are_not_written(before: State, after: State) -> bool:
    """Rule 4: what a block with several owners holds is the same after an operation that leaves it several owners.

    (With `publish="schedule"` its writer may still be about to fill it.)
    """
    kept = [b for b, n in before.references.items() if n > 1 and after.references.get(b, 0) > 1]
    pairs = [(before.contents[b], after.contents[b]) for b in kept]
    return all(new == old or (before.config.publish == "schedule" and new[: len(old)] == old) for old, new in pairs)


def others_are_left_alone(before: State, after: State, named: Sequence[RequestId]) -> bool:
    """Rule 9, frame: an operation changes neither the tokens nor the lengths nor the table of a request not named."""
    return all(after.requests.get(r) == before.requests[r] for r in before.requests if r not in named)


def broken_by(before: State, after: State, named: Sequence[RequestId]) -> list[str]:
    """The names of the laws between two states, relabelling aside, that an operation on `named` requests broke."""
    holds = {
        "shared_blocks_are_not_written": shared_blocks_are_not_written(before, after),
        "others_are_left_alone": others_are_left_alone(before, after, named),
    }
    return [name for name, held in holds.items() if not held]
