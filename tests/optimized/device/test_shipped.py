"""What the device pool launches: how many launches an operation is, and what each costs on every target."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, product
from typing import Any, Final, NamedTuple

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton exists for Linux only")

from pagedkv.optimized.audit.aot import KernelAudit, audit
from pagedkv.optimized.audit.pairwise import covering, pairs_of
from pagedkv.optimized.audit.targets import TARGETS
from pagedkv.optimized.device.operations import KernelOperations
from pagedkv.optimized.device.pool import DevicePool
from pagedkv.optimized.launch import Launch

SPREAD: Final = 7919
"""A prime, to go through all cases in large steps."""
EXTREMES: Final = (-(2**31), -1, 0, 1, 2**30, 2**31 - 1)

SPILLED: Final = 8
"""Bytes a thread that the one program of a decision may keep in memory: it looks at up to four rows a thread, and reads
what is kept there back once. Half as many rows at a time need no such bytes, and twice as many rounds."""


def tables_for(pool: DevicePool, rows: Tensor) -> Tensor:
    """Block tables to import, as wide as the pool's."""
    return torch.zeros(len(rows), pool.shape.max_blocks, dtype=torch.int32)


Operation = Callable[[DevicePool, Tensor, Tensor, Tensor | None], object]
"""Of the pool, the rows, another number for each row, and `where`."""
OPERATIONS: Final[dict[str, Operation]] = {
    "admit": lambda pool, rows, other, where: pool.admit(rows, other, total=4 * len(rows), where=where),
    "append": lambda pool, rows, _, where: pool.append(rows, where=where),
    "append, counts": lambda pool, rows, other, where: pool.append(rows, other, total=4 * len(rows), where=where),
    "fork": lambda pool, rows, other, where: pool.fork(other, rows, where=where),
    "free": lambda pool, rows, _, where: pool.free(rows, where=where),
    "truncate": lambda pool, rows, other, where: pool.truncate(rows, other, where=where),
    "truncate, computed": lambda pool, rows, other, where: pool.truncate(rows, other, computed=rows, where=where),
    "hand_over": lambda pool, rows, _, where: pool.hand_over(rows, where=where),
    "import_": lambda pool, rows, other, where: pool.import_(rows, tables_for(pool, rows), other, where=where),
    "import_, owning": lambda pool, rows, other, where: pool.import_(
        rows, tables_for(pool, rows), other, num_holes=other, where=where, owning=True
    ),
    "release_window": lambda pool, rows, _, where: pool.release_window(rows, where=where),
    "release_window, computed": lambda pool, rows, other, where: pool.release_window(rows, computed=other, where=where),
}
NUM_LAUNCHES: Final = {
    "admit": 2, "append": 2, "fork": 2, "import_": 3, "free": 5, "truncate": 5, "release_window": 5, "hand_over": 6,
}  # fmt: skip
WITHOUT_OTHER: Final = ("append", "free", "hand_over", "release_window")


class Case(NamedTuple):
    """A call of an operation for a target; None for what does not matter to it."""

    target: str
    operation: str
    asked: int
    rows: torch.dtype
    other: torch.dtype | None
    where: bool
    window: tuple[int | None, int]
    """Positions and sinks."""
    block_size: int
    max_blocks: int


LARGE: Final = (
    Case("", "append, counts", 4096, torch.int64, torch.int64, True, (64, 5), 24, 63),
    Case("", "truncate, computed", 4096, torch.int64, torch.int64, True, (64, 5), 24, 63),
)
"""The decisions that need most registers, for every target."""


def cases() -> list[Case]:
    """All of them."""
    kinds = (torch.int32, torch.int64)
    windows = ((None, 0), (64, 0), (64, 5))
    factors = (TARGETS, OPERATIONS, (8, 256, 4096), kinds, kinds, (False, True), windows, (1, 16, 24), (1, 63, 4096))
    found = [Case(*each) for each in product(*factors)]
    return list(dict.fromkeys(c._replace(other=None) if c.operation in WITHOUT_OTHER else c for c in found))


def pairwise() -> list[Case]:
    """Few that have every pair of values, and for each target those that need most registers."""
    every = cases()
    mixed = [every[i * SPREAD % len(every)] for i in range(len(every))]
    large = [case._replace(target=target) for target in TARGETS for case in LARGE]
    return list(dict.fromkeys([*large, *(mixed[i] for i in covering(mixed))]))


class Recorded(KernelOperations):
    """Operations whose launches are kept, and do not run."""

    def __init__(self, pool: DevicePool) -> None:
        super().__init__(pool.shape, pool._state)
        self.launches = list[Launch]()

    def launch(self, launch: Launch) -> Any:
        self.launches.append(launch)


