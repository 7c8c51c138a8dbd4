"""Which mutants of the catalogue re-create a bug of kernels, and which a class of bugs."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class KernelRecord(NamedTuple):
    """How a bug of kernels is re-created here."""

    bug: str
    mutants: tuple[str, ...]
    """By key; each is noticed without a GPU."""
    nearest: str = ""
    """Where our kernels give the cause another shape: what the mutant does."""


_OFFSETS: Final = ("attention-kernels/offsets_32_bit", "offsets/gather_offset_32_bit")
_PAST_ITS_TABLE: Final = "pool-kernels/grow: a row runs into the table of the next"
_HELD: Final = ("optimized/held block handed out", "optimized/held until every step has ended")

KERNELS: Final = (
    KernelRecord("B012", ("pool-kernels/grow: a refused row grows all the same",)),
    KernelRecord("B031", ("attention-kernels/prefill_table_of_the_first_request",), "another request's row is read"),
    KernelRecord("B057", ("bug-kernels/lse_of_nothing_is_a_number",)),
    KernelRecord("B058", ("attention/max_init_a_number_far_below",)),
    KernelRecord("B061", ("bug-kernels/lse_of_nothing_is_plus_infinity", "merge/merge_plus_infinity_is_kept")),
    KernelRecord("B062", ("bug-kernels/lse_of_nothing_in_another_slot",)),
    KernelRecord("B063", ("bug-kernels/merged_into_the_first_request",)),
    KernelRecord("B065", ("bug-kernels/merged_lse_heads_first",)),
    KernelRecord("B067", ("merge/merge_exponentials_in_base_2", "attention-kernels/lse_base_2")),
    KernelRecord("B068", ("merge/merge_sums_of_the_first_head", "merge/merge_dense_rows")),
    KernelRecord("B071", ("attention-kernels/merge_reads_a_split_too_many",), "the mask lets one too many through"),
    KernelRecord("B073", ("attention-kernels/first_tile_fully_masked", "merge/merge_shift_by_minus_infinity")),
    KernelRecord("B074", ("bug-kernels/output_past_the_head_dim",), "the padding to a power of two is not masked"),
    KernelRecord(
        "B075", ("attention-kernels/rows_of_two_tokens_mixed",), "rows and heads of a padded tile are mixed up"
    ),
    KernelRecord("B078", ("attention-kernels/softcap_skipped", "attention/tile_in_one_block")),
    KernelRecord("B081", ("attention/table_in_physical_order",), "what lies lower is taken for earlier"),
    KernelRecord("B082", ("attention-kernels/last_block_unmasked",)),
    KernelRecord("B083", ("attention-kernels/table_of_the_first_request",)),
    KernelRecord("B088", ("attention-kernels/causal_skipped", "attention-kernels/body_reaches_past_the_first_row")),
    KernelRecord("B114", ("attention-kernels/last_block_unmasked", "reference/length_off_by_one")),
    KernelRecord("B129", ("attention-kernels/mask_on_k_only",)),
    KernelRecord("B130", ("attention-kernels/unseen_times_zero", "attention/hidden_values_weighed_by_zero")),
    KernelRecord("B135", ("attention/padding_sees_the_last_request", "moves/write_negative_slot_not_skipped")),
    KernelRecord("B138", ("attention-kernels/dead_blocks_read",)),
    *(KernelRecord(bug, _OFFSETS) for bug in ("B141", "B143", "B144", "B145", "B146")),
    KernelRecord("B149", ("offsets/write_kv_offset_32_bit",)),
    KernelRecord("B150", (_PAST_ITS_TABLE,)),
    KernelRecord("B154", (_PAST_ITS_TABLE, "attention/whole_table_prefetched")),
    KernelRecord("B155", ("moves/write_strides_in_elements", "attention/strides_ignored")),
    KernelRecord("B156", ("attention/table_in_physical_order", "attention-kernels/table_entries_swapped")),
    KernelRecord("B158", ("pool-kernels/grow: the end of the slot mapping is left",)),
    KernelRecord("B159", ("moves/write_negative_slot_not_skipped",)),
    KernelRecord("B162", ("attention/strides_ignored",), "there are no scales; what has strides is read by the shape"),
    KernelRecord("B164", ("attention/alibi_slope_of_kv_head",), "the number that a head looks up wrongly is its slope"),
    KernelRecord("B182", ("pool-loops/growth: the slots of a refused row are left",), "unreserved slots remain"),
    KernelRecord("B210", ("bugs/moves_applied_one_after_another",), "copies never overlap here; a relabelling does"),
    KernelRecord("B236", ("attention/strides_ignored",), "heads first is a view here, which the strides tell"),
    KernelRecord("B248", ("bug-kernels/masked_lanes_are_one",)),
)  # fmt: skip
"""In the order of their bugs; two of them have a trace as well."""

CLASSES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "allocator-refcount": ("how often a block is given back, and who owns it meanwhile", ()),
    "prefix-index": ("what enters the index, and what leaves it", ()),
    "swap-offload": ("what is saved, and what comes back", ()),
    "merge-split": ("parts of an attention, and how they are put together", ()),
    "kernel-shape-mask": ("shapes that a kernel was not made for, and what its mask lets through", ()),
    "hash-security": ("what a prefix is besides its tokens, and what a hash proves", ()),
    "prefix-boundary": ("where a match ends", ()),
    "eviction-tree": ("what is evicted, and what must stay", ()),
    "nan-uninit": ("what was never written, and is read", ()),
    "int-overflow": ("offsets that leave 32 bits", ()),
    "slot-mapping": ("where a position is written", ()),
    "quantized-kv": ("scales beside the cache; ours has none, so the cause is re-created on what is beside it", ()),
    "preemption": ("who is preempted, and what of it is lost", ()),
    "spec-decode": ("drafts, and room for them", ()),
    "hybrid-groups": ("several cache groups of one request", ()),
    "cell-move": ("contents that move while tables change", ()),
    "scheduler-deadlock": ("a request that waits for ever, because what it needs is judged wrongly", ()),
    "copy-on-write": ("a block of two owners that is written", ()),
    "fork-beam": ("families of requests", ()),
    "sliding-window-free": ("what the window has passed", ("reference/window_released_one_token_early",)),
    "in-flight-lifetime": (
        "blocks that go back while a step still uses them",
        (*_HELD, "reference/held_block_handed_out"),
    ),
    "api-validation": ("what a call is given, and what it takes it for", ()),
    "memory-accounting": ("what a request is thought to need", ()),
    "metrics": ("numbers that are told: here, how many blocks are available", ("bugs/index_counts_as_an_owner",)),
    "interpreter": ("the interpreter of the kernel language itself", ()),
}  # fmt: skip
"""Every class of bugs: what it is about, and mutants that re-create it without being those of one bug. One more class,
a hang where two features met, has a single entry whose cause was never found."""
