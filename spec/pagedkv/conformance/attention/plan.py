"""Which cases a subject is held to: a few configurations, and for each the lengths where kernels go wrong.

"tiny" suits an interpreted kernel at milliseconds a loop iteration, "full" a compiled one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, NamedTuple, TypeAlias

from pagedkv.conformance.attention.bench import Law
from pagedkv.conformance.attention.cases import FEATURES, Case
from pagedkv.conformance.attention.numeric import BOUNDS
from pagedkv.conformance.attention.probes import PROBES
from pagedkv.conformance.attention.relations import RELATIONS
from pagedkv.conformance.attention.writes import WRITES
from pagedkv.spec.attention_subject import AttentionCapabilities
from pagedkv.spec.words import ceil_div

Size: TypeAlias = Literal["tiny", "full"]

LAWS: dict[str, tuple[str, Law]] = {
    **{name: ("relation", law) for name, law in RELATIONS.items()},
    **{name: ("probe", law) for name, law in PROBES.items()},
    **{name: ("bound", law) for name, law in BOUNDS.items()},
    **{name: ("write", law) for name, law in WRITES.items()},
}
"""Every law by name, with its kind."""

NEEDS = {
    "batch_invariance": "batch_invariant",
    "split_invariance": "split_invariant",
    "strides": "strided",
    "far_blocks": "strided",
    "lse_bound": "returns_lse",
    "write_path": "writes",
    "copy_blocks": "writes",
}
"""Laws that hold only where a capability is declared."""


class Check(NamedTuple):
    """One law on one case."""

    law: str
    case: Case


@dataclass(frozen=True)
class Configuration:
    """One dtype with one set of features."""

    dtype: str
    features: tuple[str, ...] = ()


def configurations(capabilities: AttentionCapabilities, size: Size) -> list[Configuration]:
    """The plain launch, each declared feature by itself, all together; "full" also has pairs, with the first dtype.

    Tiny runs go through the single features with the first dtype only.
    """
    declared = [name for name in FEATURES if getattr(capabilities, name)]
    sets: list[tuple[str, ...]] = [(), *((name,) for name in declared)]
    masked = tuple(name for name in declared if name != "non_causal")
    others = [*sets, masked] if size == "full" else [(), masked]
    if size == "full":
        sets += list(combinations(declared, 2))
    sets.append(masked)
    return [Configuration(capabilities.dtypes[0], features) for features in dict.fromkeys(sets)] + [
        Configuration(dtype, features) for dtype in capabilities.dtypes[1:] for features in dict.fromkeys(others)
    ]


def checks(
    configuration: Configuration, capabilities: AttentionCapabilities, size: Size, tile: int, seed: int
) -> Iterator[Check]:
    """The checks of a configuration. `tile` is the subject's, in tokens."""
    base = _base(configuration, seed)
    plain = not configuration.features
    several = "causal_prefill" in configuration.features or (
        "non_causal" in configuration.features and capabilities.causal_prefill
    )
    rows = (3, 2) if several else (1, 1)
    moved = replace(base, lengths=(9, 6), query_lens=rows)
    laws = [law for law in RELATIONS if law not in NEEDS or getattr(capabilities, NEEDS[law])]
    yield from (Check(law, moved) for law in laws if law != "split_invariance")  # too short to be split
    probed = replace(base, lengths=(8, 3), query_lens=rows, seed=seed + 1)
    yield from (Check(law, probed) for law in PROBES)
    bounds = [law for law in BOUNDS if law not in NEEDS or getattr(capabilities, NEEDS[law])]
    edges = replace(
        base, lengths=(0, 1, 3, 4, 5, 5), query_lens=(1, 3, 1, 2, 2, 0) if several else (1,) * 6, seed=seed + 2
    )
    yield from (Check(law, edges) for law in ("census", *bounds))
    step = 16 if size == "tiny" else min(max(16, 16 * ceil_div(tile, 16)), 64)  # kernels split at multiples of 16
    if size == "full" or configuration.features in ((), ("window",), ("sinks",)):
        long = _long(base, step, size, several)
        yield from (Check(law, long) for law in ("history", *PROBES, *bounds))
        whole = replace(long, split_size=None)  # the subject splits as it likes
        yield from (Check(law, whole) for law in laws if law in ("batch_invariance", "split_invariance"))
    yield from _styled(base, configuration, several, bounds, size)
    if plain and capabilities.writes:
        yield from (Check(law, replace(base, dtype=configuration.dtype)) for law in WRITES)
    if size == "full":
        yield from _wide(base, several, laws, bounds, step, turn=sum(map(len, configuration.features)))
    elif plain:
        odd = replace(base, block_size=3, num_kv_heads=1, group=3, head_dim=24, lengths=(7,), seed=seed + 5)
        yield from (Check(law, odd) for law in ("poison", *PROBES, *bounds))


def _base(configuration: Configuration, seed: int) -> Case:
    features = set(configuration.features)
    return Case(
        dtype=configuration.dtype,
        causal="non_causal" not in features,
        window=3 if "window" in features else None,
        softcap=2.0 if "softcap" in features else 0.0,
        alibi="alibi" in features,
        sinks="sinks" in features,
        seed=seed,
    )


def _long(base: Case, step: int, size: Size, several: bool) -> Case:
    """Lengths around a tile and a split, with splits of two tiles: rescaling within a split, merging between them."""
    tiny = (0, step + 1, 3 * step + 1)
    lengths = tiny if size == "tiny" else (*tiny, step - 1, step, 2 * step - 1, 2 * step, 2 * step + 1)
    rows = tuple(5 if several else 1 for _ in lengths)
    window = None if base.window is None else step + 1
    return replace(base, lengths=lengths, query_lens=rows, split_size=2 * step, window=window, seed=base.seed + 3)


def _styled(base: Case, configuration: Configuration, several: bool, bounds: list[str], size: Size) -> Iterator[Check]:
    """Inputs that hurt: huge, equal and denormal logits, and softcap past the range of exp."""
    everywhere = size == "full" or not configuration.features
    styles = ["large", "negative", "one_huge", "equal", "denormal"] if everywhere else []
    rows = (2, 1) if several else (1, 1)
    for style in styles + (["saturated"] if base.softcap else []):
        case = replace(base, lengths=(7, 5), query_lens=rows, style=style, seed=base.seed + 4)
        yield from (Check(law, case) for law in bounds)


def _wide(base: Case, several: bool, laws: list[str], bounds: list[str], step: int, turn: int) -> Iterator[Check]:
    """Larger shapes: blocks of 16, 1 and 5, one to eight query heads a KV head, wider heads, several splits.

    Probes and bounds see every shape; the relations of one configuration see one of them, by `turn`.
    """
    window = None if base.window is None else 19
    shapes = (
        (16, 1, 4, 64, (15, 16, 17, 3 * step + 1), 2 * step),
        (1, 3, 1, 32, (3, 33), None),
        (8, 2, 8, 128, (step - 1, 4 * step + 5), step),
        (5, 2, 3, 80, (4, 21), None),
    )
    for index, (block_size, heads, group, head_dim, lengths, split) in enumerate(shapes):
        rows = tuple(min(length, 4 + 3 * turn) if several else 1 for turn, length in enumerate(lengths))
        case = replace(
            base, block_size=block_size, num_kv_heads=heads, group=group, head_dim=head_dim, lengths=lengths,
            query_lens=rows, split_size=split, window=window, seed=base.seed + 10 + index,
        )  # fmt: skip
        relations = laws if index == turn % len(shapes) else []
        yield from (Check(law, case) for law in (*relations, *PROBES, *bounds))
