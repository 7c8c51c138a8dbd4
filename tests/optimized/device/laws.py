"""What must hold of the kernels of the pool in every state: each law says what is wrong of random programs, or None.

`launches` stands for `pagedkv.optimized.device.launches`, so that the laws can be held against broken kernels too.
Whatever operations make without filling it holds junk, so that nothing depends on what memory held before.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import torch
from pagedkv.optimized.audit.access_log import LaunchAccess
from pagedkv.optimized.audit.interpret import InterpretedError, OutOfBounds, ordered, recording, shuffled
from pagedkv.optimized.device import launches as intact
from pagedkv.optimized.device.checking import INVARIANTS
from pagedkv.optimized.device.outcomes import NUM_FREE
from pagedkv.optimized.device.pool import DevicePool
from torch import Tensor

from tests.optimized.device.pools import InterpretedOperations, Make, carried_out, differences, is_entry, same
from tests.optimized.device.drawing import Call, alike
from tests.optimized.device.programs import calls, draw_pool

JUNK: Final = (0, -1, 1, 3, 2**31 - 1, -(2**31))
"""What memory may hold: what looks like a block, a row or a hole, and what looks like nothing."""
FAULTS: Final = (OutOfBounds, InterpretedError, IndexError, AssertionError)
"""What a broken kernel or loop may end in, too."""

Law = Callable[[Any, int, int], str | None]
"""From the module of launches, the seed and the number of calls of one program, to what is wrong, or None."""


@contextmanager
def junk_in_new_memory(value: int) -> Iterator[None]:
    """`torch.empty` is full of it."""
    real = torch.empty

    def filled(*args: Any, **options: Any) -> Tensor:
        return real(*args, **options).fill_(value)

    with patch.object(torch, "empty", filled):
        yield


def interpreted(launches: Any = intact) -> Make:
    """Operations of these launches."""
    return partial(InterpretedOperations, launches=launches)


def wrong_state(launches: Any, seed: int, count: int) -> str | None:
    """Kernels answer as loops do, and leave the same state."""
    return other_state(interpreted(launches), seed, count)


def wrong_loops(make: Make, seed: int, count: int) -> str | None:
    """The same of broken loops: they are not what the kernels are. Programs are drawn by what is intact."""
    return other_state(make, seed, count)


def other_state(make: Make, seed: int, count: int) -> str | None:
    """What differs between intact loops and `make`."""
    rng = random.Random(seed)
    pool = draw_pool(rng)
    twin = carried_out(pool, make)
    for call in calls(rng, pool, count):
        with junk_in_new_memory(rng.choice(JUNK)):
            answer = call.on(pool)
            try:
                again = call.on(twin)
            except FAULTS as fault:
                return f"{call}: {fault!r}"
        if not alike(answer, again):
            return f"{call}: {answer} and {again}"
        if not same(pool, twin):
            return f"{call}: {differences(pool, twin)}"
    return None


def wrong_in_pieces(launches: Any, seed: int, count: int) -> str | None:
    """The same where a program looks at one, two or four rows or entries together, and so must go round."""
    few = 2 ** (seed % 3)
    with patch.multiple(launches, CHUNKS=(few, few), PIECES=(few, few)):
        return wrong_state(launches, seed, count)


def wrong_invariant(launches: Any, seed: int, count: int) -> str | None:
    """After each call all invariants hold."""
    return broken_invariant(interpreted(launches), seed, count)


def broken_invariant(make: Make, seed: int, count: int) -> str | None:
    """The first of `INVARIANTS` that a program breaks, whoever carries it out."""
    rng = random.Random(seed)
    pool = carried_out(draw_pool(rng), make)
    for call in calls(rng, pool, count):
        try:
            seen(pool, call, JUNK[seed % len(JUNK)])
        except FAULTS as fault:
            return f"{call}: {fault!r}"
        for name, broken in zip(INVARIANTS, pool.check().tolist(), strict=True):
            if broken:
                return f"{call}: {name}"
    return None


def wrong_order(launches: Any, seed: int, count: int) -> str | None:
    """Programs of a launch may run in any order: the same bits."""
    rng, junk = random.Random(seed), JUNK[seed % len(JUNK)]
    pool = draw_pool(rng)
    for number, call in enumerate(calls(rng, pool, count)):
        plain, other = (carried_out(pool, interpreted(launches)) for _ in range(2))
        call.on(pool)
        answer = seen(plain, call, junk)
        with ordered(shuffled(seed + number) if number % 2 else _backwards):
            again = seen(other, call, junk)
        if not (alike(answer, again) and same(plain, other)):
            return f"{call}: {differences(plain, other)}"
    return None


def _backwards(programs: list[Any]) -> list[Any]:
    return programs[::-1]


def wrong_access(launches: Any, seed: int, count: int) -> str | None:
    """No program touches what another one of its launch writes; atomics may meet each other. Nor does it read what it
    writes itself, unless a barrier lies between: the interpreter runs a program as one thread, and a GPU as many."""
    rng = random.Random(seed)
    pool = draw_pool(rng)
    for call in calls(rng, pool, count):
        twin = carried_out(pool, interpreted(launches))
        call.on(pool)
        with recording() as log:
            seen(twin, call, JUNK[seed % len(JUNK)])
        if found := log.conflicts(atomics_declared=True):
            return f"{call}: {found[:2]}"
        for launch in log.launches:
            if launch.kernel not in WITH_BARRIERS and (own := read_and_written(launch)):
                return f"{call}: {launch.kernel} reads what it writes: {own}"
    return None


WITH_BARRIERS: Final = {
    "grow_decide_kernel", "fork_decide_kernel", "release_decide_kernel", "import_decide_kernel", "release_scan_kernel",
    "release_mark_kernel", "release_push_kernel",
}  # fmt: skip
"""Kernels in which a barrier lies between a read of memory and a write to it, or one thread does both."""


def read_and_written(launch: LaunchAccess) -> list[tuple[int, ...]]:
    """Programs that load bytes that they store: their threads run apart, and some may load what others have stored."""
    found: list[tuple[int, ...]] = []
    for program in launch.programs:
        loads, stores = program.spans("load"), program.spans("store")
        meets = (loads[:, None, 0] < stores[None, :, 1]) & (stores[None, :, 0] < loads[:, None, 1])
        if meets.any():
            found.append(program.program)
    return found


def seen_junk(make: Make, seed: int, count: int) -> str | None:
    """What means nothing changes nothing: the unused ends of tables, what is above the free list, new memory."""
    rng = random.Random(seed)
    pool = draw_pool(rng)
    for call in calls(rng, pool, count):
        plain, other = carried_out(pool, make), carried_out(pool, make)
        scramble(other, rng)
        before = seen(plain, call, rng.choice(JUNK)), seen(other, call, rng.choice(JUNK))
        if not alike(*before):
            return f"{call}: {before}"
        if found := differences(plain, other, MEANING):
            return f"{call}: {found}"
        used = is_entry(plain)
        if not torch.equal(used, is_entry(other)) or (plain.block_tables != other.block_tables)[used].any():
            return f"{call}: tables {plain.block_tables} and {other.block_tables}"
        if other.check().any():
            return f"{call}: {other.check()}"
        call.on(pool)
    return None


MEANING: Final = (
    "numbers", "references", "free_list", "counters", "owned", "lent", "claims", "writers", "last_writer",
    "last_release",
)  # fmt: skip
"""All fields of the state but the tables, of which the unused ends mean nothing."""


def seen(pool: DevicePool, call: Call, junk: int) -> tuple[Tensor, ...]:
    """What it answers, where new memory holds junk."""
    with junk_in_new_memory(junk):
        return call.on(pool)


def scramble(pool: DevicePool, rng: random.Random) -> None:
    """Junk wherever the state may hold anything. References, marks and claims are none of it: what nobody refers to
    has no reference, and what one call leaves in them the next one finds."""
    state, blocks = pool._state, pool.shape.num_blocks
    likely = [*JUNK, *range(blocks)]

    def junk(like: Tensor) -> Tensor:
        return torch.tensor(rng.choices(likely, k=like.numel()), dtype=like.dtype).view(like.shape)

    state.tables.copy_(torch.where(is_entry(pool), state.tables, junk(state.tables)))
    above = state.free_list[int(state.counters[NUM_FREE]) :]
    above.copy_(junk(above))


LAWS: Final[dict[str, Law]] = {
    "state": wrong_state,
    "pieces": wrong_in_pieces,
    "invariants": wrong_invariant,
    "order": wrong_order,
    "races": wrong_access,
}
"""By the names that mutants call them."""
