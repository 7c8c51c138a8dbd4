"""Named mutants of the Triton kernels, run by the interpreter; see `attention_mutants` for the idea.

`breaks` lists the laws that must name the mutant, `needs` the features of the configuration that shows it.
"""

from pagedkv.conformance.mutation import Mutant

BACKEND = "pagedkv.optimized.attention.attend_launches"
MOVES = "pagedkv.optimized.attention.move_launches"
SUBJECT = "pagedkv.optimized.attention.subject"
KERNELS = "pagedkv.optimized.kernels"


def kernel(file: str, name: str, laws: str, needs: str, *replacements: tuple[str, str]) -> Mutant:
    """A mutant of one kernel file, with what launches it loaded again on top."""
    launches = MOVES if file in ("write_kv", "copy_blocks") else BACKEND
    return Mutant(
        name, laws, f"{KERNELS}.{file}", replacements, (launches, SUBJECT), "InterpretedTritonAttention",
        frozenset(needs.split()),
    )  # fmt: skip


def backend(name: str, laws: str, needs: str, *replacements: tuple[str, str]) -> Mutant:
    """A mutant of the code that prepares launches."""
    return Mutant(
        name, laws, BACKEND, replacements, (SUBJECT,), "InterpretedTritonAttention", frozenset(needs.split())
    )  # fmt: skip


WHOLE_LAST_BLOCK = "tl.minimum((split + 1) * SPLIT_SIZE, (end + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_SIZE)"
STOP = "tl.minimum((split + 1) * SPLIT_SIZE, end)"
VALUE_MASK = "is_value = is_seen[:, None] & is_value_dim[None, :]"
WHOLE_REQUEST = "positions < tl.load(seq_lens + request)"
SWAPPED = "tl.where(positions < 2 * BLOCK_SIZE, 1 - positions // BLOCK_SIZE, positions // BLOCK_SIZE)"
NO_INFINITY = "tl.full((GROUP_PADDED,), 0.0, tl.float32)"

