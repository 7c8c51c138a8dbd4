"""Who carries an operation out: kernels on a GPU, loops on the CPU.

Both do the same to the state, down to the order of the free list.
"""

from typing import Any, Protocol

from torch import Tensor

from pagedkv.optimized.attention.backends import made_current
from pagedkv.optimized.device.plan import PoolPlan
from pagedkv.optimized.device.state import PoolShape, PoolState
from pagedkv.optimized.launch import Launch
from pagedkv.spec.words import Misuse


class Operations(Protocol):
    """What a `DevicePool` asks for, its arguments checked; rows None: all in order. What is returned as a tensor are
    outcomes, (num_asked,) int32."""

    def grow(
        self, rows: Tensor | None, counts: Tensor | None, where: Tensor | None, *, entering: bool, total: int | None
    ) -> PoolPlan: ...
    def fork(self, parents: Tensor, children: Tensor, where: Tensor | None) -> Tensor: ...
    def free(self, rows: Tensor | None, where: Tensor | None) -> Tensor: ...
    def truncate(
        self, rows: Tensor | None, lengths: Tensor, computed: Tensor | None, where: Tensor | None
    ) -> Tensor: ...
    def release_window(self, rows: Tensor | None, computed: Tensor | None, where: Tensor | None) -> Tensor: ...
    def hand_over(self, rows: Tensor | None, where: Tensor | None) -> Tensor: ...
    def import_(
        self, rows: Tensor | None, tables: Tensor, lengths: Tensor, num_holes: Tensor | None, where: Tensor | None,
        owning: bool,
    ) -> Tensor: ...  # fmt: skip


def operations_for(shape: PoolShape, state: PoolState) -> Operations:
    """Those of the device that the state is on. Raises `Misuse` if it has none."""
    device = state.numbers.device
    if device.type == "cuda":
        return KernelOperations(shape, state)
    if device.type != "cpu":
        raise Misuse("device", device, "a GPU that Triton knows (cuda), or the CPU")
    from pagedkv.optimized.device.on_the_cpu import LoopOperations, warmup  # noqa: PLC0415  # compiles

    warmup()
    return LoopOperations(shape, state)


class KernelOperations:
    """Of Triton's kernels; see `Operations`."""

    def __init__(self, shape: PoolShape, state: PoolState) -> None:
        from pagedkv.optimized.device import launches  # noqa: PLC0415  # needs Triton

        self.shape, self.state, self._launches = shape, state, launches

    def grow(
        self, rows: Tensor | None, counts: Tensor | None, where: Tensor | None, *, entering: bool, total: int | None
    ) -> PoolPlan:
        """Two launches."""
        launches, plan = self._launches.grow_launches(self.shape, self.state, rows, counts, where, entering, total)
        self._run(launches)
        return plan

    def fork(self, parents: Tensor, children: Tensor, where: Tensor | None) -> Tensor:
        """Two launches."""
        return self._outcome(self._launches.fork_launches(self.shape, self.state, parents, children, where))

    def free(self, rows: Tensor | None, where: Tensor | None) -> Tensor:
        """Five launches, and so have the following."""
        return self._outcome(self._launches.release_launches(self.shape, self.state, "free", rows, where))

    def truncate(self, rows: Tensor | None, lengths: Tensor, computed: Tensor | None, where: Tensor | None) -> Tensor:
        """Positions from lengths[i] on."""
        release = self._launches.release_launches
        return self._outcome(release(self.shape, self.state, "truncate", rows, where, lengths, computed))

    def release_window(self, rows: Tensor | None, computed: Tensor | None, where: Tensor | None) -> Tensor:
        """What the window has left behind."""
        release = self._launches.release_launches
        return self._outcome(release(self.shape, self.state, "window", rows, where, None, computed))

    def hand_over(self, rows: Tensor | None, where: Tensor | None) -> Tensor:
        """Six launches."""
        return self._outcome(self._launches.release_launches(self.shape, self.state, "hand over", rows, where))

    def import_(
        self, rows: Tensor | None, tables: Tensor, lengths: Tensor, num_holes: Tensor | None, where: Tensor | None,
        owning: bool,
    ) -> Tensor:  # fmt: skip
        """Three launches."""
        launches = self._launches.import_launches
        return self._outcome(launches(self.shape, self.state, rows, tables, lengths, num_holes, where, owning))

    def launch(self, launch: Launch) -> Any:
        """Run it; tests interpret it instead. See `Launch.run`."""
        with made_current(self.state.numbers.device):
            return launch.run()

    def _run(self, launches: list[Launch]) -> None:
        for launch in launches:
            self.launch(launch)

    def _outcome(self, prepared: tuple[list[Launch], Tensor]) -> Tensor:
        self._run(prepared[0])
        return prepared[1]
