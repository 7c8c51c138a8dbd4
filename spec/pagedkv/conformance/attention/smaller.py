"""What to try in the place of a case, to make one that fails smaller."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pagedkv.conformance.attention.cases import DEFAULT, PARTS, Case

_PLAIN = (
    "window", "softcap", "alibi", "sinks", "split_size", "value_dim", "style", "causal", "head_dim", "block_size",
    "seed",
)  # fmt: skip
"""Fields that a simpler case has as `Case()` has them."""
_FEW: Mapping[str, tuple[Any, ...]] = {"window": (1, 3), "group": (1, 2), "num_kv_heads": (1, 2)}
"""Smaller numbers of others that it may have."""


def smaller(case: Case) -> Iterator[Case]:
    """Cases that are simpler than this one in one way, boldest first. None of their requests has more rows than
    positions, unless it had before."""
    alike = (1,) * len(case.lengths)
    if len(alike) > PARTS and not case.lengths == case.query_lens == alike:
        yield replace(case, lengths=alike, query_lens=alike)
    for kept in _kept(len(case.lengths)):
        lengths, query_lens = ([numbers[each] for each in kept] for numbers in (case.lengths, case.query_lens))
        yield replace(case, lengths=tuple(lengths), query_lens=tuple(query_lens))
    for name in _PLAIN:
        if getattr(case, name) != getattr(DEFAULT, name):
            yield replace(case, **{name: getattr(DEFAULT, name)})
    for name, numbers in _FEW.items():
        for number in numbers:
            if number < (getattr(case, name) or 0):
                yield replace(case, **{name: number})
    for index, (length, rows) in enumerate(zip(case.lengths, case.query_lens, strict=True)):
        least = int(0 < rows <= length)
        parts = (length - length // 64, length // 2, length // 4, length // 16, case.block_size, 1)
        for shorter in sorted({length - less for less in parts}):
            if least <= shorter < length:
                yield _with(case, index, shorter, min(rows, max(1, shorter)))
        if rows > 1:
            yield _with(case, index, length, 1)
            yield _with(case, index, length, rows - 1)


def _kept(count: int) -> Iterator[Sequence[int]]:
    """Requests of which a smaller case may consist: one, or all but one; where they are many, a part, or all but that.

    >>> [*_kept(1)], [*_kept(2)]
    ([], [[0], [1]])
    >>> [len(kept) for kept in _kept(1024)][:4]
    [64, 64, 64, 64]
    """
    parts = min(count, PARTS)
    numbers = range(count)
    cuts = [count * part // parts for part in range(parts + 1)]
    if parts > 1:
        yield from ([*numbers[start:end]] for start, end in pairwise(cuts))
    if parts > 2:
        yield from ([*numbers[:start], *numbers[end:]] for start, end in pairwise(cuts))


def _with(case: Case, index: int, length: int, rows: int) -> Case:
    lengths, query_lens = list(case.lengths), list(case.query_lens)
    lengths[index], query_lens[index] = length, rows
    return replace(case, lengths=tuple(lengths), query_lens=tuple(query_lens))
