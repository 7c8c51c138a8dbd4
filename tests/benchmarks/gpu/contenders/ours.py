"""`pagedkv.optimized.paged_attention`, by the backend of the device."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from pagedkv.optimized.attention import paged_attention
from tests.benchmarks.gpu.contenders.common import Attend
from tests.benchmarks.gpu.inputs import Inputs

PAGED = "pagedkv"


class Ours:
    """Nothing is prepared: a call checks its arguments, makes its output and launches."""

    def __init__(self, split_size: Literal["fill"] | None = None) -> None:
        """ "fill": splits that fill the card, and bits that depend on the batch."""
        self.split_size = split_size
        self.name = PAGED if split_size is None else f"{PAGED}, split_size={split_size!r}"
        self.until_tier = 2 if split_size is None else 0

    def available(self, device: torch.device) -> str | None:
        """Everywhere."""
        return None

    def prepare(self, inputs: Inputs) -> Sequence[Attend]:
        return [partial(self._attend, inputs, table) for table in inputs.tables]

    def _attend(self, inputs: Inputs, table: Tensor) -> Tensor:
        rows = None if inputs.shape.is_decode else inputs.cu_seqlens_q
        result = paged_attention(
            inputs.query, inputs.k_cache, inputs.v_cache, table, inputs.seq_lens, cu_seqlens_q=rows, scale=inputs.scale,
            split_size=self.split_size,
        )  # fmt: skip
        assert isinstance(result, Tensor)
        return result
