"""Exact probes: inputs whose output is known to the bit, read through the real kernel.

*One-hot.* Keys are random sign codes ±8 and a query is the code of one key. The scale makes the gap between its logit
and every other so large that all other weights underflow to 0; then the output is that key's value, bit for bit. The
probe is a read of (table, offset, head) by content.

*Census.* All logits are equal, and so all weights; values are one-hot class columns: the output is the count of each
class among the positions seen, divided by how many are seen. A missing, a duplicated and a foreign token all show. The
logits are 0, and once -65536: a maximum that starts at less than infinitely little, or is left at 0 by a tile of which
a row sees nothing, loses them all.

Without a mask attention does not depend on the order of positions. A swapped table entry shows only where a row sees
part of the blocks: causal rows, windows, a partly filled last block.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pagedkv.conformance.attention.bench import Bench, Broken, Law, Result
from pagedkv.conformance.attention.cases import Case, Contents, alibi_slopes, cast, storage
from pagedkv.conformance.attention.declared import rounding
from pagedkv.conformance.attention.placement import Placement, place
from pagedkv.spec.attention_subject import RoundingModel
from pagedkv.spec.rounding import UNIT_ROUNDOFF

TURNS = ("by position", "in runs", "deep")
"""Of the census: how classes follow each other, and last without an order, and with logits far below 0. A token that is
read in the place of one a tile or a run before has the same class in an order, and another one without."""

CODE = 8.0
SINK = 1024
"""Tokens that a sink weighs as much as: one that is lost shows in a long request, too."""
GAP = 160.0
"""Nats between the wanted logit and any other; exp underflows to 0 in float32 beyond 104."""


def one_hot(bench: Bench, case: Case, sweeps: int | None = None) -> int:
    """Every row reads one position a query head: the ends of what it sees and cuts of splits, tiles and blocks first.

    A launch reads as many positions a row as there are query heads. At most `sweeps` launches; unless given, 4, or as
    many as read 16 positions. Not applicable where some request has more positions than there are codes.
    """
    if max(case.lengths) > 2**case.head_dim:
        return 0
    inside = _codes(case)
    tile = rounding(bench.subject, place(case, inside)).tile
    aims = [[_ordered(case, request, row, tile) for row in range(rows)] for request, rows in enumerate(case.query_lens)]
    heads = case.num_q_heads
    needed = max((-(-len(aim) // heads) for rows in aims for aim in rows), default=0)
    checked = 0
    for sweep in range(min(max(needed, 1), min(4, -(-16 // heads)) if sweeps is None else sweeps)):
        chosen = [[_pick(aim, sweep * heads, heads) for aim in rows] for rows in aims]
        checked += _read(bench, case, inside, chosen)
    return checked


def census(bench: Bench, case: Case) -> int:
    """Counts of classes among the positions seen: what the output times their number rounds to.

    It need not be that number itself: partial results may have been divided by others, or merged through logarithms. A
    count too large to be rounded to, in the format of the output, is within its rounding.
    """
    if case.alibi:  # the weights differ by position
        return 0
    checked = 0
    for seed, turn in enumerate(TURNS, start=5):
        inside, classes = _classes(case, turn)
        launch = place(case, inside, Placement(seed=seed, fill="foreign", tail="in_range"))
        model = rounding(bench.subject, launch)
        got, start = bench.attend(launch), 0
        for request, rows in enumerate(case.query_lens):
            for row in range(rows):
                seen = classes[request][case.sees(request, row)]
                where = f"row {row} of request {request}{', logits -65536' if turn == 'deep' else ''}"
                checked += _count(case, got.out[start + row], seen, case.sinks and turn != "deep", model, where)
            start += rows
    return checked


PROBES: dict[str, Law] = {"one_hot": one_hot, "census": census}
"""Both probes by name."""


def codes(rng: np.random.Generator, length: int, size: tuple[int, int]) -> tuple[Any, int]:
    """((length, num_kv_heads, head_dim) of ±8; in how many places any two rows of a head differ at least).

    A random linear code: sums of some rows of a random matrix of bits, one for each digit of a number. Two sums differ
    where their own sum is not 0, so that the distance is the weight of the lightest. `length` <= 2**head_dim.
    """
    heads, width = size
    digits = max(1, (length - 1).bit_length())
    key, distance = np.empty((length, heads, width)), width
    for head in range(heads):
        matrix = rng.random((digits, width)) < 0.5
        matrix[:, rng.permutation(width)[:digits]] = np.eye(digits)  # no sum is 0 but the empty one
        sums = np.zeros((1, width), dtype=bool)
        for row in matrix:
            sums = np.concatenate([sums, sums ^ row])
        distance = min(distance, int(sums[1:].sum(axis=1).min()))
        drawn = sums[rng.choice(len(sums), size=length, replace=False)] ^ (rng.random(width) < 0.5)
        key[:, head] = CODE * (2.0 * drawn - 1.0)
    return key, distance


def _codes(case: Case) -> Contents:
    """Sign codes as keys, random values; queries are set by `_read`."""
    rng = np.random.default_rng((case.seed, 21))
    size, value_size = ((case.num_kv_heads, dim) for dim in case.dims)
    keys, distance = [], case.head_dim
    for length in case.lengths:
        key, apart = codes(rng, length, size)
        distance = min(distance, apart)
        keys.append(cast(key, case.dtype))
    slopes = alibi_slopes(case.num_q_heads) if case.alibi else None
    reach = float(max(slopes)) * max(case.lengths, default=0) if slopes is not None else 0.0
    gap = 2.0 * CODE * CODE * distance * (0.75 if case.softcap else 1.0)  # tanh' >= 0.78 up to half a cap
    scale = float(2.0 ** np.ceil(np.log2((GAP + reach) / gap)))
    return Contents(
        queries=_zeros(case),
        keys=tuple(keys),
        values=tuple(cast(rng.standard_normal((length, *value_size)), case.dtype) for length in case.lengths),
        scale=scale,
        softcap=2.0 * CODE * CODE * case.head_dim * scale if case.softcap else 0.0,
        alibi_slopes=slopes,
        sinks=rng.standard_normal(case.num_q_heads).astype(np.float32) if case.sinks else None,
    )


def _zeros(case: Case) -> tuple[Any, ...]:
    """Queries 0."""
    return tuple(np.zeros((rows, case.num_q_heads, case.head_dim), storage(case.dtype)) for rows in case.query_lens)


def _ordered(case: Case, request: int, row: int, tile: int) -> list[int]:
    """The positions that a row sees: its ends, then the cuts of splits, tiles and blocks, larger ones first, the rest.

    Those of a kind are shuffled, so that a few launches reach all over a long request; by the position of the row, so
    that it is asked the same if other rows and requests are left out.
    """
    seen = case.sees(request, row)
    rng = np.random.default_rng((case.seed, 23, case.lengths[request], case.query_lens[request] - row))
    steps = sorted({case.block_size, tile, case.split_size or tile}, reverse=True)
    cuts = [seen[np.isin(seen % step, (0, step - 1))] for step in steps]
    kinds = [seen[[0, -1]] if len(seen) else seen, *cuts, seen]
    return [int(position) for position in dict.fromkeys(p for kind in kinds for p in rng.permutation(kind))]


def _pick(aim: Sequence[int], start: int, count: int) -> list[int]:
    """`count` positions from `start` on, around the end; empty if none is seen."""
    return [aim[(start + index) % len(aim)] for index in range(count)] if aim else []


def _read(bench: Bench, case: Case, inside: Contents, chosen: Sequence[Sequence[Sequence[int]]]) -> int:
    """One launch: query head h of a row asks for `chosen[request][row][h]`."""
    queries, checked = [query.copy() for query in inside.queries], 0
    for request, rows in enumerate(chosen):
        for row, positions in enumerate(rows):
            for head, position in enumerate(positions):
                queries[request][row, head] = inside.keys[request][position, head // case.group]
    asked = replace(inside, queries=tuple(queries))
    got = bench.attend(place(case, asked, Placement(seed=6, fill="foreign", tail="in_range")))
    start = 0
    for request, rows in enumerate(chosen):
        for row, positions in enumerate(rows):
            for head in range(case.num_q_heads):
                where = f"row {row}, query head {head} of request {request}"
                wanted = inside.values[request][positions[head], head // case.group] if positions else None
                _same_value(inside, got, (start + row, head), wanted, positions[head] if positions else None, where)
                checked += 1
        start += len(rows)
    return checked


def _same_value(inside: Contents, got: Result, at: tuple[int, int], wanted: Any, position: Any, where: str) -> None:
    out = got.out[at]
    if wanted is None:
        if np.any(out != 0):
            raise Broken(f"{where} sees nothing, yet its output is not 0")
    elif not np.array_equal(out, wanted):
        found = [(r, int(p), int(h)) for r, v in enumerate(inside.values) for p, h in np.argwhere((v == out).all(-1))]
        read = "the value of (request, position, KV head) " + ", ".join(map(str, found)) if found else "no stored value"
        raise Broken(f"{where} asked for position {position} and got {read}")


def _classes(case: Case, turn: str) -> tuple[Contents, list[Any]]:
    """Contents with equal logits and one-hot values; the classes are (length, num_kv_heads) column numbers."""
    rng = np.random.default_rng((case.seed, 22, TURNS.index(turn)))
    heads, (dim, columns) = case.num_kv_heads, case.dims
    keys, values, classes = [], [], []
    for length in case.lengths:
        run = max(1, -(-length // columns)) if turn == "in runs" else 1
        by = rng.permutation(length) if turn == "deep" else np.arange(length) // run
        column = (by[:, None] + rng.integers(columns, size=heads)) % columns
        value = np.zeros((length, heads, columns), storage(case.dtype))
        np.put_along_axis(value, column[..., None], 1, axis=-1)
        keys.append(cast(rng.standard_normal((length, heads, dim)), case.dtype))
        values.append(value)
        classes.append(column)
    queries, sink = _zeros(case), np.log(SINK)
    if turn == "deep":
        queries, sink = tuple(_with_first_column(query, 256.0) for query in queries), -1e30  # no weight
        keys = [_with_first_column(key, -256.0) for key in keys]
    sinks = np.full(case.num_q_heads, sink, np.float32) if case.sinks else None
    return Contents(queries, tuple(keys), tuple(values), 1.0, case.softcap, sinks=sinks), classes


def _with_first_column(rows: Any, value: float) -> Any:
    """(…, head_dim) with `value` in the first column; queries are 0 in the others."""
    result = rows.copy()
    result[..., 0] = value
    return result


def _count(case: Case, out: Any, classes: Any, sink: bool, model: RoundingModel, where: str) -> int:
    """Compare one row (num_q_heads, value_dim) with the counts of `classes` (seen, num_kv_heads)."""
    number = len(classes) + SINK * sink
    roundoff = UNIT_ROUNDOFF[case.dtype] + model.u_weights
    for head in range(case.num_q_heads):
        counts = np.bincount(classes[:, head // case.group], minlength=case.dims[1])
        got = out[head].astype(np.float64) * max(number, 1)
        within = np.maximum(0.25, 1.01 * roundoff * counts)
        wrong = ~(np.abs(got - counts) <= within)
        if wrong.any():
            column = int(np.argmax(wrong))
            raise Broken(
                f"{where}, query head {head}: class {column} counted {got[column]:.9g} times instead of"
                f" {counts[column]}, of {number} seen"
            )
    return case.num_q_heads
