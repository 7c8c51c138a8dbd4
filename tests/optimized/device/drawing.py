"""Calls on a device pool as values, and what their arguments are drawn from."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from pagedkv.optimized.device.pool import DevicePool
from torch import Tensor

Draw: TypeAlias = Callable[[random.Random, DevicePool], "Call"]


@dataclass(frozen=True)
class Call:
    """A method of the pool, and what it is called with."""

    method: str
    arguments: Mapping[str, Any]

    def on(self, pool: DevicePool) -> tuple[Tensor, ...]:
        """Make it. What it answers."""
        answer = getattr(pool, self.method)(**self.arguments)
        return answer if isinstance(answer, tuple) else () if answer is None else (answer,)


def alike(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Whether two answers are equal, bit for bit."""
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def vector(rng: random.Random, values: Sequence[int]) -> Tensor:
    """int64, or int32 where it can hold the values; dense, or every other number of something longer."""
    fits = all(-(2**31) <= value < 2**31 for value in values)
    tensor = torch.tensor(values, dtype=rng.choice((torch.int32, torch.int64)) if fits else torch.int64)
    return strided(rng, tensor, 77)


def strided(rng: random.Random, tensor: Tensor, between: int) -> Tensor:
    """The same numbers, at times with others between them."""
    return torch.stack([tensor, torch.full_like(tensor, between)], 1)[:, 0] if rng.random() < 0.3 else tensor


def draw_rows(rng: random.Random, pool: DevicePool, wanted: int) -> list[int]:
    """Mostly rows of one kind (in use: 1, or not: 0), each once; some that are not, that stand twice, or that are none.

    A number that is a row in its lower 32 bits is no row either.
    """
    num_rows, in_use = pool.shape.num_rows, pool.in_use.tolist()
    of_kind = [row for row in range(num_rows) if in_use[row] == wanted]
    rows = (
        rng.sample(of_kind, rng.randint(0, len(of_kind))) if rng.random() < 0.5 else rng.sample(of_kind, len(of_kind))
    )
    strays = (-1, -3, num_rows, num_rows + 5, 2**32, 2**31 - 1, *range(num_rows))
    for _ in range(rng.choice((0, 0, 1, 3))):
        rows.insert(rng.randint(0, len(rows)), rng.choice(rows if rows and rng.random() < 0.4 else strays))
    return rows


def chosen(rng: random.Random, count: int) -> Tensor | None:
    """A `where`."""
    if rng.random() < 0.7:
        return None
    return strided(rng, torch.tensor([rng.random() < 0.75 for _ in range(count)], dtype=torch.bool), 1)


def length_of(pool: DevicePool, row: int) -> int:
    """0 for what is no row."""
    return int(pool.seq_lens[row]) if 0 <= row < pool.shape.num_rows else 0
