"""Few rows of a large table in which nevertheless every pair of values occurs that occurs in the table.

Most faults of a configuration need one or two of its values (Kuhn, Wallace and Gallo, "Software Fault Interactions and
Implications for Software Testing", 2004), so a set that covers all pairs finds them at a fraction of the cost.
"""

import heapq
from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import TypeAlias

Row: TypeAlias = Sequence[Hashable]
"""A value for each factor; None where the factor does not matter."""
Pair: TypeAlias = tuple[tuple[int, Hashable], tuple[int, Hashable]]


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
