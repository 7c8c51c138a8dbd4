"""What the device pool launches: how many launches an operation is, and what each costs on every target."""

import random
from collections import defaultdict
from collections.abc import Hashable
from itertools import cycle, product
from typing import Any, Final

import pytest
from torch import Tensor

pytest.importorskip("triton", reason="Triton exists for Linux only")

from pagedkv.optimized.audit.aot import KernelAudit
from pagedkv.optimized.audit.pairwise import pairs_of
from pagedkv.optimized.audit.targets import TARGETS
from pagedkv.optimized.device.shipped import (
    CHUNKS, DEMANDING, DTYPES, EITHER, KERNELS, OPERATIONS, ROWS, SINKS, SIZES, WIDTHS, WINDOW, WITHOUT_NUMBERS,
    Configuration, configurations, launch_for, launches_of, pairwise,
)  # fmt: skip
from pagedkv.optimized.launch import Launch

TARGET: Final = "sm_90"
EXTREMES: Final = (-(2**31), -1, 0, 1, 2**30, 2**31 - 1)
NUM_LAUNCHES: Final = {
    "admit": 2, "append": 2, "fork": 2, "import": 3, "free": 5, "truncate": 5, "window": 5, "hand_over": 6,
}  # fmt: skip


def specialisation(launch: Launch) -> tuple[Hashable, ...]:
    """What Triton compiles a launch for: equal ones are one compilation."""
    named = zip(launch.kernel.params, launch.args, strict=False)
    args = (_kind(arg, special=not parameter.do_not_specialize) for parameter, arg in named)
    return launch.kernel, *args, *sorted(launch.kwargs.items())


def _kind(arg: Tensor | int | None, *, special: bool) -> Hashable:
    if isinstance(arg, Tensor):
        return arg.dtype, special and arg.data_ptr() % 16 == 0
    return arg if arg is None else (arg >= 2**31, special and arg == 1, special and arg % 16 == 0)


def is_decision(kernel: str) -> bool:
    """Of one program for all rows, rather than of one for each row."""
    return kernel.endswith(("_decide", "_scan"))


# What is compiled.


def test_an_audit_is_of_what_the_configuration_says(pool_audits: list[KernelAudit]) -> None:
    found = [(each.target, each.kernel, each.configuration) for each in pool_audits]
    assert found == [(target, each.kernel, str(each)) for target, each in pairwise()]
    assert len(set(found)) == len(found)


def test_every_kernel_of_the_pool_is_fit_to_ship(pool_audits: list[KernelAudit]) -> None:
    """They read no KV, and multiply no matrices."""
    assert [(each, each.problems()) for each in pool_audits if each.problems()] == []
    assert [each for each in pool_audits if each.kv_load_bits or each.matrix or each.inner_loop] == []


def test_every_program_fits_a_multiprocessor(pool_audits: list[KernelAudit]) -> None:
    assert [each for each in pool_audits if each.occupancy == 0] == []


def test_programs_of_rows_leave_room_for_others(pool_audits: list[KernelAudit]) -> None:
    """There are as many as rows; the one program of a decision has the multiprocessor to itself."""
    of_rows = [each for each in pool_audits if not is_decision(each.kernel)]
    assert len({each.kernel for each in of_rows}) == 8
    assert min(each.occupancy for each in of_rows) >= 0.5


def test_every_kernel_is_compiled_for_every_target() -> None:
    launched = {each.name for operation in OPERATIONS for each in launches_of(usual(operation), TARGET)}
    assert launched == set(KERNELS)
    assert {(target, each.kernel) for target, each in pairwise()} == set(product(TARGETS, launched))
    assert set(product(TARGETS, DEMANDING)) <= set(pairwise())


def test_the_covering_set_has_every_pair_and_is_small() -> None:
    few, every = pairwise(), product(TARGETS, configurations())
    assert len(few) <= 100
    assert pairs_in(few) == pairs_in(list(every))


