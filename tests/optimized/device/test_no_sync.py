"""No operation waits for the device: on tensors that have no values, each does all that it does on the host.

Whatever looked at a value there, as `.item()`, a boolean index or a shape that depends on one would, raises
`DataDependentOutputException`. Launches are counted, and not run.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

pytest.importorskip("triton", reason="Triton exists for Linux only")

from pagedkv.optimized import DevicePool
from pagedkv.optimized.device import pool as pool_module
from pagedkv.optimized.device.operations import KernelOperations
from pagedkv.optimized.launch import Launch

OPERATIONS: dict[str, tuple[Callable[[DevicePool, torch.Tensor], object], int]] = {
    "admit": (lambda pool, rows: pool.admit(rows, rows, total=100, where=rows > 2), 2),
    "append": (lambda pool, rows: pool.append(rows, rows, total=100), 2),
    "append one": (lambda pool, rows: pool.append(None), 2),
    "fork": (lambda pool, rows: pool.fork(rows, rows), 2),
    "truncate": (lambda pool, rows: pool.truncate(rows, rows, computed=rows), 5),
    "free": (lambda pool, rows: pool.free(rows, where=rows > 2), 5),
    "release_window": (lambda pool, rows: pool.release_window(rows), 5),
    "import_": (lambda pool, rows: pool.import_(rows, pool.block_tables, rows, num_holes=rows), 3),
    "hand_over": (lambda pool, rows: pool.hand_over(rows), 6),
    "export": (lambda pool, rows: pool.export(rows), 0),
    "lease": (lambda pool, rows: pool.lease(rows), 0),
    "return_lease": (lambda pool, rows: pool.return_lease(3), 0),
    "end_loan": (lambda pool, rows: pool.end_loan(rows), 0),
    "permute": (lambda pool, rows: pool.permute(torch.arange(64)), 0),
    "check": (lambda pool, rows: pool.check(), 0),
    "warm_up": (lambda pool, rows: pool.warm_up(), 128),
}
"""Each operation, and how many launches it is, whatever its tensors hold."""


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of what a GPU would launch. A torch that is built without CUDA cannot slice a tensor of a GPU,
    not even one without values, so these are on the CPU; what the host does for a GPU does not depend on it."""
    names: list[str] = []

    def note(self: KernelOperations, launch: Launch) -> None:
        names.append(launch.name)

    monkeypatch.setattr(KernelOperations, "launch", note)
    monkeypatch.setattr(pool_module, "operations_for", KernelOperations)
    with FakeTensorMode():
        yield names


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_looks_at_no_value(name: str, launched: list[str]) -> None:
    operation, launches = OPERATIONS[name]
    pool = DevicePool(64, 4, 8, 16, sliding_window=5)
    operation(pool, torch.arange(8))
    assert len(launched) == launches


def test_every_operation_is_here() -> None:
    public = {name for name, found in vars(DevicePool).items() if not name.startswith("_") and callable(found)}
    assert public - {"copy"} == {name.removesuffix(" one") for name in OPERATIONS}


def test_whatever_looks_at_a_value_is_noticed(launched: list[str]) -> None:
    pool = DevicePool(64, 4, 8, 16)
    with pytest.raises(DataDependentOutputException):
        int(pool.num_free)
