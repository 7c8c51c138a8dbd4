"""`SwapSpace` on CPU tensors: blocks come back byte for byte wherever they lay and wherever they are put, and nothing
else moves. (Streams and pinned memory: tests/gpu.)"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pagedkv.optimized import BlockManager, SwapSpace
from pagedkv.optimized.attention import swapping
from pagedkv.spec import Misuse, Ok
from tests.optimized.gather_laws import laid_out, random_bits, same_bits

BLOCKS, SPACE = 7, 6


def caches(seed: int = 0) -> list[Tensor]:
    """Two layers of keys and values: other dims, dtypes, strides; random bits, NaN among them."""
    generator = torch.Generator().manual_seed(seed)
    kinds = [
        ((3, 2, 8), torch.float16, "plain"),
        ((3, 2, 5), torch.float16, "heads first"),
        ((3, 1, 3), torch.float32, "padded"),
        ((3, 2, 8), torch.bfloat16, "plain"),
    ]
    return [laid_out(random_bits((BLOCKS, *shape), dtype, generator), layout) for shape, dtype, layout in kinds]


def same(left: Sequence[Tensor], right: Sequence[Tensor], blocks: Sequence[int] = range(BLOCKS)) -> bool:
    return all(same_bits(a[list(blocks)], b[list(blocks)]) for a, b in zip(left, right, strict=True))


def spoil(tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        tensor.fill_(3)


@pytest.fixture(params=[1, 2, 10**6], autouse=True)
def _staging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks cross one, two or all at a time."""
    size = sum(-(-cache[0].numel() * cache.itemsize // 16) * 16 for cache in caches())
    monkeypatch.setattr(swapping, "STAGING_BYTES", size * request.param)


placements = st.tuples(st.permutations(range(BLOCKS)), st.permutations(range(SPACE)), st.permutations(range(BLOCKS)))


@given(placements, st.integers(0, SPACE))
def test_a_round_trip_is_exact_under_any_placement_and_touches_nothing_else(
    placement: tuple[list[int], list[int], list[int]], count: int
) -> None:
    origins, saved, targets = (blocks[:count] for blocks in placement)
    pools, before = caches(), caches()
    space = SwapSpace(pools, SPACE)
    space.swap_out(list(zip(origins, saved, strict=True)))
    assert same(pools, before)
    spoil(pools)
    space.swap_in(list(zip(saved, targets, strict=True)))
    for origin, target in zip(origins, targets, strict=True):
        assert same([pool[target : target + 1] for pool in pools], [old[origin : origin + 1] for old in before], [0])
    others = [block for block in range(BLOCKS) if block not in targets]
    assert all(bool((pool[others] == 3).all()) for pool in pools)


@given(placements)
def test_what_is_not_overwritten_stays_saved(placement: tuple[list[int], list[int], list[int]]) -> None:
    origins, saved, _ = placement
    pools, before = caches(), caches()
    space = SwapSpace(pools, SPACE)
    space.swap_out(list(zip(origins, saved, strict=False)))
    spoil(pools)
    space.swap_out([(0, saved[0]), (1, saved[1])])
    space.swap_in([(saved[i], origins[i]) for i in range(2, SPACE)])
    assert same(pools, before, origins[2:SPACE])
    assert all(bool((pool[origins[:2]] == 3).all()) for pool in pools)


def test_a_block_may_be_saved_twice_and_brought_back_twice() -> None:
    pools, before = caches(), caches()
    space = SwapSpace(pools, SPACE)
    space.swap_out([(4, 5), (4, 0)])
    spoil(pools)
    space.swap_in([(5, 1), (0, 2), (5, 6)])
    for block in (1, 2, 6):
        assert all(same_bits(pool[block], old[4]) for pool, old in zip(pools, before, strict=True))


def test_a_copy_and_its_way_back_can_be_begun_at_once() -> None:
    pools, before = caches(), caches()
    space = SwapSpace(pools, 2)
    space.swap_out([(0, 0), (1, 1)])
    assert space.swap_in([(0, 1), (1, 0)]).is_done()  # exchanged through the swap space
    assert same(pools, [old[[1, 0, *range(2, BLOCKS)]] for old in before])
    space.swap_out(np.array([[5, 0]], np.int32)).synchronize()
    space.swap_out(torch.tensor([[6, 1]])).wait()
    space.swap_in(((0, 6), (1, 5)))
    assert same(pools, [old[[1, 0, 2, 3, 4, 6, 5]] for old in before])


def test_blocks_that_are_saved_side_by_side_cross_together(monkeypatch: pytest.MonkeyPatch) -> None:
    crossed, runs = list[list[int]](), swapping.runs

    def seen(blocks: list[int]) -> Iterator[tuple[int, int, int]]:
        crossed.append(blocks)
        return runs(blocks)

    monkeypatch.setattr(swapping, "runs", seen)
    monkeypatch.setattr(swapping, "STAGING_BYTES", 10**6)
    space = SwapSpace(caches(), SPACE)
    space.swap_out([(6, 3), (0, 5), (1, 2), (4, 4)])
    space.swap_in([(4, 0), (2, 3), (5, 5), (3, 1)])
    assert crossed == [[2, 3, 4, 5]] * 2


BAD: list[tuple[str, Any, Any]] = [
    ("pairs", [(0, SPACE)], [(SPACE, 0)]),
    ("pairs", [(BLOCKS, 0)], [(0, BLOCKS)]),
    ("pairs", [(-1, 0)], [(-1, 0)]),
    ("pairs", [(0, -1)], [(0, -1)]),
    ("pairs", [(0, 0), (1, 2), (2, 2)], [(0, 0), (1, 2), (3, 2)]),
    *(("pairs", odd, odd) for odd in (3, [0, 1], [(0, 1, 2)], [(0, 1), (2,)], [(0.0, 1.0)], [(True, False)])),
    ("pairs", [(2**80, 0)], [(0, 2**80)]),
    ("pairs.device", torch.zeros(1, 2, device="meta"), torch.zeros(1, 2, device="meta")),
]


@pytest.mark.parametrize(("argument", "out", "back"), BAD)
def test_bad_pairs_change_nothing(argument: str, out: Any, back: Any) -> None:
    pools, before = caches(), caches()
    space = SwapSpace(pools, SPACE)
    space.swap_out([(i, i) for i in range(SPACE)])
    for swap, pairs in ((space.swap_out, out), (space.swap_in, back)):
        with pytest.raises(Misuse) as caught:
            swap(pairs)
        assert caught.value.argument == argument
    assert same(pools, before)
    spoil(pools)
    space.swap_in([(i, i) for i in range(SPACE)])
    assert same(pools, before, range(SPACE))


@pytest.mark.parametrize(
    ("argument", "arguments"),
    [
        ("num_blocks", (caches(), -1)), ("num_blocks", (caches(), 2.0)), ("caches", ([], 1)),
        ("caches", (caches()[0], 1)), ("caches[1].shape", ([caches()[0], caches()[1][:2]], 1)),
    ],
)  # fmt: skip
def test_a_space_that_cannot_be_made_is_misuse(argument: str, arguments: tuple[Any, Any]) -> None:
    with pytest.raises(Misuse) as caught:
        SwapSpace(*arguments)
    assert caught.value.argument == argument


def test_an_empty_space_holds_nothing() -> None:
    space = SwapSpace(caches(), 0)
    assert space.memory_bytes == 0
    space.swap_out([])
    with pytest.raises(Misuse):
        space.swap_out([(0, 0)])


def test_what_the_manager_preempts_comes_back() -> None:
    manager = BlockManager(BLOCKS, 3, swap_blocks=SPACE)
    pools = caches()
    space = SwapSpace(pools, SPACE)
    assert isinstance(manager.admit("a", list(range(8))), Ok)
    manager.commit("a", 8)
    preempted = manager.preempt("a", "swap")
    assert isinstance(preempted, Ok)
    before = [[pool[block].clone() for block, _ in preempted.swapped] for pool in pools]
    space.swap_out(preempted.swapped)
    assert isinstance(manager.admit("b", list(range(100, 105))), Ok)  # in blocks that were "a"'s
    spoil(pools)
    resumed = manager.resume("a")
    assert isinstance(resumed, Ok)
    space.swap_in(resumed.swapped)
    assert [saved for saved, _ in resumed.swapped] == [saved for _, saved in preempted.swapped]
    assert [block for _, block in resumed.swapped] != [block for block, _ in preempted.swapped]
    for pool, old in zip(pools, before, strict=True):
        assert all(same_bits(pool[block], bits) for (_, block), bits in zip(resumed.swapped, old, strict=True))


def test_a_round_trip_through_the_kernels_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton exists for Linux only")
    from pagedkv.optimized.attention.triton_backend import TritonBackend  # noqa: PLC0415  # imports Triton

    monkeypatch.setattr(TritonBackend, "launch", lambda self, launch: launch.interpret())
    monkeypatch.setattr(swapping, "backend_for", lambda device, name: TritonBackend())
    pools, before = caches(), caches()
    space = SwapSpace(pools, SPACE)
    space.swap_out([(1, 5), (6, 0), (3, 1)])
    assert same(pools, before)
    spoil(pools)
    space.swap_in([(5, 0), (0, 3), (1, 1)])
    assert same([pool[[0, 3, 1]] for pool in pools], [old[[1, 6, 3]] for old in before], range(3))
    assert all(bool((pool[[2, 4, 5, 6]] == 3).all()) for pool in pools)
