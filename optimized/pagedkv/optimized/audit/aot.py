"""Compiling the Triton kernels for GPUs that are not there, and reading the cost off the machine code.

Registers, spills, shared memory, loads and instructions of every shipped configuration are known without a GPU, for
four targets. That a kernel compiles, stays within its registers, fits the shared memory, loads KV 16 bytes at a time
and computes addresses in 64 bits is therefore checked on any machine; how fast it is, is not.

A kernel is specialised as a launch would: on the types, on what divides by 16, on what equals 1. Each compilation has
a cache of its own, so nothing is read from, or left in, the user's. Compiling the same sources with the same Triton
gives the same machine code, so the figures can be compared exactly.
"""

import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pagedkv.optimized.audit.address_check import arguments_of, kv_loads, narrow_products, places_of
from pagedkv.optimized.audit.machine_code import (
    inner_loop, instruction_mix, matrix_instructions, read_amdgcn, read_cubin, width_of_loads,
)  # fmt: skip
from pagedkv.optimized.audit.targets import TARGETS, Target, occupancy
from pagedkv.optimized.audit.ttir import parse
from pagedkv.optimized.launch import Launch
from pagedkv.optimized.lazy_triton import TRITON_LOCK, triton_module
from pagedkv.spec.words import Misuse

KV_LOAD_BITS = 128
"""The widest load of a thread, which a KV load must be where the layout allows it."""
UNDER_WAY = 4
"""Compiled kernels whose machine code is being read while the next ones are compiled."""


@dataclass(frozen=True)
class KernelAudit:
    """What one configuration of a kernel costs on one target."""

    kernel: str
    configuration: str
    target: str
    """A key of `TARGETS`."""
    registers: int
    """32-bit vector registers a thread."""
    spill_bytes: int
    """Bytes a thread keeps in memory for want of registers (NVIDIA: its stack; AMD: its scratch, and four bytes for
    each vector register spilled anywhere). 0 is what one wants."""
    shared_bytes: int
    """Shared memory (AMD: LDS) a program, in bytes."""
    instructions: int
    """Machine instructions, padding excluded."""
    seconds: float
    """How long it took to compile."""
    threads: int = 0
    """A program."""
    occupancy: float = 0.0
    """Resident warps / the most possible."""
    kv_load_bits: tuple[int, int] | None = None
    """The narrowest and the widest load of keys and values, in bits a thread; None if the kernel reads none."""
    kv_aligned: bool = False
    """Whether the layout allows KV loads of 16 bytes: see `is_aligned`."""
    matrix: tuple[str, ...] = ()
    """The matrix instructions."""
    inner_loop: Mapping[str, int] = field(default_factory=dict)
    """Instructions of one turn of the loop that reads KV, by class; NVIDIA only."""
    narrow_products: tuple[str, ...] = ()
    """Where an id is multiplied by a stride in less than 64 bits."""

    def problems(self) -> list[str]:
        """What makes it unfit to ship.

        It spills; it does not fit the shared memory of its target; it loads KV less than 16 bytes at a time though the
        layout allows it; it computes an address in 32 bits.
        """
        found = []
        if self.spill_bytes:
            found.append(f"spills {self.spill_bytes} bytes a thread")
        limit = TARGETS[self.target].max_shared_bytes
        if self.shared_bytes > limit:
            found.append(f"needs {self.shared_bytes} bytes of shared memory, {self.target} has {limit}")
        if self.kv_load_bits and self.kv_aligned and self.kv_load_bits[0] < KV_LOAD_BITS:
            found.append(f"loads KV {self.kv_load_bits[0]} bits a thread where the layout allows {KV_LOAD_BITS}")
        return [*found, *self.narrow_products]


def audit(
    work: Iterable[tuple[str, Launch]], progress: Callable[[KernelAudit], None] | None = None
) -> list[KernelAudit]:
    """Compile each launch for its target, a key of `TARGETS`; less than a second each.

    `progress` is called after each, in order. Raises `Misuse` for a target that is not there, `ImportError` without
    Triton, and what Triton raises for a kernel that does not compile.
    """
    audits, reading = list[KernelAudit](), deque[Future[KernelAudit]]()

    def take() -> None:
        audits.append(reading.popleft().result())
        if progress is not None:
            progress(audits[-1])

    with ThreadPoolExecutor(1) as disassembling:  # a process of its own does it, so it costs the compiler nothing
        for target, launch in work:
            compiled = _compiled(launch, target)
            reading.append(disassembling.submit(_read, launch, target, *compiled))
            if len(reading) > UNDER_WAY:
                take()
        while reading:
            take()
    return audits


def audit_launch(launch: Launch, target: str) -> KernelAudit:
    """Compile one launch for one target. Errors as in `audit`."""
    return _read(launch, target, *_compiled(launch, target))


