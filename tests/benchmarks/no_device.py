"""A GPU on which nothing happens: launches go through all that Triton does on the host, and stop before the driver.

What a launch costs on the host can so be measured on any machine: binding of arguments, specialisation, the look-up of
the compiled kernel, the launcher's call. What is left out is the driver's own work. Tensors lie on the CPU.
"""

import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pagedkv.optimized.audit.targets import TARGETS
from pagedkv.optimized.kernels.decode import decode_kernel
from pagedkv.optimized.kernels.merge import merge_kernel
from pagedkv.optimized.kernels.prefill import prefill_kernel
from pagedkv.optimized.lazy_triton import TRITON_LOCK, triton_module


class IdleDevice:
    """As much of a Triton driver as launching asks for. Keeps what the last launches were given."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.launched: deque[tuple[Any, ...]] = deque(maxlen=16)
        self.loaded = 0
        self.utils = self

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> Any:
        return self  # keys a kernel's table of compiled variants, where 0 may be a real device

    def get_current_stream(self, device: Any) -> int:
        return 0

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
    driver, knobs = triton_module("triton.runtime.driver").driver, triton_module("triton.knobs")
    sm_90, gpu_target = TARGETS["sm_90"], triton_module("triton.backends.compiler").GPUTarget
    device = IdleDevice(gpu_target(sm_90.backend, sm_90.arch, sm_90.warp_size))
    before = driver._active  # not `driver.active`, which fails where there is no GPU
    with TRITON_LOCK, tempfile.TemporaryDirectory() as cache, knobs.cache.scope():
        knobs.cache.dir = cache
        driver.set_active(device)
        try:
            yield device
        finally:
            driver.set_active(before)
            for kernel in (decode_kernel, merge_kernel, prefill_kernel):
                kernel.device_caches.pop(device, None)
