"""`merge_attention`: one result from the results over disjoint sets of keys."""

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import FORMATS, check_no_gradient, check_tensors, on_device, require
from pagedkv.optimized.attention.backends import BackendName, backend_for
from pagedkv.optimized.attention.tracing import is_traced


def merge_attention(outs: Tensor, lses: Tensor, *, backend: BackendName | None = None) -> tuple[Tensor, Tensor]:
    """Merge results over disjoint sets of keys: `outs` (parts, total_q, num_q_heads, value_dim), `lses` (parts,
    total_q, num_q_heads) float32, natural. Returns (out in the dtype of `outs`, lse). A part that saw nothing (-inf, or
    +inf as FlashAttention-2 has it) counts for nothing, whatever its output holds. Parts are added in order, in
    float32; on a GPU by one launch. (Dao, 2023, §3.) Raises `Misuse`, also for gradients.
    """
    if is_traced(outs, lses):
        merged, lse = torch.ops.pagedkv.merge_attention.default(outs, lses, backend=backend)
        return merged, lse
    check_tensors(outs=outs, lses=lses)
    require(outs.dtype in FORMATS, "outs.dtype", outs.dtype, "float32, float16 or bfloat16")
    allowed = "(parts >= 1, total_q, num_q_heads, value_dim)"
    require(outs.dim() == 4 and len(outs) > 0, "outs.shape", tuple(outs.shape), allowed)
    fits = tuple(lses.shape) == tuple(outs.shape[:3])
    require(fits, "lses.shape", tuple(lses.shape), f"{tuple(outs.shape[:3])}, that of outs without its last dimension")
    require(lses.dtype == torch.float32, "lses.dtype", lses.dtype, "float32")
    on_device("lses", lses, outs.device)
    for name, tensor in (("outs", outs), ("lses", lses)):
        check_no_gradient(name, tensor)
    out, lse = outs.new_empty(outs.shape[1:]), lses.new_empty(lses.shape[1:])
    backend_for(outs.device, backend).merge(outs, lses, out, lse)
    return out, lse
