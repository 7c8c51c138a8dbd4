"""Bugs of kernels that other projects have had, re-created in ours where no mutant of another family has the cause."""

from typing import Final

from tests.conformance.kernel_mutants import kernel

_NOTHING: Final = 'tl.where(nothing, float("-inf"), (largest'

BUG_KERNELS: Final = (
    kernel("rows", "lse_of_nothing_is_a_number", "lse_bound", "", (_NOTHING, "tl.where(nothing, -49993.98, (largest")),
    kernel(
        "rows",
        "lse_of_nothing_is_plus_infinity",
        "lse_bound",
        "",
        (_NOTHING, 'tl.where(nothing, float("inf"), (largest'),
    ),
    kernel(
        "rows",
        "lse_of_nothing_in_another_slot",
        "lse_bound",
        "",
        (
            "tl.store(lse + rows * num_q_heads + heads, lse_of",
            "tl.store(lse + tl.where(total == 0.0, heads, rows * num_q_heads + heads), lse_of",
        ),
    ),
    kernel(
        "rows",
        "output_past_the_head_dim",
        "bound",
        "",
        ("mask=is_row[:, None] & (value_dims < VALUE_DIM)[None, :])", "mask=is_row[:, None])"),
    ),
    kernel(
        "merge",
        "merged_into_the_first_request",
        "bound",
        "",
        ("row = start.to(tl.int64) + token", "row = 0 * start.to(tl.int64) + token"),
    ),
    kernel(
        "merge",
        "merged_lse_heads_first",
        "lse_bound",
        "",
        ("tl.store(lse + row * num_q_heads + head", "tl.store(lse + head * total_q + row"),
    ),
    kernel(
        "merge",
        "masked_lanes_are_one",
        "bound",
        "",
        ('tl.load(part_max + base + splits, mask=is_split, other=float("-inf"))',
         "tl.load(part_max + base + splits, mask=is_split, other=1.0)"),
        ("tl.load(part_sum + base + splits, mask=is_split, other=0.0)",
         "tl.load(part_sum + base + splits, mask=is_split, other=1.0)"),
    ),
)  # fmt: skip
"""`breaks` lists the laws of the attention kit that are expected to notice."""
