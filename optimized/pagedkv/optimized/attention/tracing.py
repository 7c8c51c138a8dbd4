"""Whether a call of attention is recorded by torch or computed, and the calls that are recorded.

The public functions compute directly, because the dispatcher would cost every call. They become one operator of
`pagedkv.optimized.attention.ops` only where there is nothing to compute: under `torch.compile`, and for tensors that
hold no values (fake, functional, meta).
"""

from typing import Any

import torch
from torch import Tensor


def is_traced(*tensors: object) -> bool:
    """Whether a call with these tensors is recorded, not computed.

    True while Dynamo reads the caller; while a mode is on that sees operators (`FakeTensorMode`) or functions are
    transformed (`torch.func`); and if one of them has a class with a dispatch of its own (fake and functional tensors)
    or lies on meta: the others may be constants, such as caches that an exported function closes over.
    """
    return torch.compiler.is_dynamo_compiling() or _is_watched() or any(map(_has_no_values, tensors))


def _is_watched() -> bool:
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._functorch.peek_interpreter_stack() is not None


def _has_no_values(tensor: object) -> bool:
    if type(tensor) is Tensor:
        return tensor.is_meta
    own = getattr(type(tensor), "__torch_dispatch__", None)
    return isinstance(tensor, Tensor) and (own is not Tensor.__torch_dispatch__ or tensor.is_meta)


def traced_attention(
    tensors: tuple[Tensor, ...], out: Tensor | None, workspace: Tensor | None, return_lse: bool, **options: Any
) -> Tensor | tuple[Tensor, Tensor]:
    """`paged_attention` as one operator; what it writes to is an argument of another one, whose schema says so."""
    if options["split_size"] == "fill":
        options = {**options, "split_size": None, "fill": True}
    if out is None and workspace is None:
        out, lse = torch.ops.pagedkv.paged_attention.default(*tensors, **options)
    else:
        query, _, v_cache = tensors[:3]
        out = query.new_empty((*query.shape[:2], v_cache.shape[3])) if out is None else out
        lse = torch.ops.pagedkv.paged_attention_out.default(*tensors, out=out, workspace=workspace, **options)
    assert out is not None
    return (out, lse) if return_lse else out


def traced_gather(
    cache: Tensor,
    block_tables: Tensor,
    cu_seqlens: Tensor | int,
    starts: Tensor | None,
    total: int | None,
    out: Tensor | None,
    backend: str | None,
) -> Tensor:
    """`gather_kv` as one operator, in which one request is a batch of one."""
    if not isinstance(cu_seqlens, Tensor):
        total, block_tables = cu_seqlens, block_tables[None]
        cu_seqlens = torch.arange(2, dtype=torch.int32, device=cache.device) * total
    options = {"starts": starts, "backend": backend}
    if out is None:
        out = torch.ops.pagedkv.gather_kv.default(cache, block_tables, cu_seqlens, total, **options)
    else:
        torch.ops.pagedkv.gather_kv_out.default(cache, block_tables, cu_seqlens, total, out=out, **options)
    assert out is not None
    return out
