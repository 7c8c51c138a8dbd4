"""A kernel launch as a value: it can be run on a GPU, interpreted, or compiled ahead of time."""

from collections.abc import Mapping
from dataclasses import dataclass
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

    def run(self) -> None:
        """Launch. An empty grid launches nothing."""
        if all(self.grid):
            self.kernel[self.grid](*self.args, **self.kwargs)
