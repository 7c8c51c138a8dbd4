"""The kernels of others that are held against the specification, by the name of their page."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from pagedkv.conformance.adapters.attention import verdicts
from pagedkv.conformance.adapters.attention.holding import Verdict
from pagedkv.conformance.attention.plan import Size

HERE: Final = "pagedkv.conformance.adapters.attention"

NOT_ITS_OWN: Final = (
    "Requests that bring more rows than they have positions are left out, for their lengths count the rows."
)


@dataclass(frozen=True)
class Entry:
    """A subject, how it is run, and what is known of it."""

    factory: str
    """`module:factory`."""
    verdicts: Sequence[Verdict]
    size: Size = "tiny"
    not_run: str = ""

    def make(self) -> Any:
        """The subject; raises `ModuleNotFoundError`, which says what to install."""
        module, _, factory = self.factory.partition(":")
        return getattr(import_module(module), factory)()


INTERPRETED: Final = (
    "bfloat16, whose products Triton's interpreter computes wrongly; and what only a GPU has: compiled code, how its "
    "tensor cores round, races."
)

ENTRIES: Final[dict[str, Entry]] = {
    "sdpa": Entry(f"{HERE}.sdpa:Sdpa", verdicts.SDPA, "full", "CUDA kernels of the same function."),
    "sdpa-padded": Entry(f"{HERE}.sdpa:PaddedSdpa", verdicts.SDPA, "full", "CUDA kernels of the same function."),
    "flex": Entry(f"{HERE}.flex:Flex", verdicts.FLEX, not_run="Compiled kernels."),
    "flex-paged": Entry(f"{HERE}.flex:PagedFlex", verdicts.FLEX, not_run="Compiled kernels."),
    "vllm-cpu": Entry(
        f"{HERE}.vllm_cpu:VllmCpu", verdicts.VLLM_CPU, "full",
        not_run=f"{NOT_ITS_OWN} Rows without positions are not written. Not run: the write path, for its packed "
        "cache has no plain bytes to compare; caches in FP8. With AMX instructions, which bfloat16 uses on machines "
        "that have them, and without, the same laws hold and are broken.",
    ),
    "vllm-cpu-avx2": Entry(
        f"{HERE}.vllm_cpu:VllmCpuAvx2", verdicts.VLLM_CPU, "full",
        not_run=f"{NOT_ITS_OWN} Rows without positions are not written. Not run: the write path, as with AVX-512. The "
        "exponential of this library is not vectorized, and softcap is right.",
    ),
    "vllm-triton": Entry(
        f"{HERE}.vllm_triton:VllmUnified", verdicts.VLLM_TRITON,
        not_run=f"{NOT_ITS_OWN} A decode of a request without positions gives 0. Not run: {INTERPRETED}",
    ),
    "vllm-triton-split": Entry(
        f"{HERE}.vllm_triton:in_segments", verdicts.VLLM_TRITON,
        not_run=f"{NOT_ITS_OWN} A decode of a request without positions gives NaN: `reduce_segments` divides by its 0 "
        f"tiles. Not run: {INTERPRETED}",
    ),
    "sglang-triton": Entry(
        f"{HERE}.sglang_triton:SglangTriton", verdicts.SGLANG,
        not_run=f"{NOT_ITS_OWN} A decode of a request without positions gives NaN; where it pads a batch, its backend "
        f"gives such a request the length 1. Not run: its backend, which chooses slots and splits; {INTERPRETED}",
    ),
}  # fmt: skip