def launches_of(case: Case, fill: Sequence[int] = (0,)) -> list[Launch]:
    """What a call launches; its tensors are filled with these numbers, over and over."""
    window, sinks = case.window
    num_rows = max(1, case.asked)
    pool = DevicePool(
        8 * num_rows, case.block_size, num_rows, case.max_blocks, sliding_window=window, sink_tokens=sinks
    )
    pool._operations = recorded = Recorded(pool)
    numbers = torch.tensor(fill).repeat(case.asked + 1)
    rows = numbers[: case.asked].to(case.rows)
    other = numbers.roll(1)[: case.asked].to(case.other or torch.int32)
    OPERATIONS[case.operation](pool, rows, other, rows > 0 if case.where else None)
    return recorded.launches


def usual(operation: str) -> Case:
    """A call as an engine makes it."""
    return Case("sm_90", operation, 256, torch.int64, torch.int32, True, (64, 0), 16, 256)


def specialisation(launch: Launch) -> tuple[Any, ...]:
    """What Triton compiles a launch for: equal ones are one kernel."""
    named = zip(launch.kernel.params, launch.args, strict=False)
    args = (_kind(arg, special=not parameter.do_not_specialize) for parameter, arg in named)
    return launch.kernel, *args, *sorted(launch.kwargs.items())


def _kind(arg: Tensor | int | None, *, special: bool) -> object:
    if isinstance(arg, Tensor):
        return arg.dtype, special and arg.data_ptr() % 16 == 0
    return arg if arg is None else (arg >= 2**31, special and arg == 1, special and arg % 16 == 0)


@pytest.fixture(scope="module")
def audits() -> list[KernelAudit]:
    """Each kernel of the pairwise set, compiled once: about half a minute."""
    work = {(case.target, specialisation(each)): each for case in pairwise() for each in launches_of(case)}
    return audit((target, launch) for (target, _), launch in work.items())


def is_decision(kernel: str) -> bool:
    """Of one program for all rows, rather than of one for each row."""
    return kernel.endswith(("_decide", "_scan"))


def test_every_kernel_of_the_pool_is_fit_to_ship(audits: list[KernelAudit]) -> None:
    """They read no KV, so how wide their loads are is no problem."""
    problems = list[tuple[str, str, str, list[str]]]()
    for each in audits:
        forgiven = is_decision(each.kernel) and each.spill_bytes <= SPILLED
        found = replace(each, kv_load_bits=None, spill_bytes=0 if forgiven else each.spill_bytes).problems()
        problems.append((each.kernel, each.configuration, each.target, found))
    assert [each for each in problems if each[-1]] == []


def test_every_program_fits_a_multiprocessor(audits: list[KernelAudit]) -> None:
    assert [each for each in audits if each.occupancy == 0 or each.matrix] == []


def test_programs_of_rows_leave_room_for_others(audits: list[KernelAudit]) -> None:
    """There are as many as rows; the one program of a decision has the multiprocessor to itself."""
    of_rows = [each for each in audits if not is_decision(each.kernel)]
    assert len({each.kernel for each in of_rows}) == 8
    assert min(each.occupancy for each in of_rows) >= 0.5


def test_all_kernels_and_targets_are_among_what_is_compiled(audits: list[KernelAudit]) -> None:
    assert {each.target for each in audits} == set(TARGETS)
    every = {each.name for operation in OPERATIONS for each in launches_of(usual(operation))}
    assert {each.kernel for each in audits} == every


def test_the_covering_set_has_every_pair_and_is_small() -> None:
    few, every = pairwise(), cases()
    assert len(few) <= 60
    assert set[object]().union(*map(pairs_of, few)) == set[object]().union(*map(pairs_of, every))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_always_as_many_launches(operation: str) -> None:
    """However many rows, and of whatever form."""
    kinds = [case for case in cases() if case.operation == operation and case.target == "sm_90"]
    some = zip(kinds[:: len(kinds) // 20], cycle((0, 1, 31, 33, 2049, 5000)), strict=False)
    numbers = {len(launches_of(case._replace(asked=asked), EXTREMES)) for case, asked in some}
    assert numbers == {NUM_LAUNCHES[operation.partition(",")[0]]}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_grids_and_constants_follow_from_shapes_alone(operation: str) -> None:
    """So that what a graph has captured serves whatever the tensors hold."""
    case = usual(operation)
    described = {tuple((each.grid, specialisation(each)) for each in launches_of(case, fill))
                 for fill in ((0,), (-1,), EXTREMES, range(97))}  # fmt: skip
    assert len(described) == 1
