"""Bitwise relations: what may differ between two launches without changing one bit of the result.

No tolerance and no oracle: the subject is compared with itself. Each law here is about where contents lie, what lies
beside them, or what ran before; none of that is an input of attention (Kwon et al., 2023, §4.3).
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pagedkv.conformance.attention.bench import Bench, Broken, Law, Result, require_same_bits
from pagedkv.conformance.attention.cases import Case, Contents, cast, contents
from pagedkv.conformance.attention.placement import FILLS, Placement, dead_blocks, place, tables
from pagedkv.spec.words import ceil_div


def poison(bench: Bench, case: Case) -> int:
    """Unused slots (the rest of the last block, free blocks) may hold NaN, Inf, the largest value or other data."""
    plain = bench.run(case)
    for fill in FILLS[1:]:
        require_same_bits(plain, bench.run(case, Placement(fill=fill)), f"unused slots filled with {fill}")
    return len(FILLS) - 1


def unseen(bench: Bench, case: Case) -> int:
    """A position that some rows of a request see and others do not may hold NaN or Inf: those others keep their bits.

    All that the first row does not see is poisoned, keys and values, then all that the last row does not see. Where
    rows share a product, a weight of 0 does not hide what lies there: 0 * NaN and 0 * Inf are NaN.
    """
    plain, inside, compared = bench.run(case), contents(case), 0
    for aim in (0, -1):
        hidden_of, clean = [], []
        for request, rows in enumerate(case.query_lens):
            hidden = np.ones(case.lengths[request], dtype=bool)
            hidden[case.sees(request, aim % rows) if rows else slice(None)] = False
            clean += [not hidden[case.sees(request, row)].any() for row in range(rows)]
            hidden_of.append(hidden)
        kept = np.array(clean, dtype=bool)
        if not any(hidden.any() for hidden in hidden_of) or not kept.any():
            continue
        for fill in (np.nan, np.inf):
            keys, values = (_poisoned(arrays, hidden_of, fill) for arrays in (inside.keys, inside.values))
            got = bench.attend(place(case, replace(inside, keys=keys, values=values)))
            require_same_bits(plain, _where(kept, got, plain), f"positions that the row does not see ({fill})")
            compared += int(kept.sum())
    return compared


def table_tail(bench: Bench, case: Case) -> int:
    """Table entries past the end may hold anything and are never dereferenced; out-of-range ids come last."""
    plain = bench.run(case)
    for tail in ("in_range", "out_of_range"):
        got = bench.run(case, Placement(fill="nan", tail=tail))
        require_same_bits(plain, got, f"table entries past the end ({tail} garbage)")
    return 2


def permutation(bench: Bench, case: Case) -> int:
    """Which physical blocks hold the contents does not matter."""
    plain = bench.run(case)
    for seed in (1, 2):
        require_same_bits(plain, bench.run(case, Placement(seed=seed)), "the placement of blocks")
    return 2


def sharing(bench: Bench, case: Case) -> int:
    """A prefix shared physically between requests gives what private copies give."""
    shared = min(case.lengths, default=0) // case.block_size
    if len(case.lengths) < 2 or shared == 0:
        return 0
    inside = _common_prefix(contents(case), shared * case.block_size)
    private = bench.attend(place(case, inside))
    got = bench.attend(place(case, inside, Placement(shared_blocks=shared)))
    require_same_bits(private, got, "whether a prefix is shared or copied")
    return 1


def duplicate_run(bench: Bench, case: Case) -> int:
    """The same launch twice: anything else is nondeterminism."""
    require_same_bits(bench.run(case), bench.run(case, Placement()), "the run (nondeterministic)")
    return 1


def history(bench: Bench, case: Case) -> int:
    """What ran before leaves no trace: a launch on NaN, then, where the subject writes, a churned pool."""
    plain = bench.run(case)
    inside = contents(case)
    nan = [np.full_like(query, np.nan) for query in inside.queries]
    bench.attend(place(case, replace(inside, queries=tuple(nan)), Placement(seed=3, fill="nan")))
    require_same_bits(plain, bench.run(case, Placement()), "an earlier launch")
    if not bench.subject.capabilities.writes:
        return 1
    require_same_bits(plain, _churned(bench, case, inside), "what the pool held before")
    return 2


def batch_invariance(bench: Bench, case: Case) -> int:
    """Declared `batch_invariant`: a request alone gives what it gives in company."""
    if len(case.lengths) < 2:
        return 0
    plain, start = bench.run(case), 0
    inside = contents(case)
    for index, rows in enumerate(case.query_lens):
        alone = replace(case, lengths=(case.lengths[index],), query_lens=(rows,))
        own = Contents(
            (inside.queries[index],), (inside.keys[index],), (inside.values[index],),
            inside.scale, inside.softcap, inside.alibi_slopes, inside.sinks,
        )  # fmt: skip
        here = slice(start, start + rows)
        expected = Result(plain.out[here], None if plain.lse is None else plain.lse[here])
        require_same_bits(expected, bench.attend(place(alone, own)), "the other requests of the batch")
        start += rows
    return len(case.lengths)


def split_invariance(bench: Bench, case: Case) -> int:
    """Declared `split_invariant`: the bits do not depend on the split size."""
    plain = bench.run(replace(case, split_size=None))
    for split_size in (16, 32):
        require_same_bits(plain, bench.run(replace(case, split_size=split_size)), f"the split size ({split_size})")
    return 2


def padding(bench: Bench, case: Case) -> int:
    """Declared `padded`: query rows past the last request give 0 and LSE -inf, and no other row changes by a bit."""
    plain, launch = bench.run(case), place(case, contents(case))
    rows = len(launch.query)
    for extra in (1, 11):
        noise = np.full((extra, *launch.query.shape[1:]), np.nan, dtype=launch.query.dtype)
        got = bench.attend(replace(launch, query=np.concatenate([launch.query, noise])))
        require_same_bits(plain, _rows(got, slice(rows)), f"rows past the last request ({extra})")
        rest = _rows(got, slice(rows, None))
        if np.any(rest.out != 0) or (rest.lse is not None and not np.isneginf(rest.lse).all()):
            raise Broken(f"of {extra} rows past the last request some give more than output 0 and lse -inf")
    return 2


def strides(bench: Bench, case: Case) -> int:
    """Declared `strided`: heads before offsets in memory, with padded rows, give what the plain layout gives."""
    require_same_bits(bench.run(case), bench.run(case, Placement(layout="padded")), "the strides of the caches")
    return 1


def far_blocks(bench: Bench, case: Case) -> int:
    """Declared `strided`: blocks more than 2**31 elements apart are found, so offsets are 64-bit before multiplying.

    A subject that has to copy the whole range, and has no room for it, says so by `MemoryError`.
    """
    try:
        launch = place(case, contents(case), _with_last_block_used(case))
    except (OSError, OverflowError, AttributeError):  # no such address space here
        return 0
    plain = bench.run(case)
    try:
        got = bench.attend(launch)
    except Exception as error:
        if _no_room(error):
            return 0
        raise
    require_same_bits(plain, got, "the distance between blocks (32-bit offsets?)")
    return 1


def _no_room(error: Exception) -> bool:
    """Whether it says that memory ran out, by Python or by torch: an illegal access says something else.

    For memory of the CPU torch has no type of error, only the name of the allocator in the text.
    """
    torch = sys.modules.get("torch")
    exhausted = (MemoryError, getattr(torch, "OutOfMemoryError", MemoryError))
    return isinstance(error, exhausted) or "DefaultCPUAllocator: " in str(error)


def dead(bench: Bench, case: Case) -> int:
    """With a window: blocks that no row sees may be given away; their table entries may name what they like."""
    if not any(dead_blocks(case, request) for request in range(len(case.lengths))):
        return 0
    plain = bench.run(case)
    for what in ("fill", "hole"):
        got = bench.run(case, Placement(fill="nan", dead=what))
        require_same_bits(plain, got, f"blocks before the window ({what})")
    return 2


RELATIONS: dict[str, Law] = {
    "poison": poison,
    "unseen": unseen,
    "table_tail": table_tail,
    "permutation": permutation,
    "sharing": sharing,
    "duplicate_run": duplicate_run,
    "history": history,
    "batch_invariance": batch_invariance,
    "split_invariance": split_invariance,
    "padding": padding,
    "strides": strides,
    "far_blocks": far_blocks,
    "dead_blocks": dead,
}
"""Every relation by name."""


def _poisoned(arrays: Sequence[Any], hidden_of: Sequence[Any], fill: float) -> tuple[Any, ...]:
    """The arrays, one a request, with `fill` at the hidden positions."""
    fills = (np.where(hidden[:, None, None], fill, array) for array, hidden in zip(arrays, hidden_of, strict=True))
    return tuple(filled.astype(array.dtype) for array, filled in zip(arrays, fills, strict=True))


def _where(kept: Any, result: Result, other: Result) -> Result:
    """The rows of a result that are kept, and those of another one in the place of the rest."""
    out = np.where(kept[:, None, None], result.out, other.out)
    either = result.lse is None or other.lse is None
    return Result(out, result.lse if either else np.where(kept[:, None], result.lse, other.lse))


def _rows(result: Result, kept: Any) -> Result:
    """Some rows of a result."""
    return Result(result.out[kept], None if result.lse is None else result.lse[kept])


def _common_prefix(inside: Contents, tokens: int) -> Contents:
    """The contents with the first request's leading `tokens` in every request."""
    keys = [np.concatenate([inside.keys[0][:tokens], key[tokens:]]) for key in inside.keys]
    values = [np.concatenate([inside.values[0][:tokens], value[tokens:]]) for value in inside.values]
    return replace(inside, keys=tuple(keys), values=tuple(values))


