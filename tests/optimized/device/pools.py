"""Pools that somebody else carries out, and what tells two pools apart."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

import torch
from pagedkv.optimized.device import launches as intact
from pagedkv.optimized.device.operations import KernelOperations, Operations
from pagedkv.optimized.device.outcomes import NUM_FREE
from pagedkv.optimized.device.pool import DevicePool
from pagedkv.optimized.device.state import PoolShape, PoolState
from pagedkv.optimized.launch import Launch
from torch import Tensor

Make: TypeAlias = Callable[[PoolShape, PoolState], Operations]
"""Who carries out what a pool is asked for."""


class InterpretedOperations(KernelOperations):
    """The kernels, run by Triton's interpreter on the CPU."""

    def __init__(self, shape: PoolShape, state: PoolState, launches: Any = intact) -> None:
        """`launches`: a module that stands for `pagedkv.optimized.device.launches`."""
        super().__init__(shape, state)
        self._launches = launches

    def launch(self, launch: Launch) -> None:
        """Interpret it."""
        launch.interpret()


class OtherPool(DevicePool):
    """A pool that `make` carries out, and its copies too."""

    def __init__(self, *args: Any, make: Make = InterpretedOperations, **options: Any) -> None:
        super().__init__(*args, **options)
        self._make = make
        self._operations = make(self.shape, self._state)

    def copy(self) -> "OtherPool":
        """A pool that goes its own way from here."""
        return carried_out(self, self._make)


def carried_out(pool: DevicePool, make: Make = InterpretedOperations) -> OtherPool:
    """A pool in the same state, which `make` carries out."""
    twin = object.__new__(OtherPool)
    vars(twin).update(vars(pool))
    twin._state, twin._make = pool._state.clone(), make
    twin._operations = make(twin.shape, twin._state)
    return twin


def differences(one: DevicePool, other: DevicePool, what: Sequence[str] = ()) -> list[str]:
    """The fields of two states that differ (of all, or of those named). What lies above the free list means nothing."""
    top = int(one._state.counters[NUM_FREE])
    found = []
    for name in what or [field.name for field in fields(PoolState)]:
        a, b = getattr(one._state, name), getattr(other._state, name)
        if name == "free_list":
            a, b = a[:top], b[:top]
        if not torch.equal(a, b):
            found.append(f"{name}: {a.tolist()} and {b.tolist()}")
    return found


def same(one: DevicePool, other: DevicePool) -> bool:
    """Whether two pools are in the same state, the unused ends of tables included."""
    return not differences(one, other)


def is_entry(pool: DevicePool) -> Tensor:
    """(num_rows, max_blocks) bool: the table entries that mean something."""
    used = -(-pool.seq_lens // pool.shape.block_size)
    return torch.arange(pool.shape.max_blocks) < used[:, None]
