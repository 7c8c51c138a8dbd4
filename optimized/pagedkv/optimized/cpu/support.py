"""Whether the compiled loops can run here."""

import platform
from functools import cache
from importlib.util import find_spec

from pagedkv.optimized.loops.compiled import IS_COMPILED

NEEDED = {"x86_64": {"avx2", "fma", "f16c"}, "amd64": {"avx2", "fma", "f16c"}, "aarch64": {"neon"}, "arm64": {"neon"}}
"""Features that a processor must have, by its kind: vectors, products that are added at once, float16."""


@cache
def missing() -> str | None:
    """What they lack, or None: they can."""
    if find_spec("numba") is None:
        return 'numba: pip install "pagedkv[cpu]"'
    if not IS_COMPILED:
        return "compilation, which NUMBA_DISABLE_JIT turns off"
    from pagedkv.optimized.cpu.vector_code import processor  # noqa: PLC0415  # needs numba

    lacking = NEEDED.get(platform.machine().lower(), {"a processor of kind x86-64 or aarch64"}) - processor()
    return f"of the processor {', '.join(sorted(lacking))}" if lacking else None
