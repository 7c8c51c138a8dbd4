"""A kernel launch as a value: it can be run on a GPU, interpreted, or compiled ahead of time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Launch:
    """`kernel[grid](*args, **kwargs)`."""

    name: str
    configuration: str
    """What distinguishes it from other launches of the same kernel, for people."""
    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    """Constants of the kernel, `num_warps` and `num_stages` among them."""
    reached: tuple[Any, ...] = ()
    """Tensors that the kernel reaches by addresses that it loads; as long as they are here, they are there."""

    def run(self) -> Any:
        """Launch. Returns the kernel as Triton has compiled it, or None for an empty grid, which launches nothing."""
        return self.kernel[self.grid](*self.args, **self.kwargs) if all(self.grid) else None

    def interpret(self) -> None:
        """Launch in Triton's interpreter, on tensors on the CPU; see `pagedkv.optimized.audit.interpret`."""
        from pagedkv.optimized.audit.interpret import Interpreted  # noqa: PLC0415  # Triton is needed only here

        replace(self, kernel=Interpreted(self.kernel, reached=self.reached)).run()
