"""`prepare_attention`: what a call of `paged_attention` decides, decided once for all layers of a step.

The layers of a model attend with the same block tables, lengths and options, and with tensors of the same form; only
where query, caches and output lie differs. Checks, cuts, partial results and the look-up of compiled kernels are the
same for all, and on the host they cost more than the kernels do for a small batch.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from pagedkv.optimized.attention import debug
from pagedkv.optimized.attention.arguments import (
    AttentionCall, Mask, check_no_gradient, check_out, check_tensors, reach_of_bytes, require, scale_of,
)  # fmt: skip
from pagedkv.optimized.attention.attend import SplitSize, checked_call
from pagedkv.optimized.attention.backends import BackendName, backend_for, made_current
from pagedkv.optimized.attention.tracing import is_traced, traced_attention
from pagedkv.optimized.launch import Launch

VARYING: Final = ("query", "k_cache", "v_cache", "out", "lse")
"""What of a call may be other tensors each time."""
FORM: Final = ("shape", "stride()", "dtype", "device")


def prepare_attention(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Tensor,
    *,
    cu_seqlens_q: Tensor | None = None,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    return_lse: bool = False,
    split_size: SplitSize = None,
    workspace: Tensor | None = None,
    backend: BackendName | None = None,
) -> "PreparedAttention":
    """Check a call of `paged_attention` once, to make it many times: arguments and errors as there.

    `query`, `k_cache` and `v_cache` are examples: later ones have their shape, strides, dtype and device. The other
    tensors are kept, and read by each call: what they hold may change, in place, as for a CUDA graph. So those of
    one dimension are contiguous. The calls share their workspace, and belong on one stream.
    """
    options = {
        "cu_seqlens_q": cu_seqlens_q, "scale": scale, "causal": causal, "window": window, "softcap": softcap,
        "alibi_slopes": alibi_slopes, "sinks": sinks, "split_size": split_size, "backend": backend,
    }  # fmt: skip
    check_tensors(query=query, k_cache=k_cache, v_cache=v_cache, seq_lens=seq_lens)
    kept = {"seq_lens": seq_lens, "cu_seqlens_q": cu_seqlens_q, "alibi_slopes": alibi_slopes, "sinks": sinks}
    for name, tensor in kept.items():
        dense = not isinstance(tensor, Tensor) or tensor.is_contiguous()
        require(dense, f"{name}.is_contiguous()", dense, "True, as later calls read it in place")
    mask = Mask(scale_of(query, scale), causal, window, softcap, alibi_slopes, sinks)
    if v_cache is k_cache:
        v_cache = k_cache.detach()  # each argument of a launch is one tensor's place
    call = checked_call(
        query, k_cache, v_cache, block_tables, seq_lens, cu_seqlens_q, mask, None, split_size, workspace
    )
    return PreparedAttention(call, return_lse, backend, options)


class PreparedAttention:
    """A call of `paged_attention` that has been checked and cut; made by `prepare_attention`."""

    def __init__(
        self, call: AttentionCall, return_lse: bool, backend: BackendName | None, options: dict[str, Any]
    ) -> None:
        self._call, self._return_lse, self._options = call, return_lse, options
        self._backend = backend_for(call.query.device, backend)
        self._forms = {name: form_of(getattr(call, name)) for name in VARYING}
        self._bytes = {name: reach_of_bytes(getattr(call, name)) for name in VARYING}
        tensors = [getattr(call, name) for name in VARYING]
        mask = call.mask
        kept = (call.block_tables, call.seq_lens, call.cu_seqlens_q, mask.alibi_slopes, mask.sinks, call.workspace)
        self._kept = [tensor for tensor in kept if tensor is not None]
        kernels: Any = self._backend if hasattr(self._backend, "launches") else None  # the CPU backend has none
        self._launches = (
            [PreparedLaunch(each, kernels.launch, tensors) for each in kernels.launches(call)] if kernels else []
        )

    def __call__(
        self, query: Tensor, k_cache: Tensor, v_cache: Tensor, out: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """`paged_attention` with these tensors, and all else as prepared.

        `out`, if given, is contiguous. Raises `Misuse` for another form than that prepared for.
        """
        call, read = self._call, (query, k_cache, v_cache)
        if is_traced(*read):
            kept = (call.block_tables, call.seq_lens)
            return traced_attention((*read, *kept), out, call.workspace, self._return_lse, **self._options)
        for name, tensor in zip(VARYING, read, strict=False):
            self._check(name, tensor)
        apart = out is not None and self._is_apart(out, read)
        target = out if out is not None and apart else call.out.new_empty(call.out.shape)
        lse = torch.empty_like(call.lse) if self._return_lse else call.lse
        self._attend((*read, target, lse))
        result = target if out is None or apart else out.copy_(target)
        return (result, lse) if self._return_lse else result

    def _attend(self, tensors: tuple[Tensor, ...]) -> None:
        """Fill output and log-sum-exp; in debug mode by way of the backend, which looks at values first."""
        if self._launches and not debug.DEBUG:
            kind = tuple([kind_of(tensor) for tensor in tensors])
            with made_current(tensors[0].device):
                for launch in self._launches:
                    launch(tensors, kind)
        else:
            query, k_cache, v_cache, out, lse = tensors
            self._backend.attend(replace(self._call, query=query, k_cache=k_cache, v_cache=v_cache, out=out, lse=lse))

    def _check(self, name: str, tensor: Tensor) -> None:
        """The tensor has the form of the one prepared with."""
        if not isinstance(tensor, Tensor) or form_of(tensor) != self._forms[name]:
            check_tensors(**{name: tensor})
            for part, got, wanted in zip(FORM, form_of(tensor), self._forms[name], strict=True):
                require(got == wanted, f"{name}.{part}", got, f"{wanted}, as prepared")
        if tensor.requires_grad or tensor.is_neg():
            check_no_gradient(name, tensor)

    def _is_apart(self, out: Tensor, read: tuple[Tensor, ...]) -> bool:
        """The output can be written, and before all is read: its bytes are not theirs."""
        if not isinstance(out, Tensor) or form_of(out) != self._forms["out"] or out.requires_grad:
            check_out(out, tuple(self._call.out.shape), "query", read[0])
            require(out.is_contiguous(), "out.is_contiguous()", False, "True, as it was prepared for")
        begin = out.data_ptr()
        end = begin + self._bytes["out"]
        places = [(tensor.data_ptr(), self._bytes[name]) for name, tensor in zip(VARYING, read, strict=False)]
        places += [(tensor.data_ptr(), reach_of_bytes(tensor)) for tensor in self._kept]
        return not any(place < end and begin < place + size for place, size in places)


class PreparedLaunch:
    """A launch whose kernel is looked up once, and where the tensors that vary stand among its arguments."""

    def __init__(self, launch: Launch, run: Callable[[Launch], Any], tensors: Sequence[Tensor]) -> None:
        """`run` launches, and returns what Triton has compiled if there is such a thing. `tensors`: as in `VARYING`."""
        self.launch, self.run = launch, run
        self.places = [(i, j) for i, arg in enumerate(launch.args) for j, each in enumerate(tensors) if arg is each]
        self.compiled: dict[Hashable, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        """By the kinds of the tensors, what launches the kernel compiled for them, and the constants it is given."""

    def __call__(self, tensors: Sequence[Tensor], kind: Hashable) -> None:
        """Launch with these tensors in their places."""
        args = list(self.launch.args)
        for place, which in self.places:
            args[place] = tensors[which]
        known = self.compiled.get(kind)
        if known is not None:
            launch, constants = known
            launch(*args, *constants)
        else:
            compiled = self.run(replace(self.launch, args=tuple(args)))
            if compiled is not None:
                self.compiled[kind] = self._directly(compiled)

    def _directly(self, compiled: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """A compiled kernel is launched with all of its parameters, in order, constants too."""
        grid = self.launch.grid + (1,) * (3 - len(self.launch.grid))
        rest = list(self.launch.kernel.signature.parameters.values())[len(self.launch.args) :]
        return compiled[grid], tuple(self.launch.kwargs.get(each.name, each.default) for each in rest)


def form_of(tensor: Tensor) -> tuple[Any, ...]:
    """What of a tensor decides whether it is allowed where another one was: the parts of `FORM`."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def kind_of(tensor: Tensor) -> Hashable:
    """What Triton tells apart among tensors of one form: addresses that 16 divides; on AMD also memory below 2 GiB."""
    aligned = tensor.data_ptr() % 16 == 0
    return (aligned, tensor.untyped_storage().nbytes() < 2**31) if torch.version.hip else aligned
