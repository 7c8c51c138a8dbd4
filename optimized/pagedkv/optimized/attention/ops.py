"""The functions of attention as operators of torch: `torch.ops.pagedkv.*`, for `torch.compile` and graph capture.

Each has a schema that says what it writes, an implementation, which is the public function, and a fake, which says
what shapes and dtypes come out. The implementation checks its arguments when it runs, so that tracing sets no
condition on a length that varies. The fakes refuse what only tracing knows, that a gradient is asked for, and what no
run can mend, tensors on different devices.
"""

from typing import Any, Final

import torch
from torch import Tensor

from pagedkv.optimized.attention.arguments import check_no_gradient, on_device
from pagedkv.optimized.attention.attend import SplitSize, paged_attention
from pagedkv.optimized.attention.gathering import gather_kv
from pagedkv.optimized.attention.merging import merge_attention
from pagedkv.optimized.attention.moves import copy_blocks, write_kv

_LIBRARY: Final[Any] = torch.library.Library("pagedkv", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's own
_TENSORS: Final = "Tensor query, Tensor k_cache, Tensor v_cache, Tensor block_tables, Tensor seq_lens"
_OPTIONS: Final = (
    "Tensor? cu_seqlens_q=None, float? scale=None, bool causal=True, int? window=None, float softcap=0.0,"
    " Tensor? alibi_slopes=None, Tensor? sinks=None, int? split_size=None, bool fill=False, str? backend=None"
)
_ROWS: Final = "Tensor key, Tensor value, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor slot_mapping"
_PAGES: Final = "Tensor cache, Tensor block_tables, Tensor cu_seqlens"
_STARTS: Final = "Tensor? starts=None, str? backend=None"


def _attention(
    *tensors: Tensor, fill: bool = False, split_size: int | None = None, **options: Any
) -> tuple[Tensor, Tensor]:
    size: SplitSize = "fill" if fill else split_size
    result = paged_attention(*tensors, return_lse=True, split_size=size, **options)
    return result[0], result[1]


def _attention_out(*tensors: Tensor, **options: Any) -> Tensor:
    return _attention(*tensors, **options)[1]


def _gather(cache: Tensor, block_tables: Tensor, cu_seqlens: Tensor, total: int | None, **options: Any) -> Tensor:
    return gather_kv(cache, block_tables, cu_seqlens, total=total, **options)


def _gather_out(*tensors: Any, **options: Any) -> None:
    _gather(*tensors, **options)


def _check_fakes(device: torch.device, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None:
            on_device(name, tensor, device)
            check_no_gradient(name, tensor)


def _fake_attention(
    query: Tensor, k_cache: Tensor, v_cache: Tensor, block_tables: Tensor, seq_lens: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    optional = {name: options.get(name) for name in ("cu_seqlens_q", "alibi_slopes", "sinks", "out", "workspace")}
    tensors = {"query": query, "k_cache": k_cache, "v_cache": v_cache}
    _check_fakes(k_cache.device, **tensors, block_tables=block_tables, seq_lens=seq_lens, **optional)
    return query.new_empty((*query.shape[:2], v_cache.shape[3])), query.new_empty(query.shape[:2], dtype=torch.float32)


def _fake_attention_out(*tensors: Tensor, **options: Any) -> Tensor:
    return _fake_attention(*tensors, **options)[1]


def _fake_write_kv(
    key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor, **_: Any
) -> None:
    tensors = {"key": key, "value": value, "v_cache": v_cache, "k_cache": k_cache}
    _check_fakes(k_cache.device, **tensors, slot_mapping=slot_mapping)


def _fake_copy_blocks(caches: list[Tensor], pairs: Tensor, **_: Any) -> None:
    _check_fakes(pairs.device, pairs=pairs, **{f"caches[{i}]": cache for i, cache in enumerate(caches)})


def _fake_gather(cache: Tensor, block_tables: Tensor, cu_seqlens: Tensor, total: int | None, **options: Any) -> Tensor:
    optional = {name: options.get(name) for name in ("starts", "out")}
    _check_fakes(cache.device, cache=cache, block_tables=block_tables, cu_seqlens=cu_seqlens, **optional)
    return cache.new_empty((total or 0, *cache.shape[2:]))


def _fake_gather_out(*tensors: Any, **options: Any) -> None:
    _fake_gather(*tensors, **options)


def _fake_merge(outs: Tensor, lses: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    _check_fakes(outs.device, outs=outs, lses=lses)
    return outs.new_empty(outs.shape[1:]), lses.new_empty(lses.shape[1:])


OPERATORS: Final = (
    (f"paged_attention({_TENSORS}, *, {_OPTIONS}) -> (Tensor, Tensor)", _attention, _fake_attention),
    (
        f"paged_attention_out({_TENSORS}, *, Tensor(a!) out, Tensor(b!)? workspace=None, {_OPTIONS}) -> Tensor",
        _attention_out,
        _fake_attention_out,
    ),
    (f"write_kv({_ROWS}, *, str? backend=None) -> ()", write_kv, _fake_write_kv),
    ("copy_blocks(Tensor(a!)[] caches, Tensor pairs, *, str? backend=None) -> ()", copy_blocks, _fake_copy_blocks),
    (f"gather_kv({_PAGES}, SymInt? total, *, {_STARTS}) -> Tensor", _gather, _fake_gather),
    (f"gather_kv_out({_PAGES}, SymInt? total, *, Tensor(a!) out, {_STARTS}) -> ()", _gather_out, _fake_gather_out),
    (
        "merge_attention(Tensor outs, Tensor lses, *, str? backend=None) -> (Tensor, Tensor)",
        merge_attention,
        _fake_merge,
    ),
)
"""Schema, implementation, fake. The log-sum-exp is always returned: how many tensors come out is part of the schema."""

for _schema, _function, _fake in OPERATORS:
    _name = _LIBRARY.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pagedkv::{_name}", _fake, lib=_LIBRARY)
