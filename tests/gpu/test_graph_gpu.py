"""A step captured once is replayed with other lengths, tables, slots and queries, and gives the bits of a plain call.

On the CPU nothing is captured; what is left of the law there is that padding changes no bit.
"""

from collections.abc import Callable

import pytest
import torch

from tests.gpu.site import Site, same_bits
from tests.gpu.step import Buffers, buffers

DECODES = [[1, 17, 600], [2100, 33], [16], [513, 512, 511, 1], [4000, 1, 1, 1]]
MIXES = [
    ([600, 17, 33], [1, 17, 8]), ([2100], [300]), ([40, 40, 700, 9], [40, 1, 20, 9]), ([1, 1], [1, 1]),
    ([513, 300], [9, 1]),
]  # fmt: skip


def captured_call(call: Callable[[], object], site: Site) -> Callable[[], object]:
    """What makes the call again: a replay, or on the CPU the call. It has run before, so that all is compiled."""
    call()
    if site.name == "cpu":
        return call
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def agree(static: Buffers, replay: Callable[[], object], fresh: Buffers) -> None:
    """Replay on padded buffers, and run on buffers that just fit: outputs and caches, bit for bit."""
    static.load(fresh)
    static.out.fill_(float("nan"))
    replay()
    fresh.run()
    rows = len(fresh.query)
    for name in ("out", "lse", "merged"):
        assert same_bits(getattr(static, name)[:rows], getattr(fresh, name)), name
    assert torch.isfinite(fresh.out).all()
    assert not static.out[rows:].any()
    assert same_bits(static.k_cache, fresh.k_cache)
    assert same_bits(static.v_cache, fresh.v_cache)


def test_decode_is_replayed_with_other_requests(site: Site) -> None:
    blocks = 300
    static = buffers(site, [64] * 6, None, blocks, seed=0, width=256)
    replay = captured_call(static.run, site)
    for seed, lengths in enumerate(DECODES):
        agree(static, replay, buffers(site, lengths, None, blocks, seed=1 + seed))


def test_a_mixed_step_is_replayed_with_other_requests(site: Site) -> None:
    blocks = 300
    static = buffers(site, [100] * 5, [64] * 5, blocks, seed=0, width=256)
    replay = captured_call(static.run, site)
    for seed, (lengths, rows) in enumerate(MIXES):
        agree(static, replay, buffers(site, lengths, rows, blocks, seed=1 + seed))


@pytest.mark.parametrize("rows", [None, [1, 40, 3]])
def test_replays_of_one_step_are_alike(site: Site, rows: list[int] | None) -> None:
    """Fifty times, without anything in between."""
    step = buffers(site, [700, 90, 3], rows, 80, seed=7)
    replay = captured_call(step.run, site)
    replay()
    first = step.out.clone(), step.lse.clone()
    for _ in range(site.count(50)):
        step.out.fill_(float("nan"))
        replay()
        assert same_bits(step.out, first[0])
        assert same_bits(step.lse, first[1])
