"""Named mutants of the kernels that move KV, and of what prepares their launches; see `attention_mutants` for the idea.

`breaks` lists the laws that must name the mutant: of the attention kit for writes and copies, of
`tests.optimized.gather_laws` for gathering.
"""

from tests.conformance.mutants.mutation import Mutant

KERNELS = "pagedkv.optimized.kernels"
LAUNCHES = "pagedkv.optimized.attention.move_launches"
SUBJECT = "pagedkv.optimized.attention.subject"


def move(file: str, name: str, laws: str, *replacements: tuple[str, str]) -> Mutant:
    """A mutant of the kernel of writes or of copies, or of `move_launches`."""
    module = LAUNCHES if file == "launches" else f"{KERNELS}.{file}"
    dependents = (SUBJECT,) if file == "launches" else (LAUNCHES, SUBJECT)
    return Mutant(name, laws, module, replacements, dependents, "InterpretedTritonAttention")


def gathering(name: str, laws: str, *replacements: tuple[str, str]) -> Mutant:
    """A mutant of the kernel that gathers."""
    return Mutant(name, laws, f"{KERNELS}.gather", replacements, (LAUNCHES,), "gather_launch")


def merging(name: str, laws: str, *replacements: tuple[str, str]) -> Mutant:
    """A mutant of the kernel behind `merge_attention`; its laws are in `tests.optimized.merge_laws`."""
    module, launches = f"{KERNELS}.merge_attention", "pagedkv.optimized.attention.merge_launches"
    return Mutant(name, laws, module, replacements, (launches,), "merge_attention_launch")


MOVE_MUTANTS: tuple[Mutant, ...] = (
    move(
        "write_kv",
        "write_negative_slot_not_skipped",
        "write_path",
        ("slot = tl.load(slot_mapping + token)", "slot = tl.maximum(tl.load(slot_mapping + token), 0)"),
    ),
    move(
        "write_kv",
        "write_value_into_key_cache",
        "write_path",
        ("tl.store(value_cache + (value_to", "tl.store(key_cache + (value_to"),
    ),
    move("write_kv", "write_offset_ignored", "write_path", ("offset = slot % BLOCK_SIZE", "offset = slot % 1")),
    move(
        "write_kv", "write_first_head_everywhere", "write_path", ("key_head * key_stride_head", "0 * key_stride_head")
    ),
    move("write_kv", "write_rows_of_the_first_token", "write_path", ("token * value_stride", "0 * value_stride")),
    move(
        "write_kv",
        "write_last_head_skipped",
        "write_path",
        ("key_head < num_kv_heads,", "key_head < num_kv_heads - 1,"),
    ),
    move("write_kv", "write_spills_over_the_last_head", "write_path", ("value_head < num_kv_heads", "value_head >= 0")),
    move(
        "launches",
        "write_strides_in_elements",
        "write_path",
        ("tuple(step // lanes for step in steps), ceil", "steps, ceil"),
    ),
    move(
        "copy_blocks", "copy_short", "copy_blocks", ("inside = token < BLOCK_SIZE", "inside = token < BLOCK_SIZE - 1")
    ),
    move(
        "copy_blocks", "copy_into_the_next_block", "copy_blocks", ("inside = token < BLOCK_SIZE", "inside = token >= 0")
    ),
    move(
        "copy_blocks",
        "copy_direction_swapped",
        "copy_blocks",
        ("source = tl.load(pairs + 2 * pair)", "source = tl.load(pairs + 2 * pair + 1)"),
        ("destination = tl.load(pairs + 2 * pair + 1)", "destination = tl.load(pairs + 2 * pair)"),
    ),
    move("copy_blocks", "copy_from_block_0_skipped", "copy_blocks", ("if source >= 0:", "if source > 0:")),
    move("copy_blocks", "copy_in_the_first_cache_only", "copy_blocks", ("cache = tl.program_id(1)", "cache = 0")),
    move(
        "copy_blocks",
        "copy_between_caches",
        "copy_blocks",
        ("tl.load(source_addresses + cache)", "tl.load(source_addresses)"),
    ),
    move(
        "copy_blocks",
        "copy_one_lane_of_a_word",
        "copy_blocks",
        ("target + here * LANES + lanes", "target + here * LANES"),
    ),
    move(
        "launches",
        "copy_caches_alike_by_shape",
        "copy_blocks",
        ("tuple(step // word for step in steps)\n", "(1, 1, 1, 1, 1, 1)\n"),
    ),
)

