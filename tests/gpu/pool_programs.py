"""Random programs of calls on device pools, for tests that run them on a GPU and on the CPU side by side.

On the CPU the pool that stands for the GPU's has the same kernels, interpreted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pagedkv.optimized.device import DevicePool
from pagedkv.optimized.device.operations import operations_for
from pagedkv.optimized.device.state import PoolState
from tests.gpu.site import Site, same_bits
from tests.optimized.device.pools import InterpretedOperations

WEIGHTS: Final = {
    "admit": 4, "append": 5, "append counts": 2, "fork": 2, "truncate": 2, "free": 1, "release_window": 2,
    "permute": 0.2,
}  # fmt: skip
"""How often each operation is drawn, beside the others."""


class Call(NamedTuple):
    """A call of a pool, its tensors on the CPU."""

    name: str
    given: dict[str, Any]

    def on(self, pool: DevicePool) -> list[Tensor]:
        """Make it. Returns what the pool answers, on its device."""
        there = {name: _there(v, pool.device) if isinstance(v, Tensor) else v for name, v in self.given.items()}
        return tensors_of(getattr(pool, self.name)(**there))


def pool_on(site: Site, *shape: int, **options: Any) -> DevicePool:
    """A pool whose operations are kernels."""
    return kernels(site, DevicePool(*shape, **options, device=site.device))


def twin(site: Site, pool: DevicePool) -> DevicePool:
    """A copy that goes its own way."""
    return kernels(site, pool.copy())


def moved(site: Site, pool: DevicePool) -> DevicePool:
    """A copy on the device of a pool on the CPU."""
    copy = pool.copy()
    copy._state = PoolState(**{name: value.to(site.device) for name, value in state_of(copy).items()})
    copy.device = copy._state.numbers.device
    copy._operations = operations_for(copy.shape, copy._state)
    return kernels(site, copy)


def kernels(site: Site, pool: DevicePool) -> DevicePool:
    """The pool, on the CPU with kernels in place of loops."""
    if site.name == "cpu":
        pool._operations = InterpretedOperations(pool.shape, pool._state)
    return pool


def tensors_of(answer: Tensor | Sequence[Tensor] | None) -> list[Tensor]:
    """All that a pool has answered."""
    return [] if answer is None else [answer] if isinstance(answer, Tensor) else [*answer]


def state_of(pool: DevicePool) -> dict[str, Tensor]:
    """All that a pool knows."""
    return {field.name: getattr(pool._state, field.name) for field in fields(pool._state)}


def differing(found: DevicePool, wanted: DevicePool) -> list[str]:
    """What of the state is not the same, bit for bit."""
    one, other = state_of(found), state_of(wanted)
    return [name for name in other if not same_bits(one[name].cpu(), other[name].cpu())]


def program(pool: DevicePool, steps: int, seed: int) -> Iterator[Call]:
    """So many calls, each drawn for the state in which the pool, on the CPU, is by then."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        yield random_call(pool, rng)


def random_call(pool: DevicePool, rng: np.random.Generator) -> Call:
    """A call that is mostly sensible: rows that stand twice, are out of range, or in the wrong state are among it."""
    weights = np.array([*WEIGHTS.values()])
    name = str(rng.choice([*WEIGHTS], p=weights / weights.sum()))
    if name == "permute":
        return Call(name, {"new_block": torch.from_numpy(rng.permutation(pool.shape.num_blocks))})
    num_rows = pool.shape.num_rows
    rows = None if rng.random() < 0.3 else rng.permutation(num_rows)[: rng.integers(1, num_rows + 1)]
    if rows is not None and rng.random() < 0.5:
        wild = rng.random(len(rows)) < 0.1
        rows = np.where(wild, rng.integers(-2, num_rows + 2, len(rows)), rows)
    asked = num_rows if rows is None else len(rows)
    given: dict[str, Any] = {"where": None if rng.random() < 0.5 else torch.from_numpy(rng.random(asked) < 0.7)}
    if name != "fork":
        given["rows"] = None if rows is None else vector(rng, rows)
    return Call(name.partition(" ")[0], given | _rest(pool, rng, name, rows, asked))


def _rest(pool: DevicePool, rng: np.random.Generator, name: str, rows: Any, asked: int) -> dict[str, Any]:
    """The other arguments of an operation."""
    at = np.arange(asked) if rows is None else np.clip(rows, 0, pool.shape.num_rows - 1)
    lengths = pool.seq_lens.cpu().numpy()[at]
    if name in ("admit", "append counts"):
        most = 3 * pool.shape.block_size
        counts = rng.integers(-1 if rng.random() < 0.2 else 0, most, asked)
        total = int(counts.clip(0).sum() + rng.integers(0, 9)) if rng.random() < 0.8 else None
        return {"lengths" if name == "admit" else "counts": vector(rng, counts), "total": total}
    if name == "fork":
        unused = rng.permutation(np.flatnonzero(pool.in_use.cpu().numpy() == 0))[:asked]
        children = np.concatenate([unused, rng.integers(-1, pool.shape.num_rows, asked - len(unused))])
        parents = rng.integers(0, pool.shape.num_rows, asked)
        return {"parents": vector(rng, parents), "children": vector(rng, children)}
    if name == "truncate":
        shorter = np.maximum(-1, lengths - rng.integers(-1, 2 * pool.shape.block_size, asked))
        return {"lengths": vector(rng, shorter)}
    if name == "release_window":
        computed = np.maximum(0, lengths - rng.integers(0, 2, asked))
        return {"computed": None if rng.random() < 0.5 else vector(rng, computed)}
    return {}


def vector(rng: np.random.Generator, numbers: Any) -> Tensor:
    """int32 or int64, every fourth not dense."""
    tensor = torch.from_numpy(numbers).to(torch.int32 if rng.random() < 0.5 else torch.int64)
    return spread(tensor) if rng.random() < 0.25 else tensor


def spread(dense: Tensor) -> Tensor:
    """The same numbers, every second one of memory."""
    return dense.repeat_interleave(2)[::2]


def _there(tensor: Tensor, device: torch.device) -> Tensor:
    """On the device, dense only if it is here."""
    found = tensor.to(device)
    return found if tensor.is_contiguous() else spread(found)
