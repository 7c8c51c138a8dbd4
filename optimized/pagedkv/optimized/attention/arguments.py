"""The arguments of attention over a paged cache: what is allowed, checked without looking at a device's values.

Shapes, dtypes, devices and strides are known on the host, so every check here is free of synchronisation. What lies
*in* a block table on a GPU (an id out of range) cannot be seen without waiting for the device, and is the caller's.
"""

from dataclasses import dataclass
from numbers import Integral, Rational, Real

import torch
from torch import Tensor

from pagedkv.spec.words import Misuse

FORMATS = (torch.float32, torch.float16, torch.bfloat16)
LARGEST = torch.finfo(torch.float32).max
MOST_POSITIONS = 2**30
"""Of a request: positions are int32, and so are small sums of them."""


@dataclass(frozen=True)
class Mask:
    """What a row sees, and how its logits are bent; the meaning is that of `pagedkv.spec.masks`."""

    scale: float
    causal: bool
    window: int | None
    softcap: float
    alibi_slopes: Tensor | None
    sinks: Tensor | None


@dataclass(frozen=True)
class AttentionCall:
    """One call of `paged_attention` whose arguments have been checked. A backend fills `out` and `lse`."""

    query: Tensor
    k_cache: Tensor
    v_cache: Tensor
    block_tables: Tensor
    seq_lens: Tensor
    cu_seqlens_q: Tensor | None
    mask: Mask
    out: Tensor
    lse: Tensor
    split_size: int
    workspace: Tensor | None = None
    """1-D float32, for the partial results of splits; None: made by the call."""


def require(holds: bool, argument: str, value: object, allowed: str) -> None:
    """Raise `Misuse` unless it holds."""
    if not holds:
        raise Misuse(argument, value, allowed)


def check_dense(name: str, tensor: Tensor) -> None:
    """The last dimension is contiguous, or too short to tell."""
    if not (tensor.stride(-1) == 1 or tensor.shape[-1] == 1 or tensor.numel() == 0):
        raise Misuse(f"{name}.stride()", tensor.stride(), "a contiguous last dimension")


def check_tensors(**arguments: object) -> None:
    """Each is a tensor."""
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            raise Misuse(name, value, f"a torch.Tensor, not {type(value).__name__}")
        if value.layout is not torch.strided:
            raise Misuse(f"{name}.layout", value.layout, "torch.strided")


def check_number(name: str, value: object, allowed: str) -> None:
    """An integer or a float that is finite in float32; what else is asked of it is asked after this."""
    fraction = isinstance(value, Rational) and not isinstance(value, Integral)
    try:
        finite = isinstance(value, Real) and abs(float(value)) <= LARGEST
    except OverflowError:  # a large integer
        finite = False
    require(finite and not fraction and not isinstance(value, bool), name, value, allowed)


def check_integer(name: str, value: object, least: int, allowed: str) -> None:
    """An integer that is not less than `least`; True is none."""
    integer = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
    require(integer, name, value, allowed)


def check_no_gradient(name: str, tensor: Tensor) -> None:
    """Values are those that lie in memory, and no gradient is lost in silence: under `torch.no_grad` none is expected,
    so that parameters may be passed."""
    if tensor.requires_grad and torch.is_grad_enabled():
        allowed = "False, or a call under torch.no_grad(): attention over a cache has no gradient"
        raise Misuse(f"{name}.requires_grad", True, allowed)
    # A view whose memory holds the opposite of its values, such as the imag of a conj(); a tracer cannot ask.
    if not torch.compiler.is_compiling() and tensor.is_neg():
        raise Misuse(f"{name}.is_neg()", True, "False: call resolve_neg() first")


def check_destination(name: str, tensor: Tensor) -> None:
    """What is written has its own memory for every element: each dimension steps past all that lie within it."""
    reach = 0
    for stride, length in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1):
        allowed = "elements that share no memory (not expanded), as it is written"
        require(stride > reach or tensor.numel() == 0, f"{name}.stride()", tensor.stride(), allowed)
        reach += stride * (length - 1)