def compile_for(
    kernel: Any,
    target: str,
    args: Sequence[Any],
    constants: Mapping[str, Any],
    *,
    name: str | None = None,
    configuration: str = "",
) -> KernelAudit:
    """Compile a `@triton.jit` kernel for a key of `TARGETS`, and read its cost off the result.

    `args` are examples of the run-time arguments: tensors on any device, integers, floats. `constants` are its
    compile-time constants, and options of the compiler such as `num_warps`. Nothing is launched. Errors as in `audit`.
    """
    name = getattr(kernel, "__name__", "kernel") if name is None else name
    return audit_launch(Launch(name, configuration, kernel, (1,), tuple(args), constants), target)


def compiled_kernel(launch: Launch, target: str) -> Any:
    """What Triton compiles of a launch: a `triton.compiler.CompiledKernel`, whose `asm` has every stage."""
    if target not in TARGETS:
        raise Misuse("target", target, f"one of {sorted(TARGETS)}")
    if not isinstance(launch.kernel, triton_module("triton.runtime.jit").JITFunction):
        raise Misuse("kernel", launch.kernel, "a function decorated with @triton.jit, without TRITON_INTERPRET=1")
    unset = {name for name in ("num_warps", "num_stages") if launch.kwargs.get(name) is None}
    options = {name: value for name, value in launch.kwargs.items() if name not in unset}
    with made_active(AbsentDevice(TARGETS[target]), [launch.kernel]):
        return launch.kernel.warmup(*launch.args, grid=(1,), **options)


def _compiled(launch: Launch, target: str) -> tuple[Any, float]:
    """The compiled kernel, and the seconds that it took."""
    started = time.perf_counter()
    return compiled_kernel(launch, target), time.perf_counter() - started


def _read(launch: Launch, target: str, compiled: Any, seconds: float) -> KernelAudit:
    """The cost of a compiled kernel."""
    limits = TARGETS[target]
    nvidia = limits.backend == "cuda"
    code = read_cubin(compiled) if nvidia else read_amdgcn(compiled)
    values = parse(compiled.asm["ttir"])
    loads = kv_loads(values)
    places = places_of(loads)
    shared_bytes = max(int(compiled.metadata.shared), code.static_bytes)
    return KernelAudit(
        launch.name,
        launch.configuration,
        target,
        code.registers,
        code.spill_bytes,
        shared_bytes,
        len(code.instructions),
        seconds,
        code.threads,
        round(occupancy(limits, code.registers, shared_bytes, code.threads), 4),
        width_of_loads(code, places),
        _kv_is_aligned(launch, arguments_of(loads)),
        matrix_instructions(code),
        instruction_mix(inner_loop(code, places)) if nvidia else {},
        tuple(narrow_products(values)),
    )


def _kv_is_aligned(launch: Launch, names: Collection[str]) -> bool:
    """Whether all tensors behind these arguments allow loads of 16 bytes; what was loaded may be an address instead."""
    given = dict(zip(launch.kernel.arg_names, launch.args, strict=False)) | dict(launch.kwargs)
    tensors = [*(given[name] for name in names if hasattr(given.get(name), "data_ptr")), *launch.reached]
    return bool(tensors) and all(is_aligned(tensor) for tensor in tensors)


def is_aligned(tensor: Any) -> bool:
    """Whether rows along the last dimension can be loaded 16 bytes at a time.

    The row is contiguous, its length and every other stride are multiples of 16 bytes, and it starts at one.
    """
    *outer, last = tensor.stride()
    steps = (tensor.shape[-1], *outer)
    whole = all(step * tensor.element_size() % (KV_LOAD_BITS // 8) == 0 for step in steps)
    return bool(last == 1 and whole and tensor.data_ptr() % (KV_LOAD_BITS // 8) == 0)


class AbsentDevice:
    """As much of a Triton driver as compiling asks for."""

    def __init__(self, target: Target) -> None:
        kind = triton_module("triton.backends.compiler").GPUTarget
        self._target = kind(target.backend, target.arch, target.warp_size)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> Any:
        return self  # keys the kernel's table of compiled variants, where 0 may be a real device

    def get_current_stream(self, device: Any) -> int:
        return 0


@contextmanager
def made_active(device: AbsentDevice, kernels: Sequence[Any]) -> Iterator[None]:
    """Triton's driver is the stand-in, with an empty cache; afterwards all is as before, for these kernels too."""
    driver, knobs = triton_module("triton.runtime.driver").driver, triton_module("triton.knobs")
    before = driver._active  # not `driver.active`, which fails where there is no GPU
    with TRITON_LOCK, tempfile.TemporaryDirectory() as cache, knobs.cache.scope():
        knobs.cache.dir = cache
        driver.set_active(device)
        try:
            yield
        finally:
            driver.set_active(before)
            for kernel in kernels:
                kernel.device_caches.pop(device, None)
