"""Named mutants of attention: the ways kernels really break, each with the laws that must name it.

A mutant rewrites lines of a module's source in memory; every anchor must occur exactly once, so a mutant cannot
silently turn into the original. Nothing on disk changes.
"""

from tests.conformance.mutants.mutation import Mutant

TILED = "tests.conformance.attention_tiled"

DENSE = """TILE = 8


def dense(pool):
    return pool if pool.base is None else pool.base.reshape(-1)[: pool.size].reshape(pool.shape)
"""
"""Reads a pool as if it lay in C order."""

WRAPPED = """blocks = table[inside // pool.shape[1]]
    far = blocks.astype(np.int64) * (pool.strides[0] // pool.itemsize) >= 2**31
    rows[seen] = pool[np.where(far, 0, blocks),"""
"""Reads the wrong block where block * stride does not fit into 32 bits."""

CLEANED = """        problem.value_cache[np.isnan(problem.value_cache)] = 0
        out = np.zeros((*problem"""
"""A way to survive NaN that a shared cache forbids."""

FIRST_OWNER = """= problem.block_tables[request]
    table = np.where(np.isin(table, problem.block_tables[:request]), 0, table)
"""
"""Loses blocks that an earlier request of the batch has in its table too."""

PREFETCHED = """        problem.key_cache[table]
        key = load("""
"""Touches blocks past the end of the table, if only to warm them."""

VALUES_CUT = """value[:, query.shape[1] :] = 0
        values = np.where(mask[:, :, None],"""
"""Loses the columns of values past the width of keys."""

ONE_BLOCK = """blocks = table[inside // pool.shape[1]]
    blocks = blocks[:1] if pool.shape[1] >= TILE else blocks
    rows[seen] = pool[blocks,"""
"""Takes a tile from one block where blocks are as large as a tile."""

SPLITS_OF_THE_FIRST_ROW = "range(0, max(1, length - int(rows) + 1), size)"
"""The splits that the first row of a request sees; later rows may see one more."""

SMALLER_BESIDE_A_PROMPT = "TILE // (1 + int(problem.query_lens.max() > 8))"
"""Tiles of half the size where some request of the batch brings many rows."""

LAST_ROW_REPEATED = """        out[end:] = out[end - 1]
        return round_to(out, problem.dtype)"""
"""Gives rows past the last request what its last row sees."""

LONGEST_SPLIT = "-(-int(problem.seq_lens.max()) // (2 * TILE))) * TILE"
"""Two splits, cut where the longest request of the batch has its middle."""

VALUES_TURNED = """*((positions[::-1], seen[::-1]) if first == 25 * TILE else (positions, seen)), head)
        scores ="""
"""The values of one tile, far from the ends, in reverse."""


def tiled(name: str, laws: str, *replacements: tuple[str, str]) -> Mutant:
    """A mutant of the tiled kernel; at least one of `laws` (separated by spaces) must name it."""
    return Mutant(name, laws, TILED, replacements, attribute="TiledAttention")


