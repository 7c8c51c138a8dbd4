"""Attention over a paged cache in plain NumPy, block by block, in float32.

One row of the query at a time walks the block table once and never puts the keys of a request side by side. It keeps
three numbers a head: the largest logit so far, the sum of the weights relative to it, and the weighted sum of values.
When a block brings a larger logit, the two sums shrink to the new scale (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018). A row reads exactly the slots that it sees.

Every row is summed in the order of its positions, alone. So the bits of a result depend neither on where blocks lie,
nor on what else is in the batch, nor on how many rows a request brings.
"""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pagedkv.reference.launch import Launch
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem, RoundingModel
from pagedkv.spec.words import Misuse, ceil_div

Array: TypeAlias = NDArray[Any]
Single: TypeAlias = NDArray[np.float32]


def paged_attention(
    query: Array,
    key_cache: Array,
    value_cache: Array,
    block_tables: Array,
    seq_lens: Array,
    query_lens: Array,
    *,
    scale: float,
    causal: bool = True,
    window: int | None = None,
    softcap: float = 0.0,
    alibi_slopes: Array | None = None,
    sinks: Array | None = None,
) -> tuple[Single, Single]:
    """Output (total_q, num_q_heads, value_dim) and natural LSE (total_q, num_q_heads), float32.

    `query` (total_q, num_q_heads, head_dim) holds the last `query_lens[r]` positions of each request r, one request
    after another; rows past the last request see nothing. The caches have the layout (num_blocks, block_size,
    num_kv_heads, dim); `block_tables` (num_requests, max_blocks) names the blocks of each request in order, of which
    the first ceil(seq_lens[r] / block_size) are read, and of those only the ones that a row sees. A row sees positions
    up to its own (`causal`), of these the last `window`. `softcap` bends logits before ALiBi's `alibi_slopes`
    (num_q_heads,) tilt them; `sinks` (num_q_heads,) are logits that take weight and bring no value. A row that sees
    nothing gives 0 and -inf.

    Raises `Misuse` for shapes, dtypes, lengths and block ids that do not fit.
    """
    launch = Launch(
        query, key_cache, value_cache, block_tables, seq_lens, query_lens,
        scale, causal, window, softcap, alibi_slopes, sinks,
    )  # fmt: skip
    out = np.zeros((*query.shape[:2], value_cache.shape[3]), dtype=np.float32)
    lse = np.full(query.shape[:2], -np.inf, dtype=np.float32)
    for row, request, position in launch.rows():
        first, end = launch.span(request, position)
        if first < end:
            out[row], lse[row] = _attend(launch, row, request, position, first, end)
    return out, lse


def _attend(launch: Launch, row: int, request: int, position: int, first: int, end: int) -> tuple[Single, Single]:
    """Online softmax of one row over positions first..end-1."""
    query = np.asarray(launch.query[row], dtype=np.float32)
    num_q_heads = len(query)
    largest = np.full(num_q_heads, -np.inf, dtype=np.float32)
    total = np.zeros(num_q_heads, dtype=np.float32)
    output = np.zeros((num_q_heads, launch.value_cache.shape[3]), dtype=np.float32)
    if launch.sinks is not None:  # as if a token with value 0 had come first
        largest, total = np.array(launch.sinks, dtype=np.float32), total + 1
    for positions, block, offsets in _blocks(launch, request, first, end):
        key = _rows(launch.key_cache, block, offsets, num_q_heads)
        value = _rows(launch.value_cache, block, offsets, num_q_heads)
        logits = (query[:, None, :] * key).sum(axis=2, dtype=np.float32) * np.float32(launch.scale)
        if launch.softcap > 0:
            cap = np.float32(launch.softcap)
            logits = cap * np.tanh(logits / cap)
        if launch.alibi_slopes is not None:
            distance = (positions - position).astype(np.float32)
            logits = logits + np.asarray(launch.alibi_slopes, dtype=np.float32)[:, None] * distance
        new_largest = np.maximum(largest, logits.max(axis=1))
        shrink = np.exp(largest - new_largest)
        weights = np.exp(logits - new_largest[:, None])
        total = total * shrink + weights.sum(axis=1, dtype=np.float32)
        output = output * shrink[:, None] + (weights[:, :, None] * value).sum(axis=1, dtype=np.float32)
        largest = new_largest
    return output / total[:, None], largest + np.log(total)


