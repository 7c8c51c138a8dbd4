"""A GPU on which nothing happens: launches go through all that Triton does on the host, and stop before the driver.

What a launch costs on the host can so be measured on any machine: binding of arguments, specialisation, the look-up of
the compiled kernel, the launcher's call. What is left out is the driver's own work. Tensors lie on the CPU.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pagedkv.optimized.audit.aot import AbsentDevice, made_active
from pagedkv.optimized.audit.targets import TARGETS, Target
from pagedkv.optimized.kernels.decode import decode_kernel
from pagedkv.optimized.kernels.merge import merge_kernel
from pagedkv.optimized.kernels.prefill import prefill_kernel


class IdleDevice(AbsentDevice):
    """As much of a Triton driver as launching asks for, too. Keeps what the last launches were given."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.launched: deque[tuple[Any, ...]] = deque(maxlen=16)
        self.loaded = 0
        self.utils = self

    def get_device_properties(self, device: Any) -> dict[str, int]:
        return {"max_shared_mem": TARGETS["sm_90"].max_shared_bytes}

    def load_binary(self, name: str, binary: bytes, shared: int, device: Any) -> tuple[Any, ...]:
        """Module, function (a number of its own), registers, spills, threads that a program may have."""
        self.loaded += 1
        return name, self.loaded, 0, 0, 1024

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        """What stands for the launcher that Triton compiles for a kernel."""
        return self.launch

    def launch(self, *args: Any) -> None:
        """`args`: grid (three numbers), stream, function, four more, then the arguments of the kernel."""
        self.launched.append((*args[:3], args[4], *args[9:]))


@contextmanager
def idle_device() -> Iterator[IdleDevice]:
    """Triton launches on a device that does nothing; afterwards all is as before."""
    device = IdleDevice(TARGETS["sm_90"])
    with made_active(device, (decode_kernel, merge_kernel, prefill_kernel)):
        yield device
