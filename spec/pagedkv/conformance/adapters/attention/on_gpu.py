"""Kernels that need a GPU: torch's `varlen_attn`, FlashAttention and FlashInfer.

Written after their documentation, and not run: no page says anything of them. What one of them refuses (a page size, a
head size) is its error on that case; `shapes` has what they are documented to take.
"""

import math
from typing import Any

from pagedkv.conformance.adapters import third_party
from pagedkv.conformance.adapters.attention.tensors import (
    UNIT_ROUNDOFF,
    Launch,
    Reading,
    array_of,
    launch_of,
    optional,
)
from pagedkv.conformance.attention import Case, with_positions
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem, RoundingModel
from pagedkv.spec.words import Misuse, ceil_div

WORKSPACE_BYTES = 256 * 2**20
CAPABILITIES = AttentionCapabilities(
    dtypes=("float16", "bfloat16"), causal_prefill=True, non_causal=True, window=True, returns_lse=True
)


class OnGpu(Reading):
    """What the three have in common: half precision, weights rounded before they meet V, tiles of 64 at the least."""

    capabilities = CAPABILITIES
    package: str
    shapes: tuple[dict[str, int], ...] = ({"block_size": 16, "head_dim": 64}, {"block_size": 32, "head_dim": 128})

    def __init__(self) -> None:
        self.torch = third_party("torch", "torch")
        if not self.torch.cuda.is_available():
            raise Misuse("torch.cuda.is_available()", False, "a machine with a GPU")
        self.name = f"{type(self).__name__} on {self.torch.cuda.get_device_name()}"

    def fit(self, case: Case) -> Case | None:
        """A request brings no more rows than it has positions."""
        return with_positions(case)

    def rounding(self, problem: Problem) -> RoundingModel:
        """Products of 16 bits are summed by tensor cores; splits may merge by their log-sum-exp."""
        longest = max(1, int(problem.seq_lens.max(initial=1)))
        return RoundingModel(
            tile=256, num_tiles=2 * ceil_div(longest, 64) + 4, u_accumulate=2.0**-22,
            u_weights=UNIT_ROUNDOFF[problem.dtype], lse_merge=True,
        )  # fmt: skip

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        """See `pagedkv.spec.attention_subject.AttentionSubject`."""
        out, lse = self.launch(problem, launch_of(problem, "cuda"))
        return array_of(out), array_of(lse.float())

    def launch(self, problem: Problem, launch: Launch) -> tuple[Any, Any]:
        """(output, lse (total_q, num_q_heads) by the natural logarithm)."""
        raise NotImplementedError


def window_of(problem: Problem) -> tuple[int, int]:
    """Positions before and after a row that it sees, as all of them count them: -1 for all."""
    back = -1 if problem.window is None else problem.window - 1
    return back, 0 if problem.causal else back


class Varlen(OnGpu):
    """`torch.nn.attention.varlen.varlen_attn` over pages."""

    package = "torch"

    def launch(self, problem: Problem, launch: Launch) -> tuple[Any, Any]:
        """One call."""
        varlen = third_party("torch.nn.attention.varlen", "torch")
        out, lse = varlen.varlen_attn(
            launch.query, launch.key_cache, launch.value_cache, launch.cu_seqlens_q, None,
            int(problem.query_lens.max(initial=0)), int(problem.seq_lens.max(initial=0)), scale=problem.scale,
            window_size=window_of(problem), enable_gqa=problem.query.shape[1] != problem.key_cache.shape[2],
            seqused_k=launch.seq_lens, block_table=launch.block_tables, return_aux=varlen.AuxRequest(lse=True),
        )  # fmt: skip
        return out, lse.T


class FlashAttention(OnGpu):
    """`flash_attn.flash_attn_varlen_func` over pages, version 2, whose pages are multiples of 256 tokens."""

    package = "flash-attn"
    shapes = ({"block_size": 256, "head_dim": 64}, {"block_size": 256, "head_dim": 96})
    capabilities = AttentionCapabilities(**{**vars(CAPABILITIES), "softcap": True, "alibi": True})

    def launch(self, problem: Problem, launch: Launch) -> tuple[Any, Any]:
        """One call. Without lengths of its own, it takes those of the keys as differences of `cu_seqlens_k`."""
        flash = third_party("flash_attn", "flash-attn")
        ends = self.torch.nn.functional.pad(launch.seq_lens.cumsum(0, dtype=self.torch.int32), (1, 0))
        out, lse, _ = flash.flash_attn_varlen_func(
            launch.query, launch.key_cache, launch.value_cache, launch.cu_seqlens_q, ends,
            int(problem.query_lens.max(initial=0)), int(problem.seq_lens.max(initial=0)),
            softmax_scale=problem.scale, causal=problem.causal, window_size=window_of(problem),
            softcap=problem.softcap, alibi_slopes=optional(problem.alibi_slopes, "cuda"),
            block_table=launch.block_tables, return_attn_probs=True,
        )  # fmt: skip
        return out, lse.T


class FlashInfer(OnGpu):
    """`flashinfer.BatchPrefillWithPagedKVCacheWrapper`; it gives the log-sum-exp by the logarithm to base 2."""

    package = "flashinfer-python"
    capabilities = AttentionCapabilities(**{**vars(CAPABILITIES), "softcap": True, "non_causal": False})

    def launch(self, problem: Problem, launch: Launch) -> tuple[Any, Any]:
        """A plan and a run."""
        torch, flashinfer = self.torch, third_party("flashinfer", "flashinfer-python")
        workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
        (_, q_heads, dim), (_, size, kv_heads, _) = problem.query.shape, problem.key_cache.shape
        counts = (launch.seq_lens + size - 1) // size
        used = torch.arange(launch.block_tables.shape[1], device="cuda") < counts[:, None]
        last = torch.where(launch.seq_lens > 0, (launch.seq_lens - 1) % size + 1, 0).to(torch.int32)
        indptr = torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
        wrapper.plan(
            launch.cu_seqlens_q, indptr, launch.block_tables[used], last, q_heads, kv_heads, dim, size,
            causal=problem.causal, sm_scale=problem.scale, window_left=window_of(problem)[0],
            logits_soft_cap=problem.softcap, q_data_type=launch.query.dtype, kv_data_type=launch.key_cache.dtype,
        )  # fmt: skip
        out, lse = wrapper.run(launch.query, (launch.key_cache, launch.value_cache), return_lse=True)
        return out, lse * math.log(2)
