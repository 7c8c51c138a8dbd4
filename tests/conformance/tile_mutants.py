"""Named mutants of what the kernels that attend are made of, `rows` and `tiles`; see `kernel_mutants`."""

from tests.conformance.mutants.mutation import Mutant
from tests.conformance.kernel_mutants import kernel

SEEN = "(positions[None, :] < end[:, None])"
TO_THE_BLOCK = "(positions[None, :] < ((end + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_SIZE)[:, None])"
NONE_YET = 'shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)  # nothing seen yet: no -inf - -inf'
RESCALED = "acc = acc * shrink[:, None]\n        largest = new_largest"
WHOLE_BLOCKS = "tile // BLOCK_SIZE + lanes // BLOCK_SIZE"
SWAPPED = "tl.where(positions < 2 * BLOCK_SIZE, 1 - positions // BLOCK_SIZE, positions // BLOCK_SIZE)"

TILE_MUTANTS: tuple[Mutant, ...] = (
    kernel("tiles", "last_block_unmasked", "census", "", (SEEN, TO_THE_BLOCK)),
    kernel("tiles", "mask_on_k_only", "poison", "", ("is_value = is_value & loaded[:, None]", "pass")),
    kernel(
        "tiles",
        "mask_on_v_only",
        "census",
        "",
        ("        if MASKED:\n            s = ", "        if False:\n            s = "),
    ),
    kernel("tiles", "unseen_times_zero", "unseen", "", ("v = tl.where(is_nonfinite, 0.0, v).to(v.dtype)", "pass")),
    kernel(
        "tiles",
        "dead_blocks_read",
        "dead_blocks",
        "window",
        ("(positions >= low) & (positions < stop)", "positions < stop"),
    ),
    kernel(
        "tiles",
        "max_init_zero_instead_of_minus_inf",
        "bound",
        "",
        ('largest = tl.full((ROWS,), float("-inf")', "largest = tl.full((ROWS,), 0.0"),
    ),
    kernel("tiles", "first_tile_fully_masked", "bound one_hot census", "window", (NONE_YET, "shift = new_largest")),
    kernel("tiles", "rescale_omitted", "one_hot bound", "", (RESCALED, "largest = new_largest")),
    kernel(
        "tiles",
        "total_not_rescaled",
        "one_hot bound",
        "",
        ("tl.fma(total, shrink, tl.sum(p, 1))", "total + tl.sum(p, 1)"),
    ),
    kernel(
        "rows",
        "scale_applied_twice",
        "bound",
        "",
        ("unit = scale * LOG2_E", "unit = scale * scale * LOG2_E"),
    ),
    kernel("tiles", "bent_scale_applied_twice", "bound", "alibi", ("s = s * scale\n", "s = s * scale * scale\n")),
    kernel("rows", "base_2_forgotten", "bound", "alibi", ("unit = tl.full((), LOG2_E", "unit = tl.full((), 1.0")),
    kernel("rows", "window_off_by_one", "census", "window", ("position - window + 1", "position - window")),
    kernel("rows", "window_one_short", "census", "window", ("position - window + 1", "position - window + 2")),
    kernel(
        "rows",
        "right_window_one_short",
        "census",
        "window non_causal",
        ("position + window,", "position + window - 1,"),
    ),
    kernel(
        "rows", "causal_off_by_one", "census", "", ("tl.minimum(position + 1, end)", "tl.minimum(position + 2, end)")
    ),
    kernel("rows", "causal_skipped", "census", "", ("    if CAUSAL:\n", "    if CAUSAL and HAS_WINDOW:\n")),
    kernel(
        "rows", "causal_top_left_aligned", "census", "", ("position = length - num_rows + tokens", "position = tokens")
    ),
    kernel(
        "tiles",
        "body_reaches_past_the_first_row",
        "census unseen",
        "",
        ("tl.minimum(all_end, stop) // TILE", "stop // TILE"),
    ),
    kernel(
        "tiles",
        "body_begins_before_the_last_window",
        "census",
        "window",
        ("(all_first + TILE - 1) // TILE", "all_first // TILE"),
    ),
    kernel(
        "tiles",
        "table_entries_swapped",
        "census one_hot",
        "window",
        (f"table + {WHOLE_BLOCKS}", f"table + {SWAPPED}"),
    ),
    kernel(
        "tiles",
        "tile_at_the_start_of_its_block",
        "one_hot",
        "",
        ("start = block * 0 + tile % BLOCK_SIZE", "start = block * 0"),
    ),
    kernel(
        "tiles",
        "offsets_32_bit",
        "far_blocks",
        "",
        (f"{WHOLE_BLOCKS}, mask=loaded, other=0).to(tl.int64)", f"{WHOLE_BLOCKS}, mask=loaded, other=0).to(tl.int32)"),
        ("token = (lanes % BLOCK_SIZE).to(tl.int64)", "token = (lanes % BLOCK_SIZE).to(tl.int32)"),
    ),
    kernel(
        "rows",
        "heads_interleaved",
        "one_hot",
        "",
        ("kv_head * GROUP + lane % GROUP", "kv_head + lane % GROUP * tl.num_programs(1)"),
    ),
    kernel(
        "rows",
        "rows_of_two_tokens_mixed",
        "one_hot bound",
        "",
        ("tokens = token + lane // GROUP", "tokens = token + lane % TOKENS"),
    ),
    kernel(
        "rows",
        "lse_base_2",
        "lse_bound",
        "",
        ("tl.where(nothing, 1.0, total))) * LN_2", "tl.where(nothing, 1.0, total)))"),
    ),
    kernel("rows", "sink_in_base_2", "bound", "sinks", ("sink = sink * LOG2_E", "sink = sink")),
    kernel(
        "rows",
        "sink_for_rows_that_see_nothing",
        "lse_bound empty_rows",
        "sinks",
        ("mask=is_row & sees,", "mask=is_row,"),
    ),
    kernel(
        "tiles",
        "alibi_sign",
        "bound",
        "alibi",
        ("(positions[None, :] - position[:, None])", "(position[:, None] - positions[None, :])"),
    ),
    kernel(
        "tiles",
        "alibi_of_the_first_row",
        "lse_bound",
        "alibi",
        ("position[:, None]).to(tl.float32)", "tl.min(position, 0)).to(tl.float32)"),
    ),
    kernel("tiles", "softcap_skipped", "bound", "softcap", ("s = softcap * tanh(s / softcap)", "s = s")),
    kernel(
        "tiles",
        "softcap_overflows",
        "bound",
        "softcap",
        ("t = tl.exp2(-2.0 * tl.abs(x) * LOG2_E)", "t = tl.exp2(-2.0 * x * LOG2_E)"),
        ("tl.where(x < 0, -y, y)", "y"),
    ),
    kernel(
        "rows",
        "empty_row_divides_by_zero",
        "empty_rows",
        "",
        ("tl.div_rn(1.0, tl.where(total == 0.0, 1.0, total))", "tl.div_rn(1.0, total)"),
    ),
)