def _with_last_block_used(case: Case) -> Placement:
    """A far placement in which the first request uses the last block of the pool."""
    for seed in range(1000):
        placement = Placement(seed=seed, layout="far")
        block_tables, num_blocks = tables(case, placement)
        if num_blocks - 1 in block_tables[0, : ceil_div(case.lengths[0], case.block_size)]:
            return placement
    return Placement(layout="far")


def _churned(bench: Bench, case: Case, inside: Contents) -> Result:
    """Launch on a pool that other requests have used: written by the subject, moved by its copies, written again.

    Every block is first written full of another life's rows; the contents are then written through their slots into
    one placement, and each first block is moved to a spare by `copy_blocks`.
    """
    rng = np.random.default_rng((case.seed, 14))
    start = place(case, inside, Placement(seed=4, fill="nan"))
    keys, values, blocks = start.key_cache, start.value_cache, start.block_tables.copy()
    num_blocks, block_size = keys.shape[:2]
    everywhere = rng.permutation(num_blocks * block_size).astype(np.int64)
    old = [cast(rng.standard_normal((len(everywhere), case.num_kv_heads, dim)), case.dtype) for dim in case.dims]
    bench.write_kv(old, (keys, values), everywhere, case.dtype)
    used: set[int] = set()
    for request, length in enumerate(case.lengths):
        positions = np.arange(length)
        slots = blocks[request, positions // block_size].astype(np.int64) * block_size + positions % block_size
        bench.write_kv((inside.keys[request], inside.values[request]), (keys, values), slots, case.dtype)
        used |= set(blocks[request, : ceil_div(length, block_size)].tolist())
    spare = min(set(range(num_blocks)) - used)
    moved = next((request for request, length in enumerate(case.lengths) if length), None)
    if moved is not None:
        pairs = np.array([[blocks[moved, 0], spare]], dtype=np.int64)
        bench.copy_blocks([keys, values], pairs, case.dtype)
        blocks[moved, 0] = spare
    return bench.attend(replace(start, block_tables=blocks))
