"""vLLM's unified Triton kernel, `unified_attention`, called as its own backend calls it.

With one row a request and few requests it splits the keys into segments; the buffers for that are made here, as its
backend makes them once (vllm/v1/attention/backends/triton_attn.py: 16 segments, at most 128 // num_kv_heads requests).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pagedkv.optimized.attention.tuned import power_of_two
from tests.benchmarks.gpu.contenders.common import Attend, absent, accepted, first_of
from tests.benchmarks.gpu.inputs import Inputs

MODULES = ("vllm.v1.attention.ops.triton_unified_attention", "vllm.attention.ops.triton_unified_attention")
SEGMENTS, LEAST_GRID = 16, 128


class VllmTriton:
    """Any mix of rows."""

    name = "vLLM unified Triton"
    until_tier = 1

    def available(self, device: torch.device) -> str | None:
        return absent(device, *MODULES)

    def prepare(self, inputs: Inputs) -> Sequence[Attend]:
        attend = first_of(*MODULES).unified_attention
        return [partial(_attend, attend, self.arguments(attend, inputs, table)) for table in inputs.tables]

    def arguments(self, attend: Any, inputs: Inputs, table: Tensor) -> dict[str, Any]:
        """By name. The table is padded: a version of the kernel reads some entries past the last one."""
        shape = inputs.shape
        padded = torch.nn.functional.pad(table, (0, 128))
        given = {
            "q": inputs.query,
            "k": inputs.k_cache,
            "v": inputs.v_cache,
            "out": torch.empty_like(inputs.query),
            "cu_seqlens_q": inputs.cu_seqlens_q,
            "max_seqlen_q": max(shape.rows),
            "seqused_k": inputs.seq_lens,
            "max_seqlen_k": max(shape.lengths),
            "softmax_scale": inputs.scale,
            "causal": True,
            "window_size": (-1, -1),
            "block_table": padded,
            "softcap": 0.0,
            **dict.fromkeys(("q_descale", "k_descale", "v_descale")),
        }
        size = (shape.total_rows if shape.is_decode else 0, shape.num_q_heads, SEGMENTS, power_of_two(shape.head_dim))
        outputs = inputs.query.new_empty(size, dtype=torch.float32)
        segments = {
            "seq_threshold_3D": LEAST_GRID // shape.num_kv_heads,
            "num_par_softmax_segments": SEGMENTS,
            "softmax_segm_output": outputs,
            "softmax_segm_max": outputs.new_empty(size[:3]),
            "softmax_segm_expsum": outputs.new_empty(size[:3]),
        }
        return given | accepted(attend, **segments)


def _attend(attend: Any, arguments: dict[str, Any]) -> Tensor:
    attend(**arguments)
    out: Tensor = arguments["out"]
    return out
