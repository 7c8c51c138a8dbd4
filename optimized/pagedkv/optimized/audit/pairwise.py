"""Few rows of a large table in which nevertheless every pair of values occurs that occurs in the table.

Most faults of a configuration need one or two of its values (Kuhn, Wallace and Gallo, "Software Fault Interactions and
Implications for Software Testing", 2004), so a set that covers all pairs finds them at a fraction of the cost.
"""

import heapq
from collections.abc import Collection, Hashable, Sequence
from itertools import combinations
from typing import Any, Final, TypeAlias, TypeVar

from pagedkv.optimized.audit.targets import TARGETS

SPREAD: Final = 7919
"""A prime, to go through a table in large steps."""

Row: TypeAlias = Sequence[Hashable]
"""A value for each factor; None where the factor does not matter."""
Pair: TypeAlias = tuple[tuple[int, Hashable], tuple[int, Hashable]]
C = TypeVar("C", bound=tuple[Any, ...])
"""What is compiled for a target, as a row."""


def pairs_of(row: Row) -> frozenset[Pair]:
    """All pairs of values of two factors, None left out.

    >>> sorted(pairs_of(("a", None, 7)))
    [((0, 'a'), (2, 7))]
    """
    values = ((factor, value) for factor, value in enumerate(row) if value is not None)
    return frozenset(combinations(values, 2))


def covering(rows: Sequence[Row]) -> list[int]:
    """Indices of rows that together have every pair that any row has; always the same for the same rows.

    Always the row that adds most pairs is next, the first of equals. How many a row adds can only fall, so only the
    rows at the top are counted again.
    """
    pairs = [pairs_of(row) for row in rows]
    missing = set[Pair]().union(*pairs)
    waiting = [(-len(each), index) for index, each in enumerate(pairs)]
    heapq.heapify(waiting)
    chosen = []
    while missing:
        _, index = heapq.heappop(waiting)
        added = len(pairs[index] & missing)
        if waiting and (-added, index) > waiting[0]:
            heapq.heappush(waiting, (-added, index))
        else:
            chosen.append(index)
            missing -= pairs[index]
    return chosen


def covering_on_targets(configurations: Sequence[C], always: Collection[tuple[str, C]]) -> tuple[tuple[str, C], ...]:
    """Few targets and configurations that have every pair of values that all of them have, and those of `always`.

    The same each time, in the order of `TARGETS` and then of `configurations`. Rows that are equally good are taken
    from all over the table, so that every target gets its share.
    """
    every = [(target, each) for target in TARGETS for each in configurations]
    mixed = sorted(range(len(every)), key=lambda i: (i * SPREAD) % len(every))
    chosen = covering([(every[i][0], *every[i][1]) for i in mixed])
    needed = {every.index(each) for each in always}
    return tuple(every[i] for i in sorted(needed | {mixed[j] for j in chosen}))
