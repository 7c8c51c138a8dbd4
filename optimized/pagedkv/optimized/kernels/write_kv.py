"""Writing the keys and values of new tokens to their slots: program (token, piece of its heads).

A slot < 0 is skipped, so that a step can be padded to a fixed shape. The value is rounded to the cache's format, to
nearest, ties to even.
"""

import triton
import triton.language as tl


@triton.jit
def write_kv_kernel(
    key,  # (num_tokens, num_kv_heads, HEAD_DIM)
    value,  # (num_tokens, num_kv_heads, VALUE_DIM)
    key_cache,  # (num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM)
    value_cache,  # (num_blocks, BLOCK_SIZE, num_kv_heads, VALUE_DIM)
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
    HEAD_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Write one piece of the heads of one token, keys and values."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token)
    if slot >= 0:
        block = slot // BLOCK_SIZE
        offset = slot % BLOCK_SIZE
        at = tl.program_id(1).to(tl.int64) * PIECE + tl.arange(0, PIECE)  # 64-bit, and so are heads below

        head = at // HEAD_DIM
        dim = at % HEAD_DIM
        inside = head < num_kv_heads
        row = tl.load(key + token * key_stride_token + head * key_stride_head + dim, mask=inside)
        target = block * key_cache_stride_block + offset * key_cache_stride_token + head * key_cache_stride_head + dim
        tl.store(key_cache + target, row.to(key_cache.dtype.element_ty), mask=inside)

        head = at // VALUE_DIM
        dim = at % VALUE_DIM
        inside = head < num_kv_heads
        row = tl.load(value + token * value_stride_token + head * value_stride_head + dim, mask=inside)
        target = (
            block * value_cache_stride_block + offset * value_cache_stride_token + head * value_cache_stride_head + dim
        )
        tl.store(value_cache + target, row.to(value_cache.dtype.element_ty), mask=inside)
