"""Whether the compiled loops can run here."""

import platform
from functools import cache
from importlib.util import find_spec

from pagedkv.optimized.loops.compiled import IS_COMPILED

NEEDED = {"x86_64": {"avx2", "fma", "f16c"}, "amd64": {"avx2", "fma", "f16c"}, "aarch64": {"neon"}, "arm64": {"neon"}}
"""Features that a processor must have, by its kind: vectors, products that are added at once, float16."""


@cache
def missing() -> str | None:
    """What they lack, or None if they can."""
    if find_spec("numba") is None:
        return 'numba: pip install "pagedkv[cpu]"'
    if not IS_COMPILED:
        return "compilation, which NUMBA_DISABLE_JIT turns off"
    from pagedkv.optimized.cpu.vector_code import processor  # noqa: PLC0415  # needs numba

    needed = NEEDED.get(platform.machine().lower())
    if needed is None:
        return f"a processor of kind x86-64 or aarch64 (it is {platform.machine()})"
    lacking = needed - processor()
    return f"{', '.join(sorted(lacking))} in the processor" if lacking else None


def described() -> str:
    """How wide vectors are, and whether bfloat16 is multiplied in pairs."""
    from pagedkv.optimized.cpu.simd import HAS_DOT, WIDTH  # noqa: PLC0415  # needs numba

    return f"vectors of {WIDTH}, bfloat16 {'in pairs' if HAS_DOT else 'as float32'}"
