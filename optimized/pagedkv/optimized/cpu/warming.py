"""Compiling before it matters."""

from functools import cache

from pagedkv.optimized.cpu.support import missing
from pagedkv.optimized.warm import warm


@cache
def warmup() -> None:
    """Compile all of attention on the CPU: some seconds, once for each installation, as the logger `pagedkv` says then;
    from the cache on disk in well under a second. The first call of `paged_attention` does it if nobody has before.

    The loops are the same for all shapes, dtypes and options. Raises `RuntimeError` if they cannot run here.
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

    backend, cache, tables = CpuBackend(), torch.zeros(2, 16, 1, 8), torch.tensor([[0, 1], [0, 1]], dtype=torch.int32)
    lengths, query, lse = torch.tensor([32, 0], dtype=torch.int32), torch.zeros(2, 1, 8), torch.zeros(2, 1)
    mask = Mask(1.0, True, None, 0.0, None, None)
    backend.attend(AttentionCall(query, cache, cache, tables, lengths, None, mask, query.clone(), lse, 16))
    backend.write_kv((query, query), (cache, cache.clone()), torch.tensor([3, -1]))
    backend.copier([cache], [cache])(torch.tensor([[0, 1]]))
    backend.gather(cache, tables, torch.tensor([0, 2, 2], dtype=torch.int32), None, query.clone())
    backend.merge(query[None], lse[None], query.clone(), lse.clone())
