"""Compiling the Triton kernels for GPUs that are not there, and reading the cost off the machine code.

Registers, spills, shared memory and instructions of every shipped configuration are known without a GPU, for four
targets. That a kernel compiles, stays within its registers and fits the shared memory is therefore checked on any
machine; how fast it is, is not.

A kernel is specialised as a launch would: on the types, on what divides by 16, on what equals 1. Each compilation has
a cache of its own, so nothing is read from, or left in, the user's.
"""

import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from pagedkv.optimized.launch import Launch
from pagedkv.optimized.lazy_triton import TRITON_LOCK, triton_module
from pagedkv.spec.words import Misuse


class Target(NamedTuple):
    """A GPU to compile for: the fields of `triton.backends.compiler.GPUTarget`, and its shared memory."""

    backend: str
    arch: int | str
    warp_size: int
    max_shared_bytes: int
    """What one program may have, in bytes."""


TARGETS: Final[Mapping[str, Target]] = {
    "sm_80": Target("cuda", 80, 32, 163 * 1024),
    "sm_90": Target("cuda", 90, 32, 227 * 1024),
    "sm_100": Target("cuda", 100, 32, 227 * 1024),
    "gfx942": Target("hip", "gfx942", 64, 64 * 1024),
}
"""NVIDIA A100, H100 and B200, AMD MI300. By the vendors' tables of compute capabilities, and of accelerators."""


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

    def problems(self) -> list[str]:
        """What makes it unfit to ship: it spills, or does not fit the shared memory of its target."""
        found = []
        if self.spill_bytes:
            found.append(f"spills {self.spill_bytes} bytes a thread")
        limit = TARGETS[self.target].max_shared_bytes
        if self.shared_bytes > limit:
            found.append(f"needs {self.shared_bytes} bytes of shared memory, {self.target} has {limit}")
        return found


def audit(
    targets: Iterable[str] | None = None,
    kernels: Iterable[str] | None = None,
    progress: Callable[[KernelAudit], None] | None = None,
    launches: Iterable[Launch] | None = None,
) -> list[KernelAudit]:
    """Compile every shipped configuration for every target; about a second each.

    `targets` are keys of `TARGETS`, `kernels` names of launches, by default all. `progress` is called after each.
    `launches` replaces the shipped ones. Raises `Misuse` for a target or kernel that is not there, `ImportError`
    without Triton, and what Triton raises for a kernel that does not compile.
    """
    if launches is None:
        from pagedkv.optimized.attention.shipped import shipped_launches  # noqa: PLC0415  # needs torch and Triton

        launches = shipped_launches()
    chosen = list(launches)
    if kernels is not None:
        wanted, names = list(kernels), {launch.name for launch in chosen}
        for name in wanted:
            if name not in names:
                raise Misuse("kernels", name, f"one of {sorted(names)}")
        chosen = [launch for launch in chosen if launch.name in wanted]
    audits = []
    for target in list(TARGETS if targets is None else targets):
        for launch in chosen:
            audits.append(audit_launch(launch, target))
            if progress is not None:
                progress(audits[-1])
    return audits


def audit_launch(launch: Launch, target: str) -> KernelAudit:
    """Compile one launch for one target. Errors as in `audit`."""
    constants = dict(launch.kwargs)
    options = {name: constants.pop(name, None) for name in ("num_warps", "num_stages")}
    return compile_for(
        launch.kernel, target, launch.args, constants, **options, name=launch.name, configuration=launch.configuration
    )


