"""What the device pool costs on this card: its operations by themselves, and decode steps with it and without it.

Steps without it are those of an engine whose blocks the host hands out: `BlockManager.append_batch`, then tables,
lengths and slots are copied from pinned memory without waiting, then the graph of the step runs. Sampled tokens come
back to the host in none of them; an engine that needs them there waits longer.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from pagedkv.optimized import BlockManager, paged_attention, write_kv
from pagedkv.optimized.device import DecodeStep, DevicePool
from pagedkv.spec.words import ceil_div
from tests.benchmarks.gpu.session import LONGEST, NO_TIME, Deadline
from tests.benchmarks.gpu.timing import MOST_REPEATS, MOST_ROUNDS, Call, Timer, Timing, elapsed, recorded, summary

BLOCK_SIZE: Final = 16


@dataclass(frozen=True)
class Size:
    """How much is tried."""

    rows: tuple[int, ...] = (256, 4096)
    """Of an append; the first of them of all else."""
    length: int = 100
    """Positions of each row in the beginning; up to a block more, so that rows do not need blocks all at once."""
    steps: int = 8
    """Decode steps from one look of the host to the next."""
    rounds: int = 50
    appends: int = MOST_REPEATS * (MOST_ROUNDS + 2) + 8
    """What there is room for: as often as a timer may run."""
    num_kv_heads: int = 8
    group: int = 4
    head_dim: int = 128


SMOKE: Final = Size(
    rows=(3, 5), length=5, steps=2, rounds=2, appends=16, num_kv_heads=1, group=2, head_dim=16
)  # fmt: skip
"""For the CPU: not for figures."""


def measure_pool(device: torch.device, timer: Timer, deadline: Deadline) -> list[dict[str, Any]]:
    """A line for each measurement: what, of how many rows, and the seconds; or why there are none."""
    size, found = Size() if device.type == "cuda" else SMOKE, list[dict[str, Any]]()
    for what, rows, measure in measurements(device, timer, size):
        line: dict[str, Any] = {"what": what, "rows": rows}
        if deadline.left <= 0:
            found.append(line | {"why": NO_TIME})
            continue
        try:
            found.append(line | measure()._asdict())
        except Exception as error:  # the other lines, and attention, can still be measured
            found.append(line | {"why": f"{type(error).__name__}: {error}".splitlines()[0][:LONGEST]})
    return found


def pool_faults(found: Iterable[dict[str, Any]]) -> list[str]:
    """What could not be timed for another reason than time."""
    reasons = ((line, line.get("why", NO_TIME)) for line in found)
    return [f"pool: {line['what']}, {line['rows']} rows: {why}" for line, why in reasons if why != NO_TIME]


Measurement = tuple[str, int, Callable[[], Timing]]


def measurements(device: torch.device, timer: Timer, size: Size) -> list[Measurement]:
    """What is measured, of how many rows, and how."""
    first = size.rows[0]
    appends: list[Measurement] = [
        ("append, one position a row", rows, partial(append, device, timer, size, rows)) for rows in size.rows
    ]
    return [
        *appends,
        ("free", first, lambda: free(device, size)),
        (f"a decode step, {size.steps} in one graph", first, lambda: Steps(device, size).all_at_once()),
        ("a decode step, a graph for each", first, lambda: Steps(device, size).one_by_one()),
        ("a decode step, blocks from the host", first, lambda: Steps(device, size).by_the_host()),
    ]


def lengths_of(size: Size, rows: int, device: torch.device) -> Tensor:
    """(rows,) positions in the beginning."""
    return size.length + torch.arange(rows, device=device) % BLOCK_SIZE


def pool_for(device: torch.device, size: Size, rows: int, appends: int) -> DevicePool:
    """A pool with all its rows in use, and room for so many appends."""
    blocks = ceil_div(size.length + BLOCK_SIZE + appends, BLOCK_SIZE)
    pool = DevicePool(rows * blocks, BLOCK_SIZE, rows, blocks, device=device)
    pool.admit(None, lengths_of(size, rows, device))
    return pool


def served(pool: DevicePool) -> None:
    """Raises `RuntimeError` where something was refused: then another thing was timed than the line says."""
    counts = pool.outcome_counts.tolist()
    if any(counts[1:]):
        raise RuntimeError(f"rows were refused: {counts}")


def append(device: torch.device, timer: Timer, size: Size, rows: int) -> Timing:
    """The rows grow on and on, as in decoding: one in sixteen takes a block."""
    pool = pool_for(device, size, rows, size.appends)
    timing = timer.time([pool.append])
    served(pool)
    return timing


def free(device: torch.device, size: Size) -> Timing:
    """All rows end at once; what brings them back is not timed."""
    pool, lengths = pool_for(device, size, size.rows[0], 0), lengths_of(size, size.rows[0], device)

    def come() -> None:
        pool.admit(None, lengths)

    play, captured = player(device, pool.free, undo=come)
    play()
    again, _ = player(device, come, undo=pool.free)
    again()
    taken = list[float]()
    for _ in range(size.rounds):
        taken.append(elapsed(play) if device.type == "cuda" else waited(device, play))
        again()
    served(pool)
    return summary(taken, 1, captured)


class Steps:
    """Decode steps of one layer: blocks for a position a row, its KV written, attention over all."""

    def __init__(self, device: torch.device, size: Size) -> None:
        self.device, self.size, rows = device, size, size.rows[0]
        self.pool = pool_for(device, size, rows, (size.rounds + 4) * size.steps)
        shape = self.pool.shape.num_blocks, BLOCK_SIZE, size.num_kv_heads, size.head_dim
        self.k_cache, self.v_cache = torch.zeros(2, *shape, dtype=torch.bfloat16, device=device)
        generator = torch.Generator(device).manual_seed(0)

        def drawn(heads: int) -> Tensor:
            numbers = torch.randn(rows, heads, size.head_dim, device=device, generator=generator)
            return numbers.to(torch.bfloat16)

        self.key, self.value = drawn(size.num_kv_heads), drawn(size.num_kv_heads)
        self.query = drawn(size.num_kv_heads * size.group)
        self.out = torch.zeros_like(self.query)
        self.decode = DecodeStep(self.pool, [self.k_cache], [self.v_cache], out=self.out)

    def all_at_once(self) -> Timing:
        """Until the device has done them, a step: the host starts one graph of all steps."""

        def several() -> None:
            for _ in range(self.size.steps):
                self._step()

        play, captured = player(self.device, several)
        return self._timed(play, captured)

    def one_by_one(self) -> Timing:
        """The same, and the host starts a graph for each step."""
        play, captured = player(self.device, self._step)

        def several() -> None:
            for _ in range(self.size.steps):
                play()

        return self._timed(several, captured)

    def by_the_host(self) -> Timing:
        """The same, and the host hands the blocks out before it starts the graph of a step."""
        host = HostBlocks(self)
        play, captured = player(self.device, lambda: self._attend(*host.there))

        def several() -> None:
            for buffers in host.pinned:
                host.upload(buffers)
                play()

        return self._timed(several, captured)

    def _timed(self, several: Callable[[], None], captured: bool) -> Timing:
        for _ in range(2):
            waited(self.device, several)
        taken = [waited(self.device, several) for _ in range(self.size.rounds)]
        served(self.pool)
        return summary(taken, self.size.steps, captured)

    def _step(self) -> None:
        self.decode.begin()
        self.decode.attend(0, self.query, self.key, self.value)

    def _attend(self, tables: Tensor, seq_lens: Tensor, slots: Tensor) -> None:
        write_kv(self.key, self.value, self.k_cache, self.v_cache, slots)
        paged_attention(self.query, self.k_cache, self.v_cache, tables, seq_lens, out=self.out)


class HostBlocks:
    """The block manager of the same rows, and where its plans go: tables, lengths, slots."""

    def __init__(self, steps: Steps) -> None:
        shape, device = steps.pool.shape, steps.device
        self.manager = BlockManager(shape.num_blocks, BLOCK_SIZE, prefix_cache=False)
        self.tokens = np.zeros(shape.num_rows, np.int32)
        for row, length in enumerate(steps.pool.seq_lens.tolist()):
            self.manager.admit(row, [0] * length)
            self.manager.commit(row, length)
        self.rows = self.manager.rows(range(shape.num_rows))

        def made(**where: Any) -> list[Tensor]:
            tables = torch.zeros(shape.num_rows, shape.max_blocks, dtype=torch.int32, **where)
            lengths, slots = (
                torch.zeros(shape.num_rows, dtype=torch.int32, **where),
                torch.full((shape.num_rows,), -1, **where),
            )
            return [tables, lengths, slots]

        self.there = made(device=device)
        self.pinned = [made(pin_memory=device.type == "cuda") for _ in range(steps.size.steps)]
        """Buffers for each step of a round: what is on its way to the device is not written to."""

    def upload(self, buffers: list[Tensor]) -> None:
        """A position more for each row. Raises `RuntimeError` if one is refused."""
        plan = self.manager.append_batch(self.rows, self.tokens)
        if len(plan.refused):
            raise RuntimeError(f"{len(plan.refused)} rows were refused")
        tables, lengths, slots = (buffer.numpy() for buffer in buffers)
        width = min(tables.shape[1], plan.block_tables.shape[1])
        tables[:, :width], lengths[:], slots[:] = plan.block_tables[:, :width], plan.seq_lens, plan.slot_mapping
        for there, buffer in zip(self.there, buffers, strict=True):
            there.copy_(buffer, non_blocking=True)
        self.manager.commit_batch(self.rows, plan.seq_lens)


def player(device: torch.device, call: Call, undo: Call | None = None) -> tuple[Callable[[], None], bool]:
    """(what makes the call, whether it replays a graph). On a GPU it is made once, to compile it, and undone."""
    if device.type == "cuda":
        call()
        if undo is not None:
            undo()
        return recorded([call])

    def play() -> None:
        call()

    return play, False


def waited(device: torch.device, play: Callable[[], None]) -> float:
    """Seconds by the host's clock, until the device has done it."""
    start = time.perf_counter()
    play()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
