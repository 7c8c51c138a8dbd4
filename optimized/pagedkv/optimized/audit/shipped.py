"""All that the audit compiles: the kernels of attention, and those of the device pool."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pagedkv.optimized.attention import shipped as attention
from pagedkv.optimized.device import shipped as pool
from pagedkv.optimized.launch import Launch

Configuration: TypeAlias = attention.Configuration | pool.Configuration
Work: TypeAlias = tuple[str, Configuration]
"""A target, a key of `TARGETS`, and what is compiled for it."""


def configurations() -> list[Configuration]:
    """All of them."""
    return [*attention.configurations(), *pool.configurations()]


def pairwise() -> list[Work]:
    """Few that have every pair of values, of attention and then of the pool."""
    return [*attention.pairwise(), *pool.pairwise()]


def shipped_launches(work: Sequence[Work]) -> Iterator[tuple[str, Launch]]:
    """Each target with the launch of the configuration."""
    for target, each in work:
        if isinstance(each, pool.Configuration):
            yield target, pool.launch_for(each, target)
        else:
            yield target, attention.launch_for(each, target)
