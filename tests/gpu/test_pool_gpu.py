"""The device pool on a GPU is the pool on the CPU, bit for bit and each time; it waits for nothing, and is captured.

On the CPU the kernels are interpreted, over few rows and few calls, and nothing is captured: see `pool_programs`.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from pagedkv.optimized.device import DecodeStep, DevicePool, RowOutcome
from tests.gpu.pool_programs import Call, differing, moved, pool_on, program, state_of, tensors_of, twin
from tests.gpu.site import Site, same_bits
from tests.optimized.device.programs import calls, draw_pool

SHAPES: Final[list[tuple[int, dict[str, int]]]] = [
    (16, {}),
    (1, {"sliding_window": 3}),
    (5, {"sliding_window": 9, "sink_tokens": 7, "max_rollback": 4}),
]
"""Block sizes, and windows."""
MANY: Final = {"cpu": 5, "cuda": 4096}
"""Rows: on a GPU more than are decided about at once."""
NUM_CALLS: Final = {"cpu": 25, "cuda": 60}


def small_and_tight(site: Site, block_size: int, **options: Any) -> tuple[DevicePool, DevicePool]:
    """A pool on the device, and the same on the CPU. Half of what is asked for finds no block, or no place."""
    rows = MANY[site.name]
    shape = (3 * rows, block_size, rows, 6)
    return pool_on(site, *shape, **options), DevicePool(*shape, **options)


def alike(found: list[Tensor], wanted: list[Tensor]) -> bool:
    return all(same_bits(a.cpu(), b.cpu()) for a, b in zip(found, wanted, strict=True))


def follow(calls: Iterable[Call], device: DevicePool, host: DevicePool) -> list[Call]:
    """Make the calls on both; answers and states agree after each."""
    made = list[Call]()
    for call in calls:
        assert alike(call.on(device), call.on(host)), (len(made), call)
        assert differing(device, host) == [], (len(made), call)
        made.append(call)
    return made


@pytest.mark.parametrize(("block_size", "options"), SHAPES)
def test_random_programs_leave_what_they_leave_on_the_cpu(site: Site, block_size: int, options: dict[str, int]) -> None:
    for seed in range(3):
        device, host = small_and_tight(site, block_size, **options)
        made = follow(program(host, NUM_CALLS[site.name], seed), device, host)
        assert not host.check().any(), made
        assert not device.check().any(), made


@pytest.mark.parametrize(("block_size", "options"), SHAPES)
def test_from_the_same_state_come_the_same_bits(site: Site, block_size: int, options: dict[str, int]) -> None:
    """Twenty times: which program of a launch comes first decides nothing."""
    start, host = small_and_tight(site, block_size, **options)
    follow(program(host, NUM_CALLS[site.name], 1), start, host)
    calls = follow(program(host, NUM_CALLS[site.name], 2), twin(site, start), host)
    for _ in range(2 if site.name == "cpu" else 20):
        device = twin(site, start)
        for call in calls:
            call.on(device)
        assert differing(device, host) == []


def test_programs_with_a_host_leave_what_they_leave_on_the_cpu(site: Site) -> None:
    """Those that hold the interpreted kernels: a quarter of the pools are leased, and rows are imported and handed
    over."""
    methods = set[str]()
    for seed in range(6 if site.name == "cpu" else 300):
        rng = random.Random(seed)
        host = draw_pool(rng)
        device = moved(site, host)
        for call in calls(rng, host, 12):
            methods.add(call.method)
            again = Call(call.method, dict(call.arguments))
            assert alike(again.on(device), list(call.on(host))), (seed, call)
            assert differing(device, host) == [], (seed, call)
    assert site.name == "cpu" or {"import_", "hand_over", "lease", "end_loan", "export"} <= methods


@pytest.mark.parametrize("window", [None, 5])
def test_a_captured_decode_step_is_the_step(site: Site, window: int | None) -> None:
    """Append, copies, write and attention in one graph: replayed, it gives the bits of steps made one by one."""
    rows, layers, device = 6, 2, site.device
    steps, draws = list[DecodeStep](), list[list[Tensor]]()
    for _ in range(2):
        pool = pool_on(site, 24, 4, rows, 12, sliding_window=window)
        generator = torch.Generator().manual_seed(0)
        caches = [torch.zeros(24, 4, 2, 16, device=device) for _ in range(2 * layers)]
        pool.admit(torch.arange(2, device=device), torch.tensor([5, 0], device=device))
        pool.fork(torch.tensor([0, 0, 1], device=device), torch.tensor([2, 3, 4], device=device))
        steps.append(DecodeStep(pool, caches[:layers], caches[layers:]))
        draws.append([torch.zeros(layers, rows, heads, 16, device=device) for heads in (4, 2, 2)])

    def once(step: DecodeStep, drawn: list[Tensor]) -> list[Tensor]:
        plan = step.begin(where=step.pool.in_use > 0)
        query, key, value = drawn
        return [*plan, *(step.attend(i, query[i], key[i], value[i]) for i in range(layers))]

    replay, answers = captured_step(site, lambda: once(steps[0], draws[0]), steps[0])
    for _ in range(12):
        for name in range(3):
            drawn = torch.randn(draws[0][name].shape, generator=generator)
            draws[0][name].copy_(drawn)
            draws[1][name].copy_(drawn)
        replay()
        assert alike(answers(), [each.cpu() for each in once(steps[1], draws[1])])
        assert differing(steps[0].pool, steps[1].pool) == []


def captured_step(
    site: Site, step: Callable[[], list[Tensor]], decode: DecodeStep
) -> tuple[Callable[[], object], Callable[[], list[Tensor]]]:
    """As `captured`; what the warm-up did to pool and caches is undone."""
    last = list[Tensor]()

    def once() -> None:
        last[:] = step()

    if site.name == "cpu":
        return once, lambda: last
    kept = [*state_of(decode.pool).values(), *decode.k_caches, *decode.v_caches]
    before = [tensor.clone() for tensor in kept]
    once()
    torch.cuda.synchronize()
    for tensor, value in zip(kept, before, strict=True):
        tensor.copy_(value)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        once()
    return graph.replay, lambda: last


def test_the_programs_serve_and_refuse() -> None:
    """Else the tests above would show little."""
    pools = [DevicePool(blocks, 5, 5, 6, sliding_window=9, sink_tokens=7) for blocks in (2, 15)]
    for pool in pools:
        for call in program(pool, 1500, 0):
            call.on(pool)
    counts = torch.stack([pool.outcome_counts for pool in pools]).sum(0)
    assert all(counts[: RowOutcome.BAD_TABLE].tolist())


# Steps, as an engine makes them: `flags` (num_rows,) say which rows end, or have begun, in this step.


def append(pool: DevicePool, flags: Tensor) -> list[Tensor]:
    """One position more for all."""
    return [*pool.append()]


def append_and_free(pool: DevicePool, flags: Tensor) -> list[Tensor]:
    """Then some end."""
    return [*pool.append(), pool.free(where=flags)]


def append_and_release(pool: DevicePool, flags: Tensor) -> list[Tensor]:
    """What the window has left behind is given back."""
    plan = pool.append(where=flags)
    return [*plan, pool.release_window(where=plan.outcome == 0)]


def fork_and_free(pool: DevicePool, flags: Tensor) -> list[Tensor]:
    """The lower half are forked into the upper one, some of both grow, and the children end."""
    half = pool.shape.num_rows // 2
    rows = torch.arange(2 * half, device=pool.device)
    answers = [pool.fork(rows[:half], rows[half:], where=flags[:half])]
    return [*answers, *pool.append(rows, where=flags[: 2 * half]), pool.free(rows[half:])]


STEPS: Final[dict[str, Callable[[DevicePool, Tensor], list[Tensor]]]] = {
    "append": append, "append and free": append_and_free, "release_window": append_and_release,
    "fork and free": fork_and_free,
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_captured_steps_are_those_of_the_cpu(site: Site, name: str) -> None:
    """One graph, replayed with other flags: allocation, refusals and what is given back follow the state."""
    step, rows = STEPS[name], MANY[site.name]
    device, host = (prefilled(pool) for pool in small_and_tight(site, 2, sliding_window=4))
    flags = torch.zeros(rows, dtype=torch.bool, device=site.device)
    replay, answers = captured(site, step, device, flags)
    generator = torch.Generator().manual_seed(3)
    for _ in range(10 if site.name == "cpu" else 60):
        drawn = torch.rand(rows, generator=generator) < 0.3
        flags.copy_(drawn)
        replay()
        assert alike(answers(), step(host, drawn))
        assert differing(device, host) == []
    assert not device.check().any()


def prefilled(pool: DevicePool) -> DevicePool:
    """The lower half of the rows are in use."""
    rows = torch.arange(pool.shape.num_rows // 2, device=pool.device)
    pool.admit(rows, rows % 5)
    return pool


def captured(
    site: Site, step: Callable[[DevicePool, Tensor], list[Tensor]], pool: DevicePool, flags: Tensor
) -> tuple[Callable[[], object], Callable[[], list[Tensor]]]:
    """(what makes the step, what it has answered then). A graph on a GPU; nothing has happened to the pool yet."""
    last = list[Tensor]()

    def once() -> None:
        last[:] = step(pool, flags)

    if site.name == "cpu":
        return once, lambda: last
    step(twin(site, pool), flags)  # compiles
    torch.cuda.synchronize()
    before, graph = {name: value.clone() for name, value in state_of(pool).items()}, torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        once()
    assert all(same_bits(value, before[name]) for name, value in state_of(pool).items())
    return graph.replay, lambda: last


Quiet = Callable[[DevicePool, Tensor, Tensor], object]
CALLS: Final[dict[str, Quiet]] = {
    "admit": lambda pool, rows, flags: pool.admit(rows, rows % 7, total=7 * len(rows)),
    "append": lambda pool, rows, flags: pool.append(where=flags),
    "append counts": lambda pool, rows, flags: pool.append(rows, rows % 3, total=2 * len(rows), where=flags),
    "fork": lambda pool, rows, flags: pool.fork(rows, rows.flip(0), where=flags),
    "truncate": lambda pool, rows, flags: pool.truncate(None, rows % 3, computed=rows % 2, where=flags),
    "release_window": lambda pool, rows, flags: pool.release_window(computed=rows % 2),
    "free": lambda pool, rows, flags: pool.free(where=flags),
    "permute": lambda pool, rows, flags: pool.permute(torch.arange(pool.shape.num_blocks, device=pool.device)),
    "check": lambda pool, rows, flags: pool.check(),
    "warm_up": lambda pool, rows, flags: pool.warm_up(3),
    "copy": lambda pool, rows, flags: pool.copy(),
    "import_": lambda pool, rows, flags: pool.import_(rows, pool.block_tables.clone(), rows * 0, where=flags),
    "export": lambda pool, rows, flags: pool.export(rows),
    "hand_over": lambda pool, rows, flags: pool.hand_over(where=flags),
    "return_lease": lambda pool, rows, flags: pool.return_lease(2),
    "lease": lambda pool, rows, flags: pool.lease(rows[:0]),
    "end_loan": lambda pool, rows, flags: pool.end_loan(rows[:0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_operation_does_not_wait_for_the_device(site: Site, name: str) -> None:
    device, _ = small_and_tight(site, 4, sliding_window=6)
    rows = torch.arange(MANY[site.name], device=site.device)
    flags = rows % 3 > 0
    CALLS["admit"](device, rows, flags)
    CALLS[name](device, rows, flags)  # compiles
    with site.no_waiting():
        tensors_of(device.append())
        CALLS[name](device, rows, flags)
        CALLS[name](device, rows, flags)


def test_no_operation_is_left_out() -> None:
    public = {name for name, value in vars(DevicePool).items() if callable(value) and not name.startswith("_")}
    assert {name.partition(" ")[0] for name in CALLS} == public
