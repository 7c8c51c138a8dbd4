"""Shapes: the lengths and query rows at which kernels go wrong, and the dimensions of models, taken in turns.

Kernels cut the work into tiles of keys, splits of tiles and blocks of rows, and the cache has blocks of its own: what
goes wrong goes wrong one before or one past a cut. A request may also bring no rows, more rows than positions, or rows
and no positions.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from pagedkv.conformance.attention.cases import Case
from pagedkv.spec.words import ceil_div

Pairs: TypeAlias = tuple[tuple[int, int], ...]
"""Length and query rows of each request."""


class Dims(NamedTuple):
    """What a model and its cache fix."""

    block_size: int
    num_kv_heads: int
    group: int
    head_dim: int
    value_dim: int | None = None
    """None: `head_dim`. Another one is for subjects that declare `value_dim`."""


DIMS = (
    Dims(4, 2, 2, 16),
    Dims(3, 1, 3, 80, 96),
    Dims(1, 2, 1, 112, 48),
    Dims(16, 1, 5, 96),
    Dims(64, 1, 7, 32, 128),
    Dims(5, 2, 4, 256, 64),
    Dims(256, 1, 8, 64),
    Dims(24, 1, 1, 128),
    Dims(2, 3, 2, 24, 256),
    Dims(100, 1, 6, 40),
)
"""Groups and head dims that are no powers of two, MQA and MHA, blocks smaller and larger than a tile, also such that a
tile lies in two of them."""

DEEP = Dims(1, 1, 2, 32), Dims(4, 1, 2, 32)
"""For one long request: a table of many entries, and a code for each position. First as many blocks, so that neither
positions nor ids of blocks fit in 16 bits."""

SMALL = tuple(dims for dims in DIMS if dims.block_size < 6 and dims.num_kv_heads * dims.group <= 4)
"""For relations: a short request has several blocks."""

FEW_HEADS = 4
"""Query heads that an interpreted merge of many rows takes in a while; with more there is one split."""

ONE_SPLIT = 2048
"""Tokens."""

LAUNCHES = ("mixed", "decode", "several", "long")
"""All that a batch can hold; one row a request; several rows; many splits."""


DEEPEST = 2**16 + 5
"""Positions: more than 16 bits count."""

MOST_REQUESTS = 1030
"""Schedulers of batches go by groups of 32 and stop at 1,024 threads."""

MOST_ELEMENTS = 512 * DEEPEST
"""Of a cache, where somebody fixed the shape: 4 heads of 128 columns are as deep as all. Some gigabytes with copies."""


def with_dims(case: Case, dims: Dims, *, value_dim: bool) -> Case:
    """The case with these dimensions; values as wide as keys unless `value_dim`."""
    return replace(case, **{**dims._asdict(), "value_dim": dims.value_dim if value_dim else None})


def shaped(base: Case, launch: str, step: int, turn: int, *, full: bool) -> Case:
    """The base case as one of `LAUNCHES`, around tiles of `step` and splits of two, in tokens.

    `turn`: which half of the lengths; `full`: both halves, and more. A window is wider than a tile in a decode, as wide
    with several rows, and in a mixed batch so narrow that rows of one block see nothing of each other's tiles.
    """
    block, split = base.block_size, 2 * step
    pairs = _halves(launch, block, step, split)[turn % 2]
    if full:
        pairs = (*_halves(launch, block, step, split)[1 - turn % 2], *pairs, *_larger(launch, step))
    elif block > split:  # an interpreted kernel takes its time: one length past a block, and few splits
        pairs = (*(pair for pair in pairs if pair[0] < block - 1), (block + 1, 1 if launch == "decode" else 2))
        split = 16 * ceil_div(block, 16)
    if launch == "long":
        split = step
    elif not full and (turn % 2 if launch == "decode" else base.num_q_heads > FEW_HEADS):
        split = ONE_SPLIT
    lengths, query_lens = zip(*pairs, strict=True)
    window = None if base.window is None else {"mixed": 3, "several": step}.get(launch, step + 1)
    return replace(base, lengths=lengths, query_lens=query_lens, window=window, split_size=split)


def _halves(launch: str, block: int, step: int, split: int) -> tuple[Pairs, Pairs]:
    """Two launches that together go around every cut. Rows lie on both sides of the cut between two splits."""
    if launch == "decode":
        first = (0, block - 1, block + 1, step, split - 1, split + 1)
        second = (1, block, step - 1, step + 1, split, split + step + 1)
        return tuple((length, 1) for length in first), tuple((length, 1) for length in second)
    if launch == "several":
        return (
            ((split + 4, 8), (5, 5), (2 * step + 5, 20)),
            ((step + 2, 8), (step + 2, step + 2), (9, 15)),
        )
    if launch == "long":  # more splits than are merged in one go
        return ((18 * step + 3, 1),), ((17 * step, 2),)
    return (
        ((step + 1, 1), (split + 3, 4), (step + 9, 20), (5, 0), (2, 10)),
        ((split + 1, 1), (split, 2), (split + 7, 12), (3, 11), (0, 2)),
    )


def _larger(launch: str, step: int) -> Pairs:
    """For a compiled kernel: several blocks of 64 rows, and many tiles."""
    return {
        "decode": ((4 * step + 5, 1),),
        "several": ((6 * step + 3, 6), (3 * step + 1, 70), (67, 67)),
        "mixed": ((5 * step + 1, 1), (2 * step + 1, 66)),
        "long": ((20 * step + 1, 8),),
    }[launch]


def deep(base: Case, *, several: bool) -> Case:
    """One long request, and the end of a long prompt if `several` rows are declared. The subject splits as it likes."""
    room = _room(base)
    lengths = min(DEEPEST, room), min(4099, room // 4)
    case = replace(base, lengths=lengths, query_lens=(1, 20 if several else 1), split_size=None)
    return case if base.window is None else replace(case, window=4097)


def aligned(base: Case, *, several: bool) -> Case:
    """Requests around powers of two, where splits and tables are cut; chunks whose first row is at one, and one of many
    rows."""
    powers = [2**exponent for exponent in range(7, 13)]
    pairs = [(700, 300)] if several else []
    pairs += [(power + past, 1) for power in powers for past in (-1, 0, 1)]
    pairs += [(power + 3, 3) for power in powers] if several else []
    lengths, rows = zip(*_roomy(base, pairs), strict=True)
    return replace(base, lengths=lengths, query_lens=rows, split_size=None)


def many(base: Case, *, several: bool) -> Case:
    """Many short requests around the ends of blocks, few of them odd: no positions, or rows, or more rows."""
    block = base.block_size
    turns = [divmod(number, 2 * block + 1) for number in range(MOST_REQUESTS)]
    pairs = [(past + 1, min(past + 1, (1, 1, 2, 1, 5, 1)[turn % 6] if several else 1)) for turn, past in turns]
    odd = [(0, 1), (2, 5), (0, 2), (block, 0)] if several else [(0, 1)]
    lengths, rows = zip(*_roomy(base, pairs), *odd, strict=True)
    return replace(base, lengths=lengths, query_lens=rows, split_size=None)


def _roomy(case: Case, pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those before the first that the cache has no room for."""
    ends = accumulate(case.block_size * ceil_div(length, case.block_size) for length, _ in pairs)
    return [pair for pair, end in zip(pairs, ends, strict=True) if end <= _room(case)]


def _room(case: Case) -> int:
    """Slots that a cache of these dimensions may have."""
    return max(2048, MOST_ELEMENTS // (case.num_kv_heads * max(case.dims)))
