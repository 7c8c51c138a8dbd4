"""torch's `scaled_dot_product_attention` over gathered pages, with every mask built explicitly.

`Sdpa` gathers each request by itself, so nothing is masked but what a row may not see. `PaddedSdpa` gathers the whole
batch to its longest length and masks the rest, as one does to launch once: what the padding holds then meets a weight
of 0.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pagedkv.conformance.adapters import third_party
from pagedkv.conformance.adapters.attention.tensors import (
    UNIT_ROUNDOFF,
    Reading,
    array_of,
    gathered,
    launch_of,
    optional,
    seen,
)
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem, RoundingModel
from pagedkv.spec.words import ceil_div

EXP_ULPS = 20
"""Units in the last place that the exponential of the CPU's fused kernel may be off by, by its name (`exp_u20`)."""


class Sdpa(Reading):
    """A request at a time. `kernel`: a name of `torch.nn.attention.SDPBackend`, "MATH" for one; None: torch's choice.

    It has no sinks, no softcap and returns no log-sum-exp; ALiBi goes in as a float32 mask.
    """

    package = "torch"
    capabilities = AttentionCapabilities(
        dtypes=("float32", "float16", "bfloat16"), causal_prefill=True, non_causal=True, window=True, alibi=True,
        value_dim=True, strided=True, batch_invariant=True,
    )  # fmt: skip

    def __init__(self, kernel: str | None = None) -> None:
        self.torch, self.kernel = third_party("torch", "torch"), kernel
        self.name = f"torch SDPA, gathered ({kernel or 'chosen by torch'})"

    def rounding(self, problem: Problem) -> RoundingModel:
        """Weights are rounded to the dtype of the values before they meet them; key tiles of 512 at the most."""
        longest = max(1, int(problem.seq_lens.max(initial=1)))
        return RoundingModel(
            tile=longest,
            num_tiles=2 + ceil_div(longest, 32),
            u_exp=EXP_ULPS * 2.0**-24,
            u_weights=UNIT_ROUNDOFF[problem.dtype],
        )

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        """See `pagedkv.spec.attention_subject.AttentionSubject`."""
        launch = launch_of(problem)
        out = launch.query.new_zeros(*launch.query.shape[:2], launch.value_cache.shape[3])
        with self.chosen():
            for rows, key, value, visible in gathered(problem, launch):
                if visible.numel():
                    q, k, v = (each.transpose(0, 1)[None] for each in (launch.query[rows], key, value))
                    out[rows] = self.attention(problem, q, k, v, self.mask(problem, visible))[0].transpose(0, 1)
        return array_of(out), None

    def chosen(self) -> AbstractContextManager[Any]:
        """Only the kernel asked for."""
        if self.kernel is None:
            return nullcontext()
        attention = third_party("torch.nn.attention", "torch")
        context: AbstractContextManager[Any] = attention.sdpa_kernel(getattr(attention.SDPBackend, self.kernel))
        return context

    def attention(self, problem: Problem, query: Any, key: Any, value: Any, mask: Any) -> Any:
        """One launch of torch: (batch, heads, rows, dim) each."""
        grouped = query.shape[1] != key.shape[1]
        return self.torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=problem.scale, enable_gqa=grouped
        )

    def mask(self, problem: Problem, visible: Any) -> Any:
        """(rows, length) bool, or with ALiBi (num_q_heads, rows, length) float32."""
        if problem.alibi_slopes is None:
            return visible
        rows, length = visible.shape
        torch, slopes = self.torch, optional(problem.alibi_slopes)
        away = torch.arange(length)[None, :] - (torch.arange(rows)[:, None] + length - rows)
        bias = slopes[:, None, None] * away
        return bias.masked_fill(~visible, -torch.inf)


class PaddedSdpa(Sdpa):
    """The whole batch at once: every table to its longest length, what lies past an end masked.

    Table entries past an end are set to block 0 first, for they may name anything.
    """

    capabilities = AttentionCapabilities(
        dtypes=("float32", "float16", "bfloat16"), causal_prefill=True, non_causal=True, window=True, value_dim=True,
        strided=True,
    )  # fmt: skip

    def __init__(self, kernel: str | None = None) -> None:
        super().__init__(kernel)
        self.name = f"torch SDPA, gathered and padded ({kernel or 'chosen by torch'})"

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        """See `pagedkv.spec.attention_subject.AttentionSubject`."""
        torch, launch = self.torch, launch_of(problem)
        lengths, sizes = problem.seq_lens.tolist(), problem.query_lens.tolist()
        blocks = ceil_div(max(lengths, default=0), launch.key_cache.shape[1])
        out = launch.query.new_zeros(*launch.query.shape[:2], launch.value_cache.shape[3])
        if not blocks or not max(sizes):
            return array_of(out), None
        starts = torch.arange(blocks)[None, :] * launch.key_cache.shape[1]
        table = launch.block_tables[:, :blocks].masked_fill(starts >= launch.seq_lens[:, None], 0).long()
        key, value = (cache[table].flatten(1, 2).transpose(1, 2) for cache in (launch.key_cache, launch.value_cache))
        query = launch.query.new_zeros(len(sizes), max(sizes), *launch.query.shape[1:])
        mask = torch.zeros(len(sizes), 1, max(sizes), key.shape[2], dtype=torch.bool)
        for index, (rows, length) in enumerate(zip(sizes, lengths, strict=True)):
            start = int(launch.cu_seqlens_q[index])
            query[index, :rows] = launch.query[start : start + rows]
            mask[index, 0, :rows, :length] = seen(problem, rows, length)
        with self.chosen():
            result = self.attention(problem, query.transpose(1, 2), key, value, mask).transpose(1, 2)
        for index, rows in enumerate(sizes):
            start = int(launch.cu_seqlens_q[index])
            out[start : start + rows] = result[index, :rows]
        return array_of(out), None