MUTANTS: tuple[Mutant, ...] = (
    tiled(
        "last_block_unmasked",
        "poison census",
        (
            "(positions < length)[None, :]",
            "(positions // problem.key_cache.shape[1] <= (length - 1) // problem.key_cache.shape[1])[None, :]",
        ),
    ),
    tiled(
        "mask_on_k_only",
        "poison",
        (
            "load(problem.value_cache, table, positions, seen,",
            "load(problem.value_cache, table, positions, seen | True,",
        ),
        ("np.where(mask[:, :, None],", "np.where(True,"),
    ),
    tiled("hidden_values_weighed_by_zero", "unseen", ("np.where(mask[:, :, None],", "np.where(True,")),
    tiled("split_loses_its_last_token", "census one_hot", ("(positions < span[1])", "(positions < span[1] - 1)")),
    tiled(
        "split_boundary_off_by_one",
        "census",
        ("(positions < span[1])", "(positions <= span[1])"),
        ("range(span[0], span[1], TILE)", "range(span[0], span[1] + 1, TILE)"),
    ),
    tiled("wrong_kv_head", "one_hot census", ("query, request, head,", "query, request, num_kv_heads - 1 - head,")),
    tiled(
        "heads_interleaved",
        "one_hot census",
        ("slice(head * group, (head + 1) * group)", "slice(head, None, num_kv_heads)"),
    ),
    tiled("max_init_zero_instead_of_minus_inf", "bound lse_bound", ("np.full(rows, -np.inf,", "np.full(rows, 0,")),
    tiled("max_init_a_number_far_below", "census", ("np.full(rows, -np.inf,", "np.full(rows, -5e4,")),
    tiled("max_left_at_zero_by_a_masked_tile", "bound", ("maximum = raised", "maximum = base")),
    tiled("rescale_omitted", "bound one_hot", ("output * rescale[:, None]", "output")),
    tiled("total_not_rescaled", "bound one_hot", ("total * rescale", "total")),
    tiled("scale_applied_twice", "bound", ("np.float32(problem.scale)", "np.float32(problem.scale**2)")),
    tiled("window_off_by_one", "census", ("[:, None] - problem.window", "[:, None] - problem.window - 1")),
    tiled("window_one_short", "census one_hot", ("[:, None] - problem.window", "[:, None] - problem.window + 1")),
    tiled(
        "window_not_to_the_right",
        "census bound",
        ("< row_positions[:, None] + problem.window", "< row_positions[:, None] + 10**9"),
    ),
    tiled(
        "padding_sees_the_last_request", "padding", ("        return round_to(out, problem.dtype)", LAST_ROW_REPEATED)
    ),
    tiled("causal_top_left_aligned", "census one_hot", ("np.repeat(length - rows + ", "np.repeat(0 * length + ")),
    tiled(
        "second_block_of_rows_at_the_first", "census bound", ("np.arange(rows), group)", "np.arange(rows) % 16, group)")
    ),
    tiled("splits_of_the_first_row", "census bound", ("range(0, max(1, length), size)", SPLITS_OF_THE_FIRST_ROW)),
    tiled("values_as_wide_as_keys", "one_hot bound", ("values = np.where(mask[:, :, None],", VALUES_CUT)),
    tiled("tile_in_one_block", "bound census", ("rows[seen] = pool[table[inside // pool.shape[1]],", ONE_BLOCK)),
    tiled("table_entries_swapped", "census one_hot", ("block_tables[request]\n", "block_tables[request][::-1]\n")),
    tiled(
        "first_table_entries_swapped",
        "census one_hot",
        ("block_tables[request]\n", "block_tables[request].copy()\n    table[:2] = table[1::-1]\n"),
    ),
    tiled(
        "table_in_physical_order",
        "permutation",
        ("= problem.block_tables[request]\n", "= np.sort(problem.block_tables[request])\n"),
    ),
    tiled("lse_base_2", "lse_bound", ("problem.dtype), lse\n", "problem.dtype), lse * np.float32(1.442695)\n")),
    tiled("sink_added_to_value", "bound census", ("np.zeros_like(outputs[:1])", "np.ones_like(outputs[:1])")),
    tiled(
        "sink_counted_twice",
        "bound census",
        ("sinks)[None]", "sinks + np.float32(np.log(2)))[None]"),
    ),
    tiled("alibi_sign", "bound", ("[:, None] * distance", "[:, None] * -distance")),
    tiled("alibi_slope_of_kv_head", "bound", ("problem.alibi_slopes[heads]", "problem.alibi_slopes[heads // 2]")),
    tiled("softcap_skipped", "bound", ("if problem.softcap > 0:", "if problem.softcap > 1e9:")),
    tiled(
        "softcap_before_scale", "bound", ("cap * np.tanh(scores / cap)", "cap * np.tanh(scores / problem.scale / cap)")
    ),
    tiled("merge_ignores_lse", "bound one_hot census", ("np.exp(lses - base)", "np.exp(0 * np.maximum(lses, -1e9))")),
    tiled("empty_row_divides_by_zero", "bound census", ("divisor = np.where(nothing, 1, total)", "divisor = total")),
    tiled(
        "longest_request_decides",
        "census",
        ("int(problem.seq_lens[request])\n    rows =", "int(problem.seq_lens.max())\n    rows ="),
    ),
    tiled(
        "scratch_not_cleared",
        "duplicate_run history",
        ("TILE = 8\n", "TILE = 8\n_calls = iter(range(10**9))\n"),
        ("out = np.zeros((*problem", "out = next(_calls) + np.zeros((*problem"),
        ("out[start:end, heads] = merged", "out[start:end, heads] += merged"),
    ),
    tiled("output_not_rounded", "poison one_hot bound", ("return round_to(out, problem.dtype)", "return out")),
    tiled("write_negative_slot_not_skipped", "write_path", ("slot_mapping >= 0", "slot_mapping >= -1")),
    tiled("write_truncates", "write_path", ("(bits + even)", "(bits)")),
    tiled("write_value_into_key_cache", "write_path", ("(key, key_cache), (value,", "(value, key_cache), (key,")),
    tiled(
        "copy_short",
        "copy_blocks",
        ("cache[destination] = cache[source]", "cache[destination, :-1] = cache[source, :-1]"),
    ),
    tiled(
        "copy_direction_swapped",
        "copy_blocks",
        ("cache[destination] = cache[source]", "cache[source] = cache[destination]"),
    ),
    tiled("copy_first_cache_only", "copy_blocks", ("for cache in caches:", "for cache in caches[:1]:")),
    tiled(
        "copy_last_pair_only",
        "copy_blocks",
        ("for source, destination in pairs:", "for source, destination in pairs[-1:]:"),
    ),
    tiled("strides_ignored", "strides", ("rows[seen] = pool[", "rows[seen] = dense(pool)["), ("TILE = 8\n", DENSE)),
    tiled("offsets_32_bit", "far_blocks", ("rows[seen] = pool[table[inside // pool.shape[1]],", WRAPPED)),
    tiled("poison_cleaned_in_the_cache", "poison", ("        out = np.zeros((*problem", CLEANED)),
    tiled(
        "tile_depends_on_the_batch",
        "batch_invariance",
        ("range(span[0], span[1], TILE)", "range(span[0], span[1], TILE // len(problem.seq_lens))"),
        ("np.arange(first, first + TILE)", "np.arange(first, first + TILE // len(problem.seq_lens))"),
    ),
    tiled(
        "split_invariance_only_claimed", "split_invariance", ("strided=True,", "strided=True, split_invariant=True,")
    ),
    tiled(
        "dead_blocks_read",
        "dead_blocks",
        ("seen = mask.any(axis=0)", "seen = positions < min(length, span[1])"),
        ("np.where(mask[:, :, None],", "np.where(True,"),
    ),
    tiled("shared_block_given_to_the_first", "sharing", ("= problem.block_tables[request]\n", FIRST_OWNER)),
    tiled("whole_table_prefetched", "table_tail", ("        key = load(", PREFETCHED)),
    tiled(
        "tile_smaller_beside_a_prompt",
        "batch_invariance",
        ("range(span[0], span[1], TILE)", f"range(span[0], span[1], {SMALLER_BESIDE_A_PROMPT})"),
        ("np.arange(first, first + TILE)", f"np.arange(first, first + {SMALLER_BESIDE_A_PROMPT})"),
    ),
    tiled("split_depends_on_the_longest", "batch_invariance", ("-(-length // TILE)) * TILE", LONGEST_SPLIT)),
    tiled("values_of_a_far_tile_reversed", "one_hot", ("positions, seen, head)\n        scores =", VALUES_TURNED)),
)