def _blocks(launch: Launch, request: int, first: int, end: int) -> Iterator[tuple[Array, int, slice]]:
    """Block by block: the positions first..end-1 that lie in it, its id, and their offsets."""
    size = launch.block_size
    for logical in range(first // size, ceil_div(end, size)):
        begin, stop = max(first, logical * size), min(end, (logical + 1) * size)
        block = launch.block(request, logical)
        yield np.arange(begin, stop), block, slice(begin - logical * size, stop - logical * size)


def _rows(cache: Array, block: int, offsets: slice, num_q_heads: int) -> Single:
    """Rows of one block, one a query head: (num_q_heads, len(offsets), dim) float32, in C order for any strides."""
    rows = np.repeat(cache[block, offsets].astype(np.float32), num_q_heads // cache.shape[2], axis=1)
    return np.ascontiguousarray(rows.swapaxes(0, 1))


def round_to(array: Array, dtype: str) -> Array:
    """The nearest values of "float32", "float16" or "bfloat16" (which travels as float32), ties to even."""
    single = np.array(array, dtype=np.float32)
    if dtype == "float16":
        with np.errstate(over="ignore"):  # beyond the largest finite value lies infinity
            return single.astype(np.float16)
    if dtype == "bfloat16":
        bits = single.view(np.uint32)
        up = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
        finite = ~np.isnan(single)  # adding to a NaN could carry it to another number
        bits[finite] = (bits + up & np.uint32(0xFFFF0000))[finite]
    elif dtype != "float32":
        raise Misuse("dtype", dtype, "'float32', 'float16' or 'bfloat16'")
    return single


def write_kv(
    key: Array, value: Array, key_cache: Array, value_cache: Array, slot_mapping: Array, dtype: str = "float32"
) -> None:
    """Write row t of `key` and `value` (num_tokens, num_kv_heads, dim) to slot_mapping[t], in place, as `dtype`.

    A slot is block * block_size + offset; a row whose slot is < 0 is skipped. Slots are distinct.
    """
    slots = np.asarray(slot_mapping)
    if slots.shape != (len(key),) or not np.issubdtype(slots.dtype, np.integer):
        raise Misuse("slot_mapping", slots.tolist(), f"one integer for each of the {len(key)} rows")
    if (
        key.shape[:2] != value.shape[:2]
        or key.shape[1:] != key_cache.shape[2:]
        or value.shape[1:] != value_cache.shape[2:]
    ):
        raise Misuse("key.shape", key.shape, f"(num_tokens, {key_cache.shape[2]}, {key_cache.shape[3]}), values alike")
    kept = slots >= 0
    num_slots = key_cache.shape[0] * key_cache.shape[1]
    if (slots >= num_slots).any() or len(set(slots[kept].tolist())) != kept.sum():
        raise Misuse("slot_mapping", slots.tolist(), f"distinct slots < {num_slots}, or < 0 to skip the row")
    block, offset = np.divmod(slots[kept], key_cache.shape[1])
    key_cache[block, offset] = round_to(key[kept], dtype)
    value_cache[block, offset] = round_to(value[kept], dtype)


def copy_blocks(caches: Sequence[Array], pairs: Array) -> None:
    """Copy whole blocks in place, in each cache; `pairs` (num_pairs, 2) of source and destination, all at once."""
    plan = np.asarray(pairs).reshape(-1, 2)
    sources, destinations = plan[:, 0].tolist(), plan[:, 1].tolist()
    if len(set(destinations)) != len(destinations) or set(destinations) & set(sources):
        raise Misuse("pairs", plan.tolist(), "destinations that differ from each other and from all sources")
    num_blocks = min((len(cache) for cache in caches), default=0)
    if plan.size and not 0 <= plan.min() <= plan.max() < num_blocks:
        raise Misuse("pairs", plan.tolist(), f"blocks in 0..{num_blocks - 1}")
    for cache in caches:
        for source, destination in zip(sources, destinations, strict=True):
            cache[destination] = cache[source]


def gather_kv(cache: Array, block_table: Sequence[int] | Array, length: int) -> Array:
    """The rows of positions 0..length-1 in order: (length, num_kv_heads, dim), a copy."""
    block_size = cache.shape[1]
    blocks = [int(block) for block in block_table[: ceil_div(length, block_size)]]
    if len(blocks) * block_size < length:
        raise Misuse("length", length, f"at most the {len(blocks) * block_size} positions of the table")
    if any(not 0 <= block < len(cache) for block in blocks):
        raise Misuse("block_table", blocks, f"blocks in 0..{len(cache) - 1}")
    return cache[blocks].reshape(-1, *cache.shape[2:])[:length].copy()


class ReferenceAttention:
    """The subject: everything is declared. `split_size` is not needed here, so no bit depends on it."""

    name = "reference (NumPy)"
    capabilities = AttentionCapabilities(
        dtypes=("float32", "float16", "bfloat16"), causal_prefill=True, non_causal=True, window=True, softcap=True,
        alibi=True, sinks=True, value_dim=True, returns_lse=True, writes=True, strided=True, padded=True,
        batch_invariant=True, split_invariant=True,
    )  # fmt: skip

    def rounding(self, problem: Problem) -> RoundingModel:
        """A block is a tile; a sink is one more step. NumPy's float32 exp is within 3 units in the last place."""
        block_size = problem.key_cache.shape[1]
        longest = int(np.max(problem.seq_lens, initial=0))
        return RoundingModel(tile=block_size, num_tiles=ceil_div(longest, block_size) + 1, u_exp=3 * 2.0**-23)

    def attend(self, problem: Problem) -> tuple[Array, Array]:
        """`paged_attention`, its output rounded to the dtype of the problem."""
        out, lse = paged_attention(
            problem.query, problem.key_cache, problem.value_cache,
            problem.block_tables, problem.seq_lens, problem.query_lens,
            scale=problem.scale, causal=problem.causal, window=problem.window, softcap=problem.softcap,
            alibi_slopes=problem.alibi_slopes, sinks=problem.sinks,
        )  # fmt: skip
        return round_to(out, problem.dtype), lse

    def write_kv(
        self, key: Array, value: Array, key_cache: Array, value_cache: Array, slot_mapping: Array, dtype: str
    ) -> None:
        """`write_kv`."""
        write_kv(key, value, key_cache, value_cache, slot_mapping, dtype)

    def copy_blocks(self, caches: Sequence[Array], pairs: Array, dtype: str) -> None:
        """`copy_blocks`; bytes are copied, so the dtype does not matter."""
        copy_blocks(caches, pairs)
