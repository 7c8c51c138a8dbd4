"""torch's FlexAttention, uncompiled, as every CPU can run it.

`Flex` gathers a request at a time. `PagedFlex` gathers nothing: keys and values are the whole pool, and torch's own
`PagedAttention` turns masks over positions into masks over slots. What the compiled kernel skips by its block mask, the
uncompiled one multiplies by a weight of 0.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pagedkv.conformance.adapters import third_party
from pagedkv.conformance.adapters.attention.tensors import (
    UNIT_ROUNDOFF,
    Reading,
    Gathered,
    Launch,
    array_of,
    gathered,
    launch_of,
    optional,
)
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem, RoundingModel
from pagedkv.spec.words import ceil_div


class Flex(Reading):
    """A request at a time; masks, softcap and ALiBi as functions of positions. It has no sinks."""

    package = "torch"
    capabilities = AttentionCapabilities(
        dtypes=("float32", "float16", "bfloat16"), causal_prefill=True, non_causal=True, window=True, softcap=True,
        alibi=True, value_dim=True, returns_lse=True, strided=True, batch_invariant=True,
    )  # fmt: skip

    def __init__(self) -> None:
        self.torch = third_party("torch", "torch")
        self.flex = third_party("torch.nn.attention.flex_attention", "torch")
        self.name = "torch FlexAttention, gathered (uncompiled)"

    def rounding(self, problem: Problem) -> RoundingModel:
        """In one tile; weights are rounded to the dtype of the values before they meet them."""
        longest = max(1, int(problem.seq_lens.max(initial=1)))
        return RoundingModel(tile=longest, num_tiles=2, u_weights=UNIT_ROUNDOFF[problem.dtype])

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        """See `pagedkv.spec.attention_subject.AttentionSubject`."""
        launch, torch = launch_of(problem), self.torch
        out = launch.query.new_zeros(*launch.query.shape[:2], launch.value_cache.shape[3])
        lse = torch.full(launch.query.shape[:2], -math.inf)
        for index, given in enumerate(gathered(problem, launch)):
            if given.mask.numel():
                self.one(problem, launch, index, given, out, lse)
        return array_of(out), array_of(lse)

    def one(self, problem: Problem, launch: Launch, index: int, given: Gathered, out: Any, lse: Any) -> None:
        """One request, into its rows of `out` and `lse`."""
        rows, key, value, visible = given
        before = int(launch.seq_lens[index]) - key.shape[0]  # which a window hides

        def mask(b: Any, h: Any, q: Any, kv: Any) -> Any:
            return visible[q, kv]

        score = self.score(problem, int(launch.seq_lens[index]) - visible.shape[0] - before)
        self.launch(problem, launch.query[rows], key, value, mask, score, out[rows], lse[rows])

    def launch(
        self, problem: Problem, query: Any, key: Any, value: Any, mask: Any, score: Any, out: Any, lse: Any
    ) -> None:
        """One call of torch, without a compiler; results into `out` and `lse`."""
        flex, heads_first = self.flex, [each.transpose(0, 1)[None] for each in (query, key, value)]
        block_mask = flex.create_block_mask(mask, 1, None, len(query), len(key), device="cpu")
        before, flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, True
        try:
            result, aux = flex.flex_attention(
                *heads_first, score_mod=score, block_mask=block_mask, scale=problem.scale,
                enable_gqa=query.shape[1] != key.shape[1], return_aux=flex.AuxRequest(lse=True),
            )  # fmt: skip
        finally:
            flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = before
        out[...] = result[0].transpose(0, 1)
        lse[...] = aux.lse[0].transpose(0, 1)

    def score(self, problem: Problem, start: int) -> Callable[..., Any]:
        """Softcap and ALiBi of a score; row 0 stands at position `start`."""
        torch, slopes = self.torch, optional(problem.alibi_slopes)

        def modified(score: Any, b: Any, h: Any, q: Any, kv: Any) -> Any:
            if problem.softcap:
                score = problem.softcap * torch.tanh(score / problem.softcap)
            return score if slopes is None else score + slopes[h] * (kv - q - start)

        return modified


class PagedFlex(Flex):
    """Over the pool, through the page tables of `torch.nn.attention.experimental._paged_attention`."""

    capabilities = replace(Flex.capabilities, batch_invariant=False)

    def __init__(self) -> None:
        super().__init__()
        self.paged = third_party("torch.nn.attention.experimental._paged_attention", "torch")
        self.name = "torch FlexAttention over PagedAttention (uncompiled)"

    def one(self, problem: Problem, launch: Launch, index: int, given: Gathered, out: Any, lse: Any) -> None:
        """One request; its table is what `PagedAttention.reserve` would have written."""
        torch, rows, visible = self.torch, given.rows, given.mask
        blocks, size = launch.key_cache.shape[:2]
        length, hidden = int(launch.seq_lens[index]), int(launch.seq_lens[index]) - visible.shape[1]
        table = self.paged.PagedAttention(blocks, size, 1, device="cpu")
        logical = torch.arange(hidden // size, ceil_div(length, size))
        physical = launch.block_tables[index, logical].long()
        table.page_table[0, logical], table.physical_to_logical[0, physical] = physical, logical
        lengths = torch.tensor([length])

        def mask(b: Any, h: Any, q: Any, kv: Any) -> Any:
            return visible[q, (kv - hidden).clamp(0, visible.shape[1] - 1)] & (kv >= hidden) & (kv < length)

        key, value = (cache.flatten(0, 1) for cache in (launch.key_cache, launch.value_cache))
        start = length - visible.shape[0]
        self.launch(
            problem, launch.query[rows], key, value, table.get_mask_mod(mask, lengths),
            table.get_score_mod(self.score(problem, start), lengths), out[rows], lse[rows],
        )  # fmt: skip
