"""Chapter 24. Worked example: paging never changes the result of attention.

Blocks of four tokens, one scalar head, every key 0, the query 1, and the values 1, 2, 3, …: all logits are 0, so all
weights are equal and the output is the mean of the values, whatever the order. Small enough to check by hand, and it
shows the three things that paging is about: position 5 needs a second block, the second block is mostly empty, and
where the two blocks lie is no matter.
"""

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from pagedkv.spec.arrays import Array, slots, write
from pagedkv.spec.attention import paged_attention
from pagedkv.spec.attention_subject import Problem
from pagedkv.spec.words import Block, ceil_div

BLOCK_SIZE = 4
NUM_BLOCKS = 6


def placed(table: Sequence[Block], length: int) -> tuple[Array, Array]:
    """The pools of keys 0 and values 1, 2, 3, … of one request under a block table; NaN where nothing was written."""
    empty = np.full((NUM_BLOCKS, BLOCK_SIZE, 1, 1), np.nan, dtype=np.float32)
    values = np.arange(1, length + 1, dtype=np.float32).reshape(length, 1, 1)
    return write(empty, empty, np.zeros_like(values), values, slots(table, range(length), BLOCK_SIZE))


def output(table: Sequence[Block], length: int = 5) -> float:
    """What the last position of the request reads through its block table."""
    key_cache, value_cache = placed(table, length)
    out, _ = paged_attention(
        Problem(
            query=np.ones((1, 1, 1), dtype=np.float32),
            key_cache=key_cache,
            value_cache=value_cache,
            block_tables=np.array([table], dtype=np.int32),
            seq_lens=np.array([length], dtype=np.int32),
            query_lens=np.array([1], dtype=np.int32),
            scale=1.0,
        )
    )
    return float(out[0, 0, 0])


def every_placement(length: int = 5) -> set[float]:
    """The outputs under all ways to place the request's blocks in the pool."""
    return {output(table, length) for table in permutations(range(NUM_BLOCKS), ceil_div(length, BLOCK_SIZE))}


def demonstration() -> None:
    """Five tokens, logical blocks 0 and 1 at physical blocks 4 and 1.

    Four tokens fill one block; the fifth needs a second one. Then there are 8 slots, of which 3 are empty:

    >>> ceil_div(4, BLOCK_SIZE), ceil_div(5, BLOCK_SIZE)
    (1, 2)
    >>> num_slots = ceil_div(5, BLOCK_SIZE) * BLOCK_SIZE
    >>> num_slots, num_slots - 5
    (8, 3)
    >>> slots([4, 1], range(5), BLOCK_SIZE).tolist()
    [16, 17, 18, 19, 4]

    The pool of values, block by block, with nan where nothing was written:

    >>> placed([4, 1], 5)[1][[4, 1], :, 0, 0].tolist()
    [[1.0, 2.0, 3.0, 4.0], [5.0, nan, nan, nan]]

    The output is the mean of 1, 2, 3, 4, 5, and it is so under each of the 30 placements, bit for bit:

    >>> output([4, 1])
    3.0
    >>> len(list(permutations(range(NUM_BLOCKS), 2))), every_placement()
    (30, {3.0})
    """