def compile_for(
    kernel: Any,
    target: str,
    args: Sequence[Any],
    constants: Mapping[str, Any],
    num_warps: int | None = None,
    num_stages: int | None = None,
    *,
    name: str | None = None,
    configuration: str = "",
) -> KernelAudit:
    """Compile a `@triton.jit` kernel for a key of `TARGETS`, and read its cost off the result.

    `args` are examples of the run-time arguments: tensors on any device, integers, floats. `constants` are its
    compile-time constants, and further options of the compiler such as `maxnreg`. Nothing is launched.
    """
    if target not in TARGETS:
        raise Misuse("target", target, f"one of {sorted(TARGETS)}")
    if not isinstance(kernel, triton_module("triton.runtime.jit").JITFunction):
        raise Misuse("kernel", kernel, "a function decorated with @triton.jit, without TRITON_INTERPRET=1")
    options = {k: v for k, v in {"num_warps": num_warps, "num_stages": num_stages}.items() if v is not None}
    started = time.perf_counter()
    with TRITON_LOCK, _compiling_for(kernel, TARGETS[target]):
        compiled = kernel.warmup(*args, grid=(1,), **constants, **options)
    seconds = time.perf_counter() - started
    read = _read_cubin if TARGETS[target].backend == "cuda" else _read_amdgcn
    registers, spill_bytes, static_bytes, instructions = read(compiled)
    shared_bytes = max(int(compiled.metadata.shared), static_bytes)
    kernel_name = kernel.__name__ if name is None else name
    return KernelAudit(kernel_name, configuration, target, registers, spill_bytes, shared_bytes, instructions, seconds)


class _AbsentDevice:
    """As much of a Triton driver as compiling asks for."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> Any:
        return self  # keys the kernel's table of compiled variants, where 0 may be a real device

    def get_current_stream(self, device: Any) -> int:
        return 0


@contextmanager
def _compiling_for(kernel: Any, target: Target) -> Iterator[None]:
    """Make the target current, with an empty cache; afterwards all is as before."""
    driver = triton_module("triton.runtime.driver").driver
    knobs = triton_module("triton.knobs")
    gpu_target = triton_module("triton.backends.compiler").GPUTarget
    device = _AbsentDevice(gpu_target(target.backend, target.arch, target.warp_size))
    before = driver._active  # not `driver.active`, which fails where there is no GPU
    with tempfile.TemporaryDirectory() as cache, knobs.cache.scope():
        knobs.cache.dir = cache
        driver.set_active(device)
        try:
            yield
        finally:
            driver.set_active(before)
            kernel.device_caches.pop(device, None)


class _Cost(NamedTuple):
    registers: int
    spill_bytes: int
    static_bytes: int
    """Shared memory that the machine code itself declares."""
    instructions: int


def _read_cubin(compiled: Any) -> _Cost:
    """By the `cuobjdump` and `nvdisasm` that Triton brings."""
    tools = triton_module("triton.knobs").nvidia
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(compiled.asm["cubin"])
        usage = _output(tools.cuobjdump.path, "--dump-resource-usage", str(cubin))
        code = _output(tools.nvdisasm.path, "--print-code", str(cubin))
    _, _, of_kernel = usage.partition(f"Function {compiled.name}:")
    stack, local = _number(r"\bSTACK:(\d+)", of_kernel), _number(r"\bLOCAL:(\d+)", of_kernel)
    mnemonics = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", code, re.MULTILINE)
    return _Cost(
        _number(r"\bREG:(\d+)", of_kernel),
        stack + local,
        _number(r"\bSHARED:(\d+)", of_kernel),
        sum(mnemonic != "NOP" for mnemonic in mnemonics),
    )


def _read_amdgcn(compiled: Any) -> _Cost:
    """From the assembly, whose metadata the compiler writes itself."""
    text: str = compiled.asm["amdgcn"]
    scratch, spilled = (
        _number(rf"\.{key}:\s+(\d+)", text) for key in ("private_segment_fixed_size", "vgpr_spill_count")
    )
    mnemonics = re.findall(r"^\t((?:s|v|ds|buffer|global|flat|scratch)_\w+)", text, re.MULTILINE)
    return _Cost(
        _number(r"\.vgpr_count:\s+(\d+)", text),
        max(scratch, 4 * spilled),
        _number(r"\.group_segment_fixed_size:\s+(\d+)", text),
        sum(mnemonic not in {"s_nop", "s_code_end"} for mnemonic in mnemonics),
    )


def _number(pattern: str, text: str) -> int:
    """The first match; an output that lacks it is not understood, which is no zero."""
    match = re.search(pattern, text)
    if match is None:
        raise RuntimeError(f"cannot read the compiled kernel: no {pattern!r} in {text[:200]!r}")
    return int(match.group(1))


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
