"""Where a test of this folder runs: on a GPU in full, on the CPU with everything divided by `shrink`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pagedkv.conformance.attention import Case
from pagedkv.optimized.attention.subject import OptimizedAttention


@dataclass(frozen=True)
class Site:
    """A device, and the size of what is tried there."""

    name: str
    shrink: int

    @property
    def device(self) -> torch.device:
        return torch.device(self.name)

    @property
    def subject(self) -> OptimizedAttention:
        return OptimizedAttention(self.name)

    def count(self, full: int) -> int:
        """So many on a GPU, fewer on the CPU, and at least one."""
        return max(1, full // self.shrink)

    def sized(self, case: Case) -> Case:
        """The case with shorter lengths, windows and splits. What is odd about a length stays odd: its last digit."""
        lengths = tuple(self._short(n) for n in case.lengths)
        rows = tuple(min(m if m <= 8 else self._short(m), n) for m, n in zip(case.query_lens, lengths, strict=True))
        window = None if case.window is None else self._short(case.window)
        return replace(case, lengths=lengths, query_lens=rows, window=window)

    def _short(self, full: int) -> int:
        return full if self.shrink == 1 or full <= 32 else max(17, full // self.shrink // 10 * 10) + full % 10

    @contextmanager
    def no_waiting(self) -> Iterator[None]:
        """Whatever waits for the device raises. Nothing does on the CPU."""
        if self.name == "cpu":
            yield
            return
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


CPU, CUDA = Site("cpu", 32), Site("cuda", 1)


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Bit for bit, NaN included."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    kind = kinds[left.itemsize]
    return torch.equal(left.contiguous().view(kind), right.contiguous().view(kind))
