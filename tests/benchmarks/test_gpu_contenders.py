"""The adapters of the other kernels, without those kernels: stand-ins with the signatures that they document.

A stand-in computes attention by our own backend for the CPU, from nothing but what the adapter hands it. So a table, a
length or a scale that an adapter passes wrongly shows in the result, which is held to the rounding bound as on a card.
"""

import math
import sys
from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from pagedkv.optimized.attention import paged_attention
from tests.benchmarks.gpu.checking import Checker, small
from tests.benchmarks.gpu.contenders import Contender, Unserved, contenders
from tests.benchmarks.gpu.contenders.flash_attn import FlashAttention
from tests.benchmarks.gpu.contenders.flashinfer import FlashInfer, csr
from tests.benchmarks.gpu.contenders.flex import Flex
from tests.benchmarks.gpu.contenders.torch_ops import Sdpa, Varlen, starts
from tests.benchmarks.gpu.contenders.vllm import VllmTriton
from tests.benchmarks.gpu.grid import Row, mixed, smoke
from tests.benchmarks.gpu.inputs import make

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")  # there is no card


def attend(query: Tensor, k: Tensor, v: Tensor, table: Tensor, lengths: Tensor, cu: Tensor, scale: float) -> Tensor:
    result = paged_attention(query, k, v, table, lengths, cu_seqlens_q=cu, scale=scale)
    assert isinstance(result, Tensor)
    return result


def with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, cache_seqlens: Tensor, table: Tensor, softmax_scale: float
) -> Tensor:
    batch, rows = q.shape[:2]
    cu = torch.arange(0, batch * rows + 1, rows, dtype=torch.int32)
    return attend(q.flatten(0, 1), k_cache, v_cache, table, cache_seqlens, cu, softmax_scale).view_as(q)


def flash_attn_2(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: None = None, v: None = None, *,
    cache_seqlens: Tensor, block_table: Tensor, softmax_scale: float, causal: bool = False, num_splits: int = 0,
) -> Tensor:  # fmt: skip
    """FlashAttention 2."""
    assert causal
    return with_kvcache(q, k_cache, v_cache, cache_seqlens, block_table, softmax_scale)


def flash_attn_3(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: None = None, v: None = None, *,
    cache_seqlens: Tensor, page_table: Tensor, softmax_scale: float, causal: bool = False, num_splits: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """FlashAttention 3, some versions of which return the log-sum-exp as well."""
    assert causal
    return with_kvcache(q, k_cache, v_cache, cache_seqlens, page_table, softmax_scale), q


def varlen_attn(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor | None, max_q: int, max_k: int, *,
    scale: float | None = None, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False,
    seqused_k: Tensor | None = None, block_table: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """torch 2.13."""
    assert window_size == (-1, 0)
    assert enable_gqa == (query.shape[1] > key.shape[-2])
    assert max_q == int(cu_seq_q.diff().max())
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if block_table is not None:
        assert cu_seq_k is None
        assert seqused_k is not None
        assert max_k == int(seqused_k.max())
        return attend(query, key, value, block_table, seqused_k, cu_seq_q, scale)
    assert cu_seq_k is not None
    table = torch.nn.utils.rnn.pad_sequence(
        [torch.arange(int(a), int(b)) for a, b in pairwise(cu_seq_k)], batch_first=True
    )
    return attend(query, key[:, None], value[:, None], table.int(), cu_seq_k.diff(), cu_seq_q, scale)


class Wrapper:
    """What FlashInfer's two wrappers share: `plan` is told everything but the tensors, `run` gets those."""

    prefill = False
    cu: Tensor | None

    def __init__(self, float_workspace_buffer: Tensor, kv_layout: str, use_tensor_cores: bool = False) -> None:
        assert kv_layout == "NHD"
        assert float_workspace_buffer.dtype == torch.uint8

    def plan(
        self, *given: Any, sm_scale: float, q_data_type: torch.dtype, kv_data_type: torch.dtype, **options: Any
    ) -> None:
        assert options == ({"causal": True} if self.prefill else {})
        self.cu, given = (given[0], given[1:]) if self.prefill else (None, given)
        indptr, indices, last, self.heads, kv_heads, dim, page = given
        counts = indptr.diff()
        assert all(array.dtype == torch.int32 for array in (indptr, indices, last))
        self.table = torch.nn.utils.rnn.pad_sequence(list(torch.split(indices, counts.tolist())), batch_first=True)
        self.lengths = torch.where(counts > 0, (counts - 1) * page + last, 0).int()
        self.scale, self.cache = sm_scale, (page, kv_heads, dim)

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor]) -> Tensor:
        k, v = paged_kv_cache
        assert tuple(k.shape[1:]) == self.cache
        assert q.shape[1] == self.heads
        cu = torch.arange(len(q) + 1, dtype=torch.int32) if self.cu is None else self.cu
        return attend(q, k, v, self.table, self.lengths, cu, self.scale)


