"""Copying whole blocks within a cache: program (pair, piece of the block).

Destinations are disjoint from sources and from each other, so all copies happen as if at once.
"""

import triton
import triton.language as tl


@triton.jit
def copy_blocks_kernel(
    cache,  # (num_blocks, BLOCK_SIZE, NUM_HEADS, DIM)
    pairs,  # (num_pairs, 2) int64: source, destination; a source < 0 is skipped
    stride_block,
    stride_token,
    stride_head,
    BLOCK_SIZE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Copy one piece of one block."""
    pair = tl.program_id(0).to(tl.int64)
    source = tl.load(pairs + 2 * pair)
    destination = tl.load(pairs + 2 * pair + 1)
    if source >= 0:
        at = tl.program_id(1).to(tl.int64) * PIECE + tl.arange(0, PIECE)  # 64-bit, and so are token and head below
        token = at // (NUM_HEADS * DIM)
        head = (at // DIM) % NUM_HEADS
        inside = token < BLOCK_SIZE
        place = token * stride_token + head * stride_head + at % DIM
        element = tl.load(cache + source * stride_block + place, mask=inside)
        tl.store(cache + destination * stride_block + place, element, mask=inside)
