"""Chance, from one of two sources.

A random program is a sequence of small choices. All of them go through a `Chooser`, so that the same code draws from
Hypothesis, which can shrink what fails, and from a plain generator, which is fast and needs nothing installed.
"""

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from pagedkv.spec import Token

T = TypeVar("T")


class Chooser(Protocol):
    """Where choices come from."""

    def integer(self, low: int, high: int) -> int:
        """An integer, both bounds included. The low end is the simplest choice: shrinking goes there."""
        ...


class Dice:
    """Choices from a pseudo-random generator; the same seed throws the same."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed).random

    def integer(self, low: int, high: int) -> int:
        """Uniform."""
        return low + int(self._random() * (high - low + 1))


def pick(chooser: Chooser, items: Sequence[T]) -> T:
    """One of them; the first is the simplest."""
    return items[chooser.integer(0, len(items) - 1)]


def chance(chooser: Chooser, count: int, of: int) -> bool:
    """True `count` times in `of`; False is the simplest."""
    return chooser.integer(0, of - 1) >= of - count


def weighted(chooser: Chooser, weights: Sequence[int]) -> int:
    """An index, as often as its weight says; at least one weight is positive."""
    left = chooser.integer(1, sum(weights))
    for index, weight in enumerate(weights):
        left -= weight
        if left <= 0:
            return index
    raise AssertionError("the weights sum to what was drawn from")


def text(chooser: Chooser, count: int) -> tuple[Token, ...]:
    """Tokens from an alphabet of two, mostly the first, so that texts collide."""
    return tuple(int(chooser.integer(0, 3) == 3) for _ in range(count))
