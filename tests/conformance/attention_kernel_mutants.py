"""Named mutants of the kernels that attend: decode and its merge, prefill, and their launches; see `kernel_mutants`."""

from tests.conformance.mutants.mutation import Mutant
from tests.conformance.kernel_mutants import kernel, launches
from tests.conformance.tile_mutants import TILE_MUTANTS

STOP = "stop = tl.minimum((split + 1) * size, high)"
SPLIT_SINK = "tl.exp2(tl.load(sinks + head) * 1.4426950408889634 - shift)"
SUMMED = "total = total * shrink + tl.sum(split_sum * weight, 0)"

SPLIT_MUTANTS: tuple[Mutant, ...] = (
    kernel(
        "decode",
        "split_loses_its_last_token",
        "census one_hot",
        "",
        (STOP, STOP.replace("size,", "size - 1,")),
    ),
    kernel("decode", "split_boundary_off_by_one", "census", "", (STOP, STOP.replace("size,", "size + 1,"))),
    kernel(
        "decode",
        "last_split_lost",
        "census one_hot",
        "",
        ("splits = tl.minimum((high + size - 1) // size", "splits = tl.minimum(high // size"),
    ),
    kernel(
        "decode",
        "turns_overlap",
        "census one_hot bound",
        "",
        ("low // size + tl.program_id(2), splits", "low // size, tl.minimum(splits, 1)"),
    ),
    kernel("decode", "wrong_key_head", "one_hot", "", ("kv_head * in_words(key", "0 * in_words(key")),
    kernel("decode", "wrong_value_head", "one_hot", "", ("kv_head * in_words(value", "0 * in_words(value")),
    kernel("decode", "table_of_the_first_request", "census", "", ("request * table_stride", "0 * table_stride")),
    kernel(
        "decode",
        "parts_of_rows_collide",
        "census one_hot bound",
        "",
        ("request * MAX_ROWS + (rows - start)", "request * MAX_ROWS + 0 * (rows - start)"),
    ),
    kernel(
        "decode",
        "most_rows_left_to_nobody",
        "census one_hot bound",
        "",
        ("(num_rows > MAX_ROWS)", "(num_rows >= MAX_ROWS)"),
    ),
    kernel(
        "decode",
        "second_block_of_rows_lost",
        "census one_hot bound",
        "",
        ("(token >= num_rows)", "(token >= tl.minimum(num_rows, TOKENS))"),
    ),
    kernel(
        "merge",
        "merge_ignores_the_maximum",
        "bound one_hot",
        "",
        ("weight = tl.exp2((split_max - shift) * unit)", "weight = tl.exp2(split_max * 0.0)"),
    ),
    kernel(
        "merge", "merge_forgets_to_shrink", "bound one_hot", "", ("acc = acc * shrink + tl.sum", "acc = acc + tl.sum")
    ),
    kernel(
        "merge",
        "merge_skips_the_last_split",
        "census one_hot",
        "",
        ("is_split = splits < splits_end", "is_split = splits < splits_end - 1"),
    ),
    kernel(
        "merge",
        "merge_reads_a_split_too_many",
        "census bound",
        "",
        ("(end + size - 1) // size, num_splits)", "(end + size - 1) // size + 1, num_splits)"),
    ),
    kernel(
        "merge",
        "merge_takes_the_first_splits_only",
        "census one_hot",
        "",
        ("splits_end, SPLITS):", "tl.minimum(splits_end, first // size + SPLITS), SPLITS):"),
    ),
    kernel(
        "merge",
        "merge_from_split_0_on",
        "bound census",
        "window",
        ("range(first // size, splits_end", "range(0, splits_end"),
    ),
    kernel(
        "merge",
        "merged_sink_for_rows_that_see_nothing",
        "lse_bound empty_rows",
        "sinks",
        ("mask=end > first,", "mask=end >= 0,"),
    ),
    kernel(
        "merge", "second_turn_of_rows_lost", "bound", "", ("num_rows, tl.num_programs(2)", "tl.minimum(num_rows, 1), 1")
    ),
    kernel("merge", "sink_in_every_split", "bound", "sinks", (SUMMED, f"{SUMMED} + {SPLIT_SINK}")),
    kernel(
        "merge",
        "merge_divides_by_zero",
        "empty_rows",
        "",
        ("tl.div_rn(1.0, tl.where(total == 0.0, 1.0, total))", "tl.div_rn(1.0, total)"),
    ),
)

PREFILL_MUTANTS: tuple[Mutant, ...] = (
    kernel("prefill", "prefill_wrong_key_head", "one_hot", "", ("kv_head * in_words(key", "0 * in_words(key")),
    kernel("prefill", "prefill_wrong_value_head", "one_hot", "", ("kv_head * in_words(value", "0 * in_words(value")),
    kernel(
        "prefill",
        "prefill_table_of_the_first_request",
        "census one_hot",
        "",
        ("request * table_stride", "0 * table_stride"),
    ),
    kernel(
        "prefill",
        "blocks_of_requests_run_together",
        "census one_hot bound",
        "",
        ("start // TOKENS + tl.minimum(request, start // (DECODE_ROWS + 1))", "start // TOKENS"),
    ),
    kernel(
        "prefill",
        "search_finds_the_request_before",
        "census one_hot bound",
        "",
        ("low = tl.where(first <= block", "low = tl.where(first < block"),
        ("high = tl.where(first <= block", "high = tl.where(first < block"),
    ),
    kernel("prefill", "first_block_of_rows_only", "census one_hot bound", "", ("(token >= num_rows)", "(token > 0)")),
    kernel(
        "prefill",
        "few_rows_left_to_nobody",
        "census one_hot bound",
        "",
        ("(num_rows <= DECODE_ROWS)", "(num_rows <= DECODE_ROWS + 4)"),
    ),
    launches(
        "prefill_grid_too_small",
        "census one_hot bound",
        "",
        ("shape.total_q // tokens + long + 1", "shape.total_q // tokens"),
    ),
    launches(
        "prefill_left_out",
        "census one_hot bound",
        "",
        ("if shape.several and shape.total_q > DECODE_ROWS:", "if shape.several and shape.total_q > 2 * DECODE_ROWS:"),
    ),
)

KERNEL_MUTANTS = TILE_MUTANTS + SPLIT_MUTANTS + PREFILL_MUTANTS