def pairs_in(work: Any) -> set[Hashable]:
    return set[Hashable]().union(*(pairs_of((target, *each)) for target, each in work))


def test_no_two_configurations_are_one_compilation() -> None:
    """But for tables of one entry, which two kernels go through in the smallest pieces whatever the operation."""
    every = configurations()
    assert len({str(each) for each in every}) == len(every)
    first = dict[Hashable, Configuration]()
    twice = [each for each in every if first.setdefault(specialisation(launch_for(each, TARGET)), each) != each]
    assert {(each.kernel, each.max_blocks) for each in twice} == {("release_drop", 1), ("release_mark", 1)}


def test_what_a_configuration_leaves_out_does_not_matter() -> None:
    """Whatever is called, each of its launches is compiled as some configuration is that has the same, as far as it has
    it: of another operation perhaps, or of more rows."""
    known = defaultdict[Hashable, set[Hashable]](set)
    for each in configurations():
        known[what_matters(each, each.kernel)].add(specialisation(launch_for(each, TARGET)))
    rng = random.Random(0)
    for call in (any_call(rng) for _ in range(500)):
        for launch in launches_of(call, TARGET):
            assert specialisation(launch) in known[what_matters(call, launch.name)], (launch.name, call)


def any_call(rng: random.Random) -> Configuration:
    operation = rng.choice(list(OPERATIONS))
    rows = rng.choice(DTYPES if operation == "fork" else ROWS)
    others: list[Any] = [rng.choice(values) for values in (DTYPES, EITHER, WINDOW, SINKS, SIZES, WIDTHS)]
    call = Configuration("", operation, rng.choice(CHUNKS), rows, *others)
    return call if call.window else call._replace(sinks=0)


def what_matters(call: Configuration, kernel: str) -> Hashable:
    """The kernel, and the values of its factors, but for the operation and the rows of the call."""
    names = [name for name in KERNELS[kernel] if name not in ("operation", "asked")]
    return kernel, *(getattr(call, name) for name in names if name != "numbers" or takes_numbers(call, kernel))


def takes_numbers(call: Configuration, kernel: str) -> bool:
    is_told_apart = call.operation in KERNELS[kernel]["operation"]
    return (call.operation if is_told_apart else call.operation.partition(" ")[0]) not in WITHOUT_NUMBERS


# How an operation is launched.


def usual(operation: str) -> Configuration:
    """A call as an engine makes it."""
    return Configuration("", operation, 256, "int64", "int32", True, 64, 0, 16, 256)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_always_as_many_launches(operation: str) -> None:
    """However many rows, and of whatever form."""
    calls = [each for each in configurations() if each.operation == operation]
    some = zip(calls[:: len(calls) // 20 + 1], cycle((0, 1, 31, 33, 2049, 5000)), strict=False)
    numbers = {len(launches_of(call._replace(asked=asked), TARGET, EXTREMES)) for call, asked in some}
    assert numbers == {NUM_LAUNCHES[operation.partition(" ")[0]]}


@pytest.mark.parametrize("target", TARGETS)
def test_a_decision_may_have_all_the_registers_that_there_are(target: str) -> None:
    """Where the assembler would set a limit of its own; a program of a row shares a multiprocessor with others."""
    launches = [each for operation in OPERATIONS for each in launches_of(usual(operation), target)]
    free = {each.name for each in launches if each.kwargs.get("maxnreg") == 255}
    nvidia = TARGETS[target].backend == "cuda"
    assert free == {each.name for each in launches if is_decision(each.name) and nvidia}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_grids_and_constants_follow_from_shapes_alone(operation: str) -> None:
    """So that what a graph has captured serves whatever the tensors hold."""
    described = {tuple((each.grid, specialisation(each)) for each in launches_of(usual(operation), TARGET, fill))
                 for fill in ((0,), (-1,), EXTREMES, range(97))}  # fmt: skip
    assert len(described) == 1
