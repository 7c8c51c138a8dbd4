"""Compiling before it matters."""

from functools import cache

from pagedkv.optimized.cpu.support import missing
from pagedkv.optimized.warm import warm


@cache
def warmup() -> None:
    """Compile all of attention on the CPU: about 20 seconds, once for each installation, as the logger `pagedkv` says
    then; from the cache on disk in about a second. The first call of `paged_attention` does it if nobody has before.

    The loops are the same for all shapes, dtypes and options. Raises `RuntimeError` where `missing()` says why.
    """
    if missing() is not None:
        raise RuntimeError(f"attention on the CPU by compiled loops lacks {missing()}")
    from pagedkv.optimized.cpu.compiler import FOLDER  # noqa: PLC0415  # needs numba

    warm(FOLDER, "attention on the CPU", use_every_loop)


def use_every_loop() -> None:
    """One call of each function: of two requests, one with several spans, and one without positions."""
    import torch  # noqa: PLC0415  # loaded when it is needed

    from pagedkv.optimized.attention.arguments import AttentionCall, Mask  # noqa: PLC0415  # needs torch
    from pagedkv.optimized.cpu.backend import CpuBackend  # noqa: PLC0415  # needs numba

    def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device="cpu")  # whatever the defaults are

    backend, cache, tables = CpuBackend(), zeros(2, 16, 1, 8), zeros(2, 2, dtype=torch.int32)
    tables[:, 1] = 1
    lengths, query, lse = zeros(2, dtype=torch.int32), zeros(2, 1, 8), zeros(2, 1)
    lengths[0] = 32
    mask = Mask(1.0, True, None, 0.0, None, None)
    backend.attend(AttentionCall(query, cache, cache, tables, lengths, None, mask, query.clone(), lse, 16))
    backend.write_kv((query[:1], query[:1]), (cache, cache.clone()), zeros(1, dtype=torch.int64))
    backend.copier([cache], [cache])(tables[:1])
    backend.gather(cache, tables, zeros(3, dtype=torch.int32), None, query.clone())
    backend.merge(query[None], lse[None], query.clone(), lse.clone())