LARGE_MUTANTS: tuple[Mutant, ...] = (
    tiled("blocks_in_16_bits", "census one_hot", ("table[inside //", "table.astype(np.int16)[inside //")),
    tiled(
        "one_tile_in_four_read_again",
        "census",
        (
            "    rows[seen] = pool",
            "    inside = inside - TILE * ((inside >= 2**15) & (inside // TILE % 4 == 2))\n    rows[seen] = pool",
        ),
    ),
    tiled(
        "an_empty_split_behind_a_full_one",
        "census one_hot",
        (
            "out[start:end, heads] = merged.reshape(rows, group, merged.shape[1])",
            "out[start:end, heads] = merged.reshape(rows, group, merged.shape[1]) * (0 if length % 512 == 0 else 1)",
        ),
    ),
    tiled(
        "sink_lost_in_a_long_request",
        "census",
        ("None if problem.sinks is None else", "None if problem.sinks is None or length > 5000 else"),
    ),
    tiled(
        "rows_past_the_128th_see_as_it_does",
        "census one_hot",
        ("np.arange(rows), group)", "np.minimum(np.arange(rows), 127), group)"),
    ),
    tiled("positions_in_16_bits", "census one_hot", ("request])\n    rows =", "request]) % 2**16\n    rows =")),
    tiled(
        "splits_past_the_128th_not_merged",
        "census one_hot",
        ("whole = max(1, -(-length // TILE)) * TILE", "whole = min(512, max(1, -(-length // TILE)) * TILE)"),
        ("range(0, max(1, length), size)]", "range(0, max(1, length), size)][:128]"),
    ),
    tiled(
        "requests_past_the_1024th",
        "census bound",
        ("enumerate(problem.query_lens)", "enumerate(problem.query_lens[:1024])"),
    ),
)
"""Of what only requests and batches as large as those of compiled kernels show."""