def reach_of_bytes(tensor: Tensor) -> int:
    """From the first byte of a tensor to behind its last."""
    last = sum(stride * (length - 1) for stride, length in zip(tensor.stride(), tensor.shape, strict=True))
    return (last + 1) * tensor.itemsize if tensor.numel() else 0


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether the bytes from first to last element of one meet those of the other."""
    if not a.numel() or not b.numel():
        return False
    begin, other = a.data_ptr(), b.data_ptr()
    return begin < other + reach_of_bytes(b) and other < begin + reach_of_bytes(a)


def check_cache(name: str, cache: Tensor, *, written: bool = False) -> None:
    """A cache is (num_blocks, block_size, num_kv_heads, dim), any strides, the last dimension contiguous."""
    check_tensors(**{name: cache})
    if cache.dim() != 4 or not all(cache.shape):
        allowed = "(num_blocks, block_size, num_kv_heads, head_dim), each >= 1"
        raise Misuse(f"{name}.shape", tuple(cache.shape), allowed)
    require(cache.dtype in FORMATS, f"{name}.dtype", cache.dtype, "float32, float16 or bfloat16")
    check_dense(name, cache)
    check_no_gradient(name, cache)
    if written:
        check_destination(name, cache)


def check_caches(k_cache: Tensor, v_cache: Tensor, *, written: bool = False) -> None:
    """Both caches hold the same blocks, in the same format, on the same device."""
    check_cache("k_cache", k_cache, written=written)
    check_cache("v_cache", v_cache, written=written)
    if v_cache.shape[:3] != k_cache.shape[:3]:
        raise Misuse("v_cache.shape", tuple(v_cache.shape), f"{(*k_cache.shape[:3], 'value_dim')}")
    if v_cache.dtype != k_cache.dtype:
        raise Misuse("v_cache.dtype", v_cache.dtype, f"that of k_cache, {k_cache.dtype}")
    on_device("v_cache", v_cache, k_cache.device)


def on_device(name: str, tensor: Tensor, device: torch.device) -> None:
    """All tensors of a call lie on one device."""
    if tensor.device != device:
        raise Misuse(f"{name}.device", str(tensor.device), f"{device}, where the others are")


def check_integers(name: str, tensor: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    """An int32 tensor of a given shape."""
    check_tensors(**{name: tensor})
    require(tensor.dtype == torch.int32, f"{name}.dtype", tensor.dtype, "int32")
    if tensor.shape != shape:
        raise Misuse(f"{name}.shape", tuple(tensor.shape), f"{shape}")
    on_device(name, tensor, device)


def check_attention(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor | None,
) -> None:
    """The tensors of `paged_attention` fit each other. Raises `Misuse`."""
    check_tensors(query=query, block_tables=block_tables)
    check_caches(k_cache, v_cache)
    check_query(query, k_cache)
    device = k_cache.device
    check_dense("query", query)
    on_device("query", query, device)
    check_no_gradient("query", query)
    require(block_tables.dim() == 2, "block_tables.shape", tuple(block_tables.shape), "(num_requests, max_blocks)")
    num_requests, max_blocks = block_tables.shape
    if max_blocks * k_cache.shape[1] > MOST_POSITIONS:
        allowed = f"at most {MOST_POSITIONS} positions a request, block_size {k_cache.shape[1]} times max_blocks"
        raise Misuse("block_tables.shape", tuple(block_tables.shape), allowed)
    check_integers("block_tables", block_tables, (num_requests, max_blocks), device)
    check_dense("block_tables", block_tables)
    check_integers("seq_lens", seq_lens, (num_requests,), device)
    if cu_seqlens_q is None:
        if query.shape[0] != num_requests:
            raise Misuse("query.shape", tuple(query.shape), f"one row a request, {num_requests}, or cu_seqlens_q")
    else:
        check_integers("cu_seqlens_q", cu_seqlens_q, (num_requests + 1,), device)


def check_query(query: Tensor, k_cache: Tensor) -> None:
    """The query fits the keys."""
    num_kv_heads, head_dim = k_cache.shape[2:]
    shape = query.shape
    require(query.dim() == 3, "query.shape", tuple(shape), "(total_q, num_q_heads, head_dim)")
    if shape[2] != head_dim:
        raise Misuse("query.shape", tuple(shape), f"head_dim {head_dim}, that of k_cache")
    if shape[1] == 0 or shape[1] % num_kv_heads:
        raise Misuse("query.shape", tuple(shape), f"a number of heads that {num_kv_heads} KV heads divide")
    if query.dtype != k_cache.dtype:
        raise Misuse("query.dtype", query.dtype, f"that of the caches, {k_cache.dtype}")


def check_mask(query: Tensor, mask: Mask) -> None:
    """The options of `paged_attention`. Raises `Misuse`."""
    check_number("scale", mask.scale, "a finite number, or None for 1 / sqrt(head_dim)")
    require(isinstance(mask.causal, bool), "causal", mask.causal, "True or False")
    if mask.window is not None:
        check_integer("window", mask.window, 1, "an integer >= 1, or None for all")
    check_number("softcap", mask.softcap, "a number >= 0; 0 caps nothing")
    allowed = "0, which caps nothing, or a number >= 2**-126"
    require(mask.softcap == 0 or mask.softcap >= 2.0**-126, "softcap", mask.softcap, allowed)
    for name, tensor in (("alibi_slopes", mask.alibi_slopes), ("sinks", mask.sinks)):
        if tensor is not None:
            check_tensors(**{name: tensor})
            shape = (query.shape[1],)
            require(tuple(tensor.shape) == shape, f"{name}.shape", tuple(tensor.shape), f"{shape}, one a query head")
            require(tensor.dtype == torch.float32, f"{name}.dtype", tensor.dtype, "float32")
            on_device(name, tensor, query.device)
            check_no_gradient(name, tensor)


def scale_of(query: Tensor, scale: float | None) -> float:
    """The scale, 1 / sqrt(head_dim) unless given."""
    check_tensors(query=query)
    return max((1, *query.shape[-1:])) ** -0.5 if scale is None else scale


def reach_of(window: int | None, furthest: int) -> int | None:
    """The window as the backends take it: None if it hides nothing, so that no sum with it overflows.

    `furthest`: what no distance between a row and a position exceeds.
    """
    return None if window is None or window > furthest else int(window)


def check_out(out: Tensor, shape: tuple[int | None, ...], name: str, like: Tensor) -> None:
    """A given output has the shape, and of the argument `name` the dtype and the device, that would be made."""
    check_tensors(out=out)
    require(tuple(out.shape) == shape, "out.shape", tuple(out.shape), f"{shape}")
    require(out.dtype == like.dtype, "out.dtype", out.dtype, f"that of {name}, {like.dtype}")
    check_dense("out", out)
    on_device("out", out, like.device)
    check_no_gradient("out", out)
    check_destination("out", out)


def check_workspace(workspace: Tensor, elements: int, device: torch.device) -> None:
    """A given workspace is float32, flat and large enough."""
    check_tensors(workspace=workspace)
    require(workspace.dtype == torch.float32, "workspace.dtype", workspace.dtype, "float32")
    fits = workspace.dim() == 1 and workspace.is_contiguous() and len(workspace) >= elements
    require(fits, "workspace.shape", tuple(workspace.shape), f"({elements},) or more, contiguous: see workspace_size")
    on_device("workspace", workspace, device)
    check_no_gradient("workspace", workspace)
