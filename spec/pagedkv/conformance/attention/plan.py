"""Which cases a subject is held to: a few configurations, and for each the shapes where kernels go wrong.

A configuration is a dtype with a set of options; each goes through every class of shapes that the subject takes. Head
dims, groups and block sizes take turns over configurations and classes, so that each occurs without a product of all.
"tiny" suits an interpreted kernel at milliseconds a loop iteration, "full" a compiled one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from pagedkv.conformance.attention.bench import Law
from pagedkv.conformance.attention.cases import STYLES, Case
from pagedkv.conformance.attention.numeric import BOUNDS
from pagedkv.conformance.attention.probes import PROBES
from pagedkv.conformance.attention.relations import RELATIONS
from pagedkv.conformance.attention.shapes import (
    DEEP, DIMS, LAUNCHES, SMALL, Dims, aligned, deep, many, shaped, with_dims,
)  # fmt: skip
from pagedkv.conformance.attention.writes import WRITES
from pagedkv.spec.attention_subject import AttentionCapabilities
from pagedkv.spec.words import ceil_div

Size: TypeAlias = Literal["tiny", "full"]
Shape: TypeAlias = Mapping[str, int]
"""Fields of a case that are fixed, for a kernel made for them."""

OPTIONS = ("non_causal", "window", "softcap", "alibi", "sinks")
"""Capabilities that a launch of any shape can use."""

LAWS: dict[str, tuple[str, Law]] = {
    **{name: ("relation", law) for name, law in RELATIONS.items()},
    **{name: ("probe", law) for name, law in PROBES.items()},
    **{name: ("bound", law) for name, law in BOUNDS.items()},
    **{name: ("write", law) for name, law in WRITES.items()},
}
"""Every law by name, with its kind."""

UNREAD = ("unseen", "dead_blocks")
UNUSED = ("poison", "table_tail", "dead_blocks")
"""Relations about what rows may not read, which every option might break. "tiny" has the others in few
configurations."""

NEEDS = {
    "batch_invariance": "batch_invariant",
    "split_invariance": "split_invariant",
    "padding": "padded",
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
    """One dtype with one set of features, which every case of it has; none: a causal launch without options."""

    dtype: str
    features: tuple[str, ...] = ()


def configurations(capabilities: AttentionCapabilities, size: Size) -> list[Configuration]:
    """No option, each declared one by itself, a window without causality, all together; "full" has all pairs.

    That is for the first dtype. The others go through none and all, in "full" also through each.
    """
    declared = [name for name in OPTIONS if getattr(capabilities, name)]
    alone: list[tuple[str, ...]] = [(), *((name,) for name in declared)]
    together = tuple(name for name in declared if name != "non_causal")
    pairs = [pair for pair in combinations(declared, 2) if size == "full" or pair == ("non_causal", "window")]
    others = [*alone, together] if size == "full" else [(), together]
    first, *rest = capabilities.dtypes
    return [Configuration(first, features) for features in dict.fromkeys([*alone, *pairs, together])] + [
        Configuration(dtype, features) for dtype in rest for features in dict.fromkeys(others)
    ]


def checks(
    configuration: Configuration,
    capabilities: AttentionCapabilities,
    size: Size,
    tile: int,
    seed: int,
    shape: Shape = MappingProxyType({}),
) -> Iterator[Check]:
    """The checks of a configuration. `tile` is the subject's, in tokens; `shape` what is fixed of every case."""
    fixed: dict[str, Any] = dict(shape)
    wanted = set(configuration.features)
    for law, case in _Planner(configuration, capabilities, size, tile, seed, fixed).checks():
        if wanted <= set(case.features()):
            yield Check(law, replace(case, **fixed))


