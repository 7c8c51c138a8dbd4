"""What some code launches, caught instead of run: so a stranger's kernel is audited as its own host code calls it.

    with recording_launches(module, "attention_kernel") as launches:
        module.attention(query, cache, …)  # tensors on the CPU
    audit(("sm_90", launch) for launch in launches)

Nothing is launched, so what the code does with the results is of no use.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from pagedkv.optimized.launch import Launch


class _Recorder:
    """Stands in for a `@triton.jit` kernel."""

    def __init__(self, kernel: Any, launches: list[Launch], configuration: str) -> None:
        self._kernel, self._launches, self._configuration = kernel, launches, configuration

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            sizes = tuple(grid(kwargs) if callable(grid) else grid)
            name = self._kernel.__name__
            self._launches.append(Launch(name, self._configuration, self._kernel, sizes, args, kwargs))

        return launch


@contextmanager
def recording_launches(module: ModuleType, *kernels: str, configuration: str = "") -> Iterator[list[Launch]]:
    """The launches of these kernels, global names of `module`, by what is called inside; the names are put back."""
    launches, before = list[Launch](), {name: getattr(module, name) for name in kernels}
    try:
        for name, kernel in before.items():
            setattr(module, name, _Recorder(kernel, launches, configuration))
        yield launches
    finally:
        for name, kernel in before.items():
            setattr(module, name, kernel)
