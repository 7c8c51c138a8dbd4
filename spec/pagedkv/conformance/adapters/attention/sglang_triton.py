"""SGLang's Triton kernels, interpreted: `decode_attention_fwd` for one row a request, else `extend_attention_fwd`.

Both address tokens: a table becomes the slots of its positions. `extend` takes the new tokens' keys and values as
contiguous tensors and only what was there before from the pool. With a window its backend hands over no slots before
it, and so does this adapter. With one query head a KV head a decode runs the "normal" kernel, else the
"grouped" one. The scratch memory of the splits is filled with NaN, for SGLang allocates it without filling it.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from pagedkv.conformance.adapters import third_party
from pagedkv.conformance.adapters.attention.interpreted import Run, loaded
from pagedkv.conformance.adapters.attention.tensors import (
    UNIT_ROUNDOFF,
    Reading,
    Launch,
    array_of,
    launch_of,
    optional,
    slots_of,
)
from pagedkv.conformance.attention import Case, with_positions
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem, RoundingModel
from pagedkv.spec.words import ceil_div

OPS = "sglang.kernels.ops.attention"
KERNELS = ("_fwd_kernel", "_fwd_kernel_stage1", "_fwd_grouped_kernel_stage1", "_fwd_kernel_stage2")
TILE = 64


def modules(run: Run | None) -> tuple[Any, Any]:
    """(`decode_attention`, `extend_attention`): the second imports the first, and stand-ins are the rest."""
    no = {
        name: lambda: False
        for name in ("is_cuda", "is_hip", "is_gfx95_supported", "is_gfx1250_supported", "get_device_core_count")
    }
    files = {
        f"{OPS}.{name}": f"kernels/ops/attention/{name}.py"
        for name in ("score_mod", "decode_attention", "extend_attention")
    }
    stand_ins: dict[str, dict[str, Any]] = {
        "sglang.srt.environ": {"envs": SimpleNamespace()},
        "sglang.srt.utils": no,
        OPS: {},
    }
    return tuple(loaded("sglang", files, stand_ins, run, KERNELS)[1:])


class SglangTriton(Reading):
    """`splits`: into how many a decode is cut, 8 at the most in SGLang. `run`: see `interpreted.loaded`."""

    package = "sglang"
    beside = ("triton",)
    capabilities = AttentionCapabilities(
        dtypes=("float32", "float16"), causal_prefill=True, non_causal=True, window=True, softcap=True, sinks=True,
        value_dim=True,
    )  # fmt: skip

    def __init__(self, splits: int = 8, run: Run | None = None) -> None:
        self.decoding, self.extending = modules(run)
        self.torch, self.splits = third_party("torch", "torch"), splits
        self.name = f"SGLang decode and extend, interpreted ({splits} splits)"

    def fit(self, case: Case) -> Case | None:
        """A request brings no more rows than it has positions: what is before them is its prefix."""
        return with_positions(case)

    def rounding(self, problem: Problem) -> RoundingModel:
        """Weights are rounded to the dtype of the values in tiles of 32 or 64; splits merge by their log-sum-exp."""
        longest = max(1, int(problem.seq_lens.max(initial=1)))
        return RoundingModel(
            tile=TILE,
            num_tiles=ceil_div(longest, 32) + self.splits + 3,
            u_accumulate=2.0**-23,
            u_weights=UNIT_ROUNDOFF[problem.dtype],
            lse_merge=bool((problem.query_lens == 1).all()),
        )

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        """See `pagedkv.spec.attention_subject.AttentionSubject`."""
        launch = launch_of(problem)
        shape = *launch.query.shape[:2], launch.value_cache.shape[3]
        out = self.torch.full(shape, float("nan"), dtype=launch.query.dtype)
        if (problem.query_lens == 1).all():
            self.decode(problem, launch, out)
        else:
            self.extend(problem, launch, out)
        return array_of(out), None

    def decode(self, problem: Problem, launch: Launch, out: Any) -> None:
        """One row a request."""
        torch, (batch, heads, dim) = self.torch, out.shape
        reach = problem.window if problem.window is not None else int(problem.seq_lens.max(initial=0))
        starts = np.maximum(problem.seq_lens.astype(np.int64) - reach, 0)
        indptr, indices = self.slots([slots_of(problem, each, int(start)) for each, start in enumerate(starts)])
        scratch = torch.full((batch, heads, self.splits, dim), float("nan"))
        self.decoding.decode_attention_fwd(
            launch.query, *pools(launch), out, indptr, indices, scratch, scratch[..., 0].contiguous(),
            torch.full((batch,), self.splits, dtype=torch.int32), self.splits, problem.scale, 1.0, 1.0,
            logit_cap=problem.softcap, sinks=optional(problem.sinks),
        )  # fmt: skip

    def extend(self, problem: Problem, launch: Launch, out: Any) -> None:
        """A prefix from the pool and new tokens beside it."""
        slots = [slots_of(problem, each) for each in range(len(problem.seq_lens))]
        cuts = [len(each) - int(rows) for each, rows in zip(slots, problem.query_lens, strict=True)]
        starts = [0 if problem.window is None else max(0, cut - problem.window + 1) for cut in cuts]
        indptr, indices = self.slots([each[a:b] for each, a, b in zip(slots, starts, cuts, strict=True)])
        _, new = self.slots([each[cut:] for each, cut in zip(slots, cuts, strict=True)])
        keys, values = pools(launch)
        self.extending.extend_attention_fwd(
            launch.query, keys[new], values[new], out, keys, values, launch.cu_seqlens_q, indptr, indices, None,
            problem.causal, None, int(problem.query_lens.max(initial=0)), 1.0, 1.0, sm_scale=problem.scale,
            logit_cap=problem.softcap, sinks=optional(problem.sinks),
            sliding_window_size=-1 if problem.window is None else problem.window - 1,
        )  # fmt: skip

    def slots(self, each: Sequence[Any]) -> tuple[Any, Any]:
        """(indptr int32, indices int64) of lists of slots."""
        torch = self.torch
        ends = np.concatenate([[0], np.cumsum([len(slots) for slots in each])]).astype(np.int32)
        indices = np.concatenate([np.zeros(0, np.int64), *each])
        return torch.from_numpy(ends), torch.from_numpy(indices)


def pools(launch: Launch) -> list[Any]:
    """Keys and values as (slots, heads, dim)."""
    return [cache.flatten(0, 1) for cache in (launch.key_cache, launch.value_cache)]
