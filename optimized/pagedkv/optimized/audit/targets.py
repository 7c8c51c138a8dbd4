"""The GPUs that kernels are compiled for, and how many programs one of their multiprocessors holds at once."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pagedkv.spec.words import ceil_div

PARTITIONS: Final = 4
"""Of a multiprocessor, each with a register file of its own (AMD: SIMDs of a compute unit), on all targets here."""
REGISTERS_PER_LANE: Final = 512
"""Of a partition: 64 K registers for 4 x 32 lanes (NVIDIA), 512 vector registers (AMD)."""
REGISTER_STEP: Final = 8
"""Registers are handed out in multiples of it, a lane."""


class Target(NamedTuple):
    """A GPU to compile for: the fields of `triton.backends.compiler.GPUTarget`, and limits of a multiprocessor."""

    backend: str
    arch: int | str
    warp_size: int
    max_shared_bytes: int
    """What one program may have."""
    shared_bytes: int
    """What all programs of a multiprocessor have together."""
    shared_step: int
    """Shared memory is handed out in multiples of it, in bytes."""
    reserved_bytes: int
    """What the system takes of the shared memory for each program."""
    max_warps: int
    """A multiprocessor."""
    max_programs: int
    """A multiprocessor."""


TARGETS: Final[Mapping[str, Target]] = {
    "sm_80": Target("cuda", 80, 32, 163 * 1024, 164 * 1024, 128, 1024, 64, 32),
    "sm_90": Target("cuda", 90, 32, 227 * 1024, 228 * 1024, 128, 1024, 64, 32),
    "sm_100": Target("cuda", 100, 32, 227 * 1024, 228 * 1024, 128, 1024, 64, 32),
    "gfx942": Target("hip", "gfx942", 64, 64 * 1024, 64 * 1024, 512, 0, 32, 16),
}
"""NVIDIA A100, H100 and B200, AMD MI300.

Sources: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability" (8.0, 9.0, 10.0), and its
remark that a program takes 1 KiB of shared memory for the system from 8.0 on; for gfx942 what LLVM's AMDGPU back end
assumes (8 waves a SIMD, 512 registers, LDS in steps of 512 bytes, 16 programs of more than one wave).
"""


def occupancy(target: Target, registers: int, shared_bytes: int, threads: int) -> float:
    """Resident warps / the most possible, 0.0 to 1.0, of programs of `threads` threads.

    What limits them: registers (32-bit, a thread), shared memory (bytes a program), and how many warps and programs a
    multiprocessor holds. 0.0: not even one program fits.
    """
    step = REGISTER_STEP * ceil_div(max(1, registers), REGISTER_STEP)
    warps = PARTITIONS * min(target.max_warps // PARTITIONS, REGISTERS_PER_LANE // step)
    of_program = ceil_div(threads, target.warp_size)
    taken = target.shared_step * ceil_div(shared_bytes + target.reserved_bytes, target.shared_step)
    fit = target.max_programs if taken == 0 else target.shared_bytes // taken
    programs = min(target.max_programs, warps // of_program, fit)
    return programs * of_program / target.max_warps
