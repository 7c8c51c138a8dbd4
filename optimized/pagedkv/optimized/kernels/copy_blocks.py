"""Copying whole blocks between caches that lie alike: program (pair, cache, piece of the block).

All caches of a launch are reached through tables of addresses, so that one launch serves all layers. Bytes are copied
and not numbers, in words of up to 16 bytes: LANES of two bytes each. All strides are in words.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["pairs"])  # a slice of a plan begins anywhere; alignment gains nothing here
def copy_blocks_kernel(
    source_addresses,  # (num_caches,) int64: where block 0 of each source lies, a multiple of the word
    destination_addresses,  # (num_caches,) int64; the same as source_addresses to copy within each cache
    pairs,  # (num_pairs, 2) int32 or int64: source, destination; a source < 0 is skipped
    source_stride_block,
    source_stride_token,
    source_stride_head,
    destination_stride_block,
    destination_stride_token,
    destination_stride_head,
    BLOCK_SIZE: tl.constexpr,
    NUM_HEADS: tl.constexpr,
    WORDS: tl.constexpr,
    LANES: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Copy PIECE words of one block of one cache; a head of a token is WORDS words."""
    pair = tl.program_id(0).to(tl.int64)
    source = tl.load(pairs + 2 * pair).to(tl.int64)
    destination = tl.load(pairs + 2 * pair + 1).to(tl.int64)
    if source >= 0:
        cache = tl.program_id(1)
        origin = tl.load(source_addresses + cache).to(tl.pointer_type(tl.int16))
        target = tl.load(destination_addresses + cache).to(tl.pointer_type(tl.int16))
        origin, target = tl.multiple_of(origin, 2 * LANES), tl.multiple_of(target, 2 * LANES)

        at = tl.program_id(2).to(tl.int64) * PIECE + tl.arange(0, PIECE)[:, None]  # 64-bit, and so is what follows
        token = at // (NUM_HEADS * WORDS)
        head = (at // WORDS) % NUM_HEADS
        word = at % WORDS
        inside = token < BLOCK_SIZE
        lanes = tl.arange(0, LANES)[None, :]
        there = source * source_stride_block + token * source_stride_token + head * source_stride_head + word
        here = (
            destination * destination_stride_block
            + token * destination_stride_token
            + head * destination_stride_head
            + word
        )
        bits = tl.load(origin + there * LANES + lanes, mask=inside)
        tl.store(target + here * LANES + lanes, bits, mask=inside)