GATHER_MUTANTS: tuple[Mutant, ...] = (
    gathering("gather_search_off_by_one", "order", ("(end <= row)", "(end < row)")),
    gathering("gather_ends_for_beginnings", "order", ("cu_seqlens + middle + 1", "cu_seqlens + middle")),
    gathering("gather_first_table", "order", ("request * table_stride", "0 * table_stride")),
    gathering("gather_offset_ignored", "order", ("(position % BLOCK_SIZE) *", "0 *")),
    gathering(
        "gather_row_for_position",
        "order batch",
        ("position = row - tl.load(cu_seqlens + request", "position = row - 0 * tl.load(cu_seqlens + request"),
    ),
    gathering("gather_starts_ignored", "starts", ("position += tl.load(starts", "position += 0 * tl.load(starts")),
    gathering(
        "gather_start_of_the_first_request", "starts", ("tl.load(starts + request", "tl.load(starts + 0 * request")
    ),
    gathering(
        "gather_tail_left", "tail", ("mask=is_row[:, None, None] & is_word", "mask=is_held[:, None, None] & is_word")
    ),
    gathering(
        "gather_tail_of_the_last_request",
        "tail",
        ("request = low.to(tl.int64)", "request = tl.minimum(low, num_requests - 1).to(tl.int64)"),
    ),
    gathering("gather_past_the_output", "order", ("is_row = row < num_rows", "is_row = row >= 0")),
    gathering("gather_one_head", "order shapes", ("(head < NUM_HEADS)", "(head < 1)")),
    gathering("gather_dense_cache", "layouts", ("head * cache_stride_head", "head * WORDS")),
    gathering("gather_dense_output", "layouts", ("head * out_stride_head", "head * WORDS")),
    gathering("gather_one_lane_of_a_word", "order", ("out + words_to * LANES + lanes", "out + words_to * LANES")),
    gathering("gather_one_step_short", "order", ("range(num_steps)", "range(num_steps - 1)")),
)

MERGE_MUTANTS: tuple[Mutant, ...] = (
    merging(
        "merge_max_started_at_0",
        "attention",
        ('tl.full((ROWS,), float("-inf"), tl.float32)', "tl.zeros((ROWS,), tl.float32)"),
    ),
    merging(
        "merge_max_of_the_last_part",
        "attention",
        ("tl.maximum(largest, sums_of(part_sums, is_row))", "sums_of(part_sums, is_row)"),
    ),
    merging("merge_without_weights", "attention", ("values * weight[:, None])", "values)")),
    merging("merge_exponentials_in_base_2", "attention", ("- shift) * LOG2_E)", "- shift))")),
    merging("merge_lse_in_base_2", "attention", ("tl.log2(divisor) * LN_2", "tl.log2(divisor)")),
    merging("merge_lse_without_its_shift", "attention", ("shift + tl.log2", "tl.log2")),
    merging("merge_not_divided", "attention", ("acc * tl.div_rn(1.0, divisor)[:, None]", "acc")),
    merging("merge_denominator_of_the_last_part", "attention", ("total += weight", "total = weight")),
    merging(
        "merge_nan_of_nothing",
        "nothing",
        ("tl.where(weight[:, None] == 0.0, 0.0, values * weight[:, None])", "values * weight[:, None]"),
    ),
    merging(
        "merge_shift_by_minus_infinity",
        "nothing",
        ('tl.where(largest == float("-inf"), 0.0, largest)', "largest"),
    ),
    merging(
        "merge_nothing_sums_to_0",
        "nothing",
        ('tl.where(nothing, float("-inf"), shift', "tl.where(nothing, 0.0, shift"),
    ),
    merging("merge_plus_infinity_is_kept", "nothing", ('found == float("inf")', "found != found")),
    merging(
        "merge_exponentials_from_0",
        "alone",
        ('tl.where(largest == float("-inf"), 0.0, largest)', "tl.zeros((ROWS,), tl.float32)"),
    ),
    merging(
        "merge_largest_of_all_rows",
        "batch",
        ('shift = tl.where(largest == float("-inf"), 0.0, largest)', "shift = tl.max(largest, 0) + 0.0 * largest"),
    ),
    merging("merge_sums_of_the_first_head", "attention", ("head * lses_stride_head", "0 * lses_stride_head")),
    merging("merge_values_of_the_first_part", "attention", ("part_outs += in_words", "part_outs += 0 * in_words")),
    merging("merge_into_the_first_head", "attention", ("tl.num_programs(1) + head", "tl.num_programs(1)")),
    merging("merge_past_the_last_row", "attention", ("is_row = row < total_q", "is_row = row >= 0")),
    merging("merge_past_the_values", "attention", ("(value_dims < VALUE_DIM)", "(value_dims >= 0)")),
    merging(
        "merge_dense_rows",
        "layouts",
        ("in_words(outs_stride_row, WORD)", "in_words(tl.num_programs(1) * VALUE_DIM, WORD)"),
    ),
)

NARROW_MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(f"{file}_offset_32_bit", "no offset is multiplied in 32 bits", f"{KERNELS}.{file}", (change,), (LAUNCHES,))
    for file, change in (
        ("write_kv", ("block = slot // BLOCK_SIZE", "block = (slot // BLOCK_SIZE).to(tl.int32)")),
        ("copy_blocks", ("source = tl.load(pairs + 2 * pair).to(tl.int64)", "source = tl.load(pairs + 2 * pair)")),
        ("gather", ("other=0).to(tl.int64)", "other=0)")),
    )
)
"""Seen by the audit of the compiled kernel alone: no small shape shows them."""
