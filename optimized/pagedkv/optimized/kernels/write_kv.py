"""Writing the keys and values of new tokens to their slots: program (token, piece of its heads).

A slot < 0 is skipped, so that a step can be padded to a fixed shape. The value is rounded to the cache's format, to
nearest, ties to even. Elements are moved in words of LANES, 16 bytes of the cache where its layout allows it; all
strides are in words, so that the compiler sees what divides an address.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["slot_mapping"])  # a slice of a plan begins anywhere; alignment gains nothing here
def write_kv_kernel(
    key,  # (num_tokens, num_kv_heads, KEY_WORDS * LANES)
    value,  # (num_tokens, num_kv_heads, VALUE_WORDS * LANES)
    key_cache,  # (num_blocks, BLOCK_SIZE, num_kv_heads, KEY_WORDS * LANES)
    value_cache,  # (num_blocks, BLOCK_SIZE, num_kv_heads, VALUE_WORDS * LANES)
    slot_mapping,  # (num_tokens,) int64
    num_kv_heads,
    key_stride_token,
    key_stride_head,
    value_stride_token,
    value_stride_head,
    key_cache_stride_block,
    key_cache_stride_token,
    key_cache_stride_head,
    value_cache_stride_block,
    value_cache_stride_token,
    value_cache_stride_head,
    BLOCK_SIZE: tl.constexpr,
    KEY_WORDS: tl.constexpr,
    VALUE_WORDS: tl.constexpr,
    LANES: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Write PIECE words of the heads of one token, keys and values."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token)
    if slot >= 0:
        block = slot // BLOCK_SIZE
        offset = slot % BLOCK_SIZE
        at = tl.program_id(1).to(tl.int64) * PIECE + tl.arange(0, PIECE)[:, None]  # 64-bit, and so are heads below
        lanes = tl.arange(0, LANES)[None, :]

        key_head, key_word = at // KEY_WORDS, at % KEY_WORDS
        value_head, value_word = at // VALUE_WORDS, at % VALUE_WORDS
        is_key, is_value = key_head < num_kv_heads, value_head < num_kv_heads
        key_from = token * key_stride_token + key_head * key_stride_head + key_word
        value_from = token * value_stride_token + value_head * value_stride_head + value_word
        key_row = tl.load(key + key_from * LANES + lanes, mask=is_key)
        value_row = tl.load(value + value_from * LANES + lanes, mask=is_value)  # both on their way before a store

        key_to = block * key_cache_stride_block + offset * key_cache_stride_token + key_head * key_cache_stride_head
        value_to = (
            block * value_cache_stride_block + offset * value_cache_stride_token + value_head * value_cache_stride_head
        )
        key_row, value_row = key_row.to(key_cache.dtype.element_ty), value_row.to(value_cache.dtype.element_ty)
        tl.store(key_cache + (key_to + key_word) * LANES + lanes, key_row, mask=is_key)
        tl.store(value_cache + (value_to + value_word) * LANES + lanes, value_row, mask=is_value)