KERNEL_MUTANTS: tuple[Mutant, ...] = (
    kernel("decode", "last_block_unmasked", "poison census", "", (STOP, WHOLE_LAST_BLOCK)),
    kernel(
        "decode", "mask_on_k_only", "poison", "", (VALUE_MASK, "is_value = (positions >= 0)[:, None] & is_value_dim")
    ),
    kernel(
        "decode",
        "values_of_the_whole_request",
        "unseen",
        "causal_prefill",
        (VALUE_MASK, f"is_value = ({WHOLE_REQUEST})[:, None] & is_value_dim[None, :]"),
        ("BLOCK_SIZE, mask=is_seen, other=0)", f"BLOCK_SIZE, mask={WHOLE_REQUEST}, other=0)"),
    ),
    kernel("decode", "mask_on_v_only", "census", "", ("s = tl.where(is_seen[None, :],", "s = tl.where(True,")),
    kernel("decode", "split_loses_its_last_token", "census one_hot", "", (STOP, STOP.replace("SIZE", "SIZE - 1"))),
    kernel("decode", "split_boundary_off_by_one", "census", "", (STOP, STOP.replace("SIZE", "SIZE + 1"))),
    kernel("decode", "wrong_kv_head", "one_hot", "", ("kv_head * key_stride_head", "0 * key_stride_head")),
    kernel("decode", "wrong_value_head", "one_hot", "", ("kv_head * value_stride_head", "0 * value_stride_head")),
    kernel(
        "decode",
        "heads_interleaved",
        "one_hot",
        "",
        ("heads = kv_head * GROUP + in_group", "heads = kv_head + in_group * tl.num_programs(1)"),
    ),
    kernel(
        "decode",
        "max_init_zero_instead_of_minus_inf",
        "bound",
        "",
        ('tl.full((GROUP_PADDED,), float("-inf"), tl.float32)', NO_INFINITY),
    ),
    kernel("decode", "rescale_omitted", "one_hot bound", "", ("acc = acc * shrink[:, None]\n\n", "acc = acc\n\n")),
    kernel(
        "decode", "total_not_rescaled", "one_hot bound", "", ("total * shrink + tl.sum(p, 1)", "total + tl.sum(p, 1)")
    ),
    kernel("decode", "scale_applied_twice", "bound", "", ("* scale\n", "* scale * scale\n")),
    kernel("decode", "window_off_by_one", "census", "window", ("position - WINDOW + 1", "position - WINDOW")),
    kernel("decode", "window_one_short", "census", "window", ("position - WINDOW + 1", "position - WINDOW + 2")),
    kernel("decode", "causal_off_by_one", "census", "causal_prefill", ("position + 1)", "position + 2)")),
    kernel("decode", "causal_skipped", "census", "causal_prefill", ("if CAUSAL:", "if CAUSAL and WINDOW > 0:")),
    backend(
        "causal_top_left_aligned",
        "census",
        "causal_prefill",
        ("seq_lens[request] - cu_seqlens_q[request + 1] + rows", "rows - cu_seqlens_q[request]"),
    ),
    kernel(
        "decode",
        "table_entries_swapped",
        "census",
        "window",
        ("table_stride + positions // BLOCK_SIZE", f"table_stride + {SWAPPED}"),
    ),
    kernel("decode", "table_of_the_first_request", "census", "", ("request * table_stride", "0 * table_stride")),
    kernel("decode", "offsets_32_bit", "far_blocks", "", ("block = block.to(tl.int64)", "block = block.to(tl.int32)")),
    kernel("decode", "lse_base_2", "lse_bound", "", ("(largest + log_total) * LN_2", "(largest + log_total)")),
    kernel("decode", "sink_in_every_split", "bound", "sinks", ("(split == 0) & (end > first)", "end > first")),
    kernel(
        "decode",
        "sink_for_rows_that_see_nothing",
        "lse_bound empty_rows",
        "sinks",
        ("(split == 0) & (end > first)", "split == 0"),
    ),
    kernel(
        "decode", "sink_in_base_2", "bound", "sinks", ("mask=is_head, other=0.0) * LOG2_E", "mask=is_head, other=0.0)")
    ),
    kernel("decode", "alibi_sign", "bound", "alibi", ("(positions - position)", "(position - positions)")),
    kernel("decode", "softcap_skipped", "bound", "softcap", ("s = softcap * tanh(s / softcap)", "s = s")),
    kernel(
        "decode",
        "softcap_overflows",
        "bound",
        "softcap",
        ("t = tl.exp2(-2.0 * tl.abs(x) * LOG2_E)", "t = tl.exp2(-2.0 * x * LOG2_E)"),
        ("tl.where(x < 0, -y, y)", "y"),
    ),
    kernel(
        "decode",
        "empty_row_divides_by_zero",
        "empty_rows",
        "",
        ("acc / tl.where(nothing, 1.0, total)[:, None]", "acc / total[:, None]"),
    ),
    kernel(
        "merge",
        "merge_ignores_the_maximum",
        "bound one_hot",
        "",
        ("weight = tl.exp2(split_largest - new_largest)", "weight = 1.0"),
    ),
    kernel("merge", "merge_forgets_to_shrink", "bound one_hot", "", ("acc = acc * shrink +", "acc = acc +")),
    kernel(
        "merge",
        "merge_skips_the_last_split",
        "census one_hot",
        "",
        ("in range(num_splits)", "in range(num_splits - 1)"),
    ),
    kernel(
        "write_kv",
        "write_negative_slot_not_skipped",
        "write_path",
        "",
        ("slot = tl.load(slot_mapping + token)", "slot = tl.maximum(tl.load(slot_mapping + token), 0)"),
    ),
    kernel(
        "write_kv",
        "write_value_into_key_cache",
        "write_path",
        "",
        ("tl.store(value_cache + target,", "tl.store(key_cache + target,"),
    ),
    kernel("write_kv", "write_offset_ignored", "write_path", "", ("offset = slot % BLOCK_SIZE", "offset = slot % 1")),
    kernel(
        "copy_blocks",
        "copy_short",
        "copy_blocks",
        "",
        ("inside = token < BLOCK_SIZE", "inside = token < BLOCK_SIZE - 1"),
    ),
    kernel(
        "copy_blocks",
        "copy_direction_swapped",
        "copy_blocks",
        "",
        ("source = tl.load(pairs + 2 * pair)", "source = tl.load(pairs + 2 * pair + 1)"),
        ("destination = tl.load(pairs + 2 * pair + 1)", "destination = tl.load(pairs + 2 * pair)"),
    ),
    kernel("copy_blocks", "copy_from_block_0_skipped", "copy_blocks", "", ("if source >= 0:", "if source > 0:")),
)