class _Planner:
    """Makes the checks of one configuration."""

    def __init__(
        self,
        configuration: Configuration,
        capabilities: AttentionCapabilities,
        size: Size,
        tile: int,
        seed: int,
        fixed: dict[str, Any],
    ) -> None:
        self.options = options = [name for name in OPTIONS if name in configuration.features]
        self.capabilities, self.full = capabilities, size == "full"
        self.several = capabilities.causal_prefill
        self.step = min(max(16, 16 * ceil_div(tile, 16)), 64) if self.full else 16  # kernels split at multiples of 16
        self.first = configuration.dtype == capabilities.dtypes[0]
        self.plain, self.together = not options, len(options) > 2
        self.fixed = fixed
        self.thorough = self.full or (self.first and (self.plain or self.together))
        self.turn = sum(OPTIONS.index(name) + 1 for name in options)
        self.turn += 3 * capabilities.dtypes.index(configuration.dtype)
        self.base = Case(
            dtype=configuration.dtype, causal="non_causal" not in options, window=3 if "window" in options else None,
            softcap=2.0 if "softcap" in options else 0.0, alibi="alibi" in options, sinks="sinks" in options, seed=seed,
        )  # fmt: skip
        self.bounds = self._declared(BOUNDS)
        self.relations = [law for law in self._declared(RELATIONS) if not law.endswith("_invariance")]

    def checks(self) -> Iterator[Check]:
        """Relations, then the launches of each kind, then inputs that hurt, then writes."""
        if self.thorough:
            yield from self._each(self.relations, self._moved())
        elif self.first or self.together:
            yield from self._each(self._among(UNREAD if self.several else (*UNREAD, *UNUSED)), self._moved())
        masked = self.first and (self.plain or self.base.window is not None or not self.base.causal)
        if self.several and (self.full or self.together or masked):  # a decode by itself
            yield from self._each(self._among(UNUSED), replace(self._moved(), query_lens=(1, 1, 1)))
        for number, launch in enumerate(LAUNCHES):
            if self.several or launch == "decode":
                yield from self._launch(launch, self.turn, 3 * self.turn + number)
            if self.first and self.plain and (launch == "decode" or (self.full and self.several)):
                for index in range(len(DIMS)):
                    yield from self._launch(launch, index, index)
        if self.first and self.base.window is not None:
            only_itself = replace(self._moved(), window=1)  # what a row sees: windows are often off by one
            for rows in dict.fromkeys((only_itself.query_lens, (1, 1, 1))):
                laws = [*self.bounds, *PROBES, *self._among(["dead_blocks"])]
                yield from self._each(laws, replace(only_itself, query_lens=rows))
        yield from self._extreme()
        yield from self._styled()
        if self.plain and self.capabilities.writes:
            yield from self._each(list(WRITES), self.base)
            yield from self._each(list(WRITES), self._with(DIMS[1]))

    def _among(self, laws: Iterable[str]) -> list[str]:
        return [law for law in self.relations if law in laws]

    def _declared(self, laws: Iterable[str]) -> list[str]:
        return [law for law in laws if law not in NEEDS or getattr(self.capabilities, NEEDS[law])]

    def _each(self, laws: Iterable[str], case: Case) -> Iterator[Check]:
        return (Check(law, case) for law in laws)

    def _with(self, dims: Dims) -> Case:
        return replace(with_dims(self.base, dims, value_dim=self.capabilities.value_dim), **self.fixed)

    def _moved(self) -> Case:
        """A small launch that is laid out again and again: a decode, a chunk of a prompt and a few rows."""
        case = self._with(SMALL[self.turn % len(SMALL)])
        return replace(case, lengths=(9, self.step + 3, 6), query_lens=(1, 12, 2) if self.several else (1, 1, 1))

    def _launch(self, launch: str, turn: int, dims: int) -> Iterator[Check]:
        """Bounds and probes; and whether company changes bits, where requests differ most."""
        seldom = {"several": self.thorough or self.together, "long": self.first and self.plain}
        if not self.full and not seldom.get(launch, True):
            return
        base = replace(self._with(DIMS[dims % len(DIMS)]), seed=self.base.seed + 1 + turn)
        case = shaped(base, launch, self.step, turn, full=self.full)
        yield from self._each(self.bounds, case)
        largest = launch == ("mixed" if self.several else "decode")
        if self.full or largest or launch == "long":
            yield from self._each(PROBES, case)
        if self.full and largest and turn == self.turn:
            yield from self._each(self.relations, case)
        if self.thorough and largest and turn == self.turn:
            whole = replace(case, split_size=None)  # the subject splits as it likes
            yield from self._each(self._declared(("batch_invariance", "split_invariance")), whole)

    def _extreme(self) -> Iterator[Check]:
        """One request past what 16 bits count, requests around powers of two, and more than a scheduler has threads.

        A bound on sums so long sees no lost token. The probes do, though in 16 bits only where many are lost.
        """
        if not (self.full and self.first):
            return
        if len(self.options) < 2:
            yield from self._each(PROBES, deep(self._with(DEEP[not self.plain]), several=self.several))
        if self.plain:
            yield from self._each(PROBES, aligned(self._with(SMALL[0]), several=self.several))
            crowd = many(self._with(SMALL[0]), several=self.several)
            yield from self._each((*self.bounds, *PROBES), crowd)

    def _styled(self) -> Iterator[Check]:
        """Inputs that hurt: huge, equal and denormal logits, rising ones, and softcap past the range of exp."""
        styles = [style for style in STYLES[1:] if style != "saturated"]
        if not self.full and not (self.first and self.plain):
            styles = ["large", "late", "denormal"] if self.plain else ["late"] if self.base.window is not None else []
        styles += ["saturated"] if self.base.softcap else []
        lengths, rows = (2 * self.step + 2, self.step + 5, 5), (1, 12, 2) if self.several else (1, 1, 1)
        case = replace(self.base, lengths=lengths, query_lens=rows, num_kv_heads=1, seed=self.base.seed + 4)
        for style in styles:
            yield from self._each(self.bounds, replace(case, style=style))