class PrefillWrapper(Wrapper):
    prefill = True


def unified_attention(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, cu_seqlens_q: Tensor, max_seqlen_q: int, seqused_k: Tensor,
    max_seqlen_k: int, softmax_scale: float, causal: bool, window_size: tuple[int, int], block_table: Tensor,
    softcap: float, q_descale: None, k_descale: None, v_descale: None, seq_threshold_3D: int | None = None,
    num_par_softmax_segments: int | None = None, softmax_segm_output: Tensor | None = None,
    softmax_segm_max: Tensor | None = None, softmax_segm_expsum: Tensor | None = None,
) -> None:  # fmt: skip
    """vLLM's."""
    assert causal
    assert (window_size, softcap) == ((-1, -1), 0.0)
    assert max_seqlen_q == int(cu_seqlens_q.diff().max())
    assert max_seqlen_k == int(seqused_k.max())
    out.copy_(attend(q, k, v, block_table, seqused_k, cu_seqlens_q, softmax_scale))


def module(name: str, **contents: object) -> ModuleType:
    found = ModuleType(name)
    vars(found).update(contents)
    return found


def eagerly(function: Callable[..., Any], **options: object) -> Callable[..., Any]:
    return function


CASES: dict[str, tuple[Contender, tuple[ModuleType, ...]]] = {
    "flash_attn 2": (FlashAttention(), (module("flash_attn", flash_attn_with_kvcache=flash_attn_2),)),
    "flash_attn 3": (FlashAttention(), (module("flash_attn_interface", flash_attn_with_kvcache=flash_attn_3),)),
    "flashinfer": (
        FlashInfer(),
        (
            module(
                "flashinfer",
                BatchDecodeWithPagedKVCacheWrapper=Wrapper,
                BatchPrefillWithPagedKVCacheWrapper=PrefillWrapper,
            ),
        ),
    ),
    "vllm": (
        VllmTriton(),
        (module("vllm.v1.attention.ops.triton_unified_attention", unified_attention=unified_attention),),
    ),
    "varlen, paged": (Varlen(paged=True), ()),
    "varlen, contiguous": (Varlen(paged=False), ()),
    "sdpa": (Sdpa(), ()),
    "flex": (Flex(), ()),
}


@pytest.fixture(params=CASES)
def contender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Contender:
    chosen, modules = CASES[request.param]
    for each in modules:
        parts = each.__name__.split(".")
        for count in range(1, len(parts)):
            package = ".".join(parts[:count])
            monkeypatch.setitem(sys.modules, package, module(package))
        monkeypatch.setitem(sys.modules, each.__name__, each)
    monkeypatch.setattr(varlen, "varlen_attn", varlen_attn)
    monkeypatch.setattr(torch, "compile", eagerly)
    return chosen


@pytest.mark.parametrize("row", smoke(), ids=lambda row: row.kind)
def test_an_adapter_hands_over_what_its_kernel_asks_for(contender: Contender, row: Row) -> None:
    objection = Checker(CPU).objection(contender, row)
    one_length_only = isinstance(contender, FlashAttention | Sdpa | Flex)
    assert (objection is None) != (row.kind == "mixed" and one_length_only), objection
    assert objection is None or objection.startswith(Unserved.__name__)


def test_every_copy_is_a_call_of_its_own(contender: Contender) -> None:
    inputs = make(small(smoke()[0]), CPU, copies=3)
    outs = [call().clone() for call in contender.prepare(inputs)]
    assert len(outs) == 3
    assert not torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[1], outs[2])


def test_who_cannot_run_here_says_why() -> None:
    reasons = {each.name: each.available(CPU) for each in contenders()}
    able = [name for name, why in reasons.items() if why is None]
    assert able == ["pagedkv", "pagedkv, split_size='fill'", "torch SDPA, contiguous"]
    assert all(why is None or "needs a GPU" in why for why in reasons.values())
    pretended = FlashInfer().available(torch.device("cuda")) or ""
    assert "flashinfer" in pretended or "flashinfer" in sys.modules


def test_csr_of_a_table_counts_pages_and_what_the_last_one_holds() -> None:
    inputs = make(mixed(3, 33, 0).shape, CPU)
    indptr, indices, last = csr(inputs, inputs.tables[0])
    sizes = [(length - 1) % 16 + 1 for length in inputs.shape.lengths]
    counts = [-(-length // 16) for length in inputs.shape.lengths]
    assert indptr.diff().tolist() == counts
    assert last.tolist() == sizes
    rows = [row[:count].tolist() for row, count in zip(inputs.tables[0], counts, strict=True)]
    assert indices.tolist() == [block for row in rows for block in row]
    assert starts(torch.tensor([2, 0, 3])).tolist() == [0, 2, 2, 5]
