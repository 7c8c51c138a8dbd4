"""What a pool costs by itself: the time to make it, and the memory that it holds."""

import tracemalloc
from collections.abc import Callable

from pagedkv.optimized.manager import BlockManager

from tests.benchmarks.peer import vllm_manager as vllm
from tests.benchmarks.peer.curve import full_pool, texts_to_fill
from tests.benchmarks.peer.interface import BLOCK_SIZE
from tests.benchmarks.peer.timing import Row, elapsed, paired


def pools(num_blocks: int, rounds: int) -> list[Row]:
    """Rows for a pool of `num_blocks` blocks."""
    ours, other = paired(
        lambda: elapsed(lambda: BlockManager(num_blocks, BLOCK_SIZE)),
        lambda: elapsed(lambda: vllm.make_manager(num_blocks)),
        rounds,
    )
    made = Row(f"make a pool of {num_blocks:,} blocks", "ms", 1e3 * ours, 1e3 * other, "≥ 3 ×", other >= 3 * ours)
    return [made, memory(num_blocks, False, 64), memory(num_blocks, True), memory_full(num_blocks // 10)]


def memory(num_blocks: int, prefix_cache: bool, most: float | None = None) -> Row:
    """Bytes a block of an empty pool. `most`: how many ours should be at most."""
    ours = held_by(lambda: BlockManager(num_blocks, BLOCK_SIZE, prefix_cache=prefix_cache)) / num_blocks
    other = held_by(lambda: vllm.make_manager(num_blocks, prefix_cache)) / num_blocks
    what = f"memory of a block, prefix cache {'on' if prefix_cache else 'off'}"
    if most is None:
        return Row(what, "bytes", ours, other)
    return Row(what, "bytes", ours, other, f"≤ {most:g} bytes", ours <= most)


def memory_full(num_blocks: int) -> Row:
    """Bytes a block where every block is idle and indexed."""
    ours, other = held_by(lambda: full_pool(num_blocks)), held_by(lambda: vllm_full(num_blocks))
    return Row(f"memory of a block, all of {num_blocks:,} indexed", "bytes", ours / num_blocks, other / num_blocks)


def vllm_full(num_blocks: int) -> vllm.VllmManager:
    """What `full_pool` is for ours."""
    peer = vllm.VllmManager(num_blocks)
    for request, text in enumerate(texts_to_fill(num_blocks)):
        entry = peer.enter(peer.arrive(request, text.tolist()))
        assert entry is not None
        peer.leave([entry.handle])
    return peer


def held_by(make: Callable[[], object]) -> int:
    """Bytes allocated by Python and NumPy that are held as long as the result is."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = make()
        held = tracemalloc.get_traced_memory()[0] - before
        del kept
    finally:
        tracemalloc.stop()
    return held
