"""`merge_attention`: one result from the results over disjoint sets of keys."""

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import FORMATS, check_no_gradient, check_tensors, on_device, require
from pagedkv.optimized.attention.tracing import is_traced


def merge_attention(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """Merge results over disjoint sets of keys: `outs` (parts, total_q, num_q_heads, value_dim), `lses` (parts,
    total_q, num_q_heads) float32, natural. Returns (out in the dtype of `outs`, lse). A part that saw nothing (-inf)
    counts for nothing, whatever its output holds. Parts are added in order, in float32. (Dao, 2023, §3.)
    """
    if is_traced(outs):
        merged, lse = torch.ops.pagedkv.merge_attention.default(outs, lses)
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
    top = lses.amax(0)
    shift = torch.where(top == -torch.inf, 0.0, top)
    total = torch.zeros_like(top)
    out = torch.zeros(outs.shape[1:], dtype=torch.float32, device=outs.device)
    for part, lse in zip(outs, lses, strict=True):
        weight = torch.exp(lse - shift)
        total += weight
        out += torch.where(weight[..., None] == 0, 0.0, part.float()) * weight[..., None]
    nothing = total == 0
    merged = out / torch.where(nothing, 1.0, total)[..., None]
    return merged.to(outs.dtype), torch.where(nothing, -torch.inf, shift + torch.log(total))
