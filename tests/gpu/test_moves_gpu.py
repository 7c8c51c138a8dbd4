"""Moving KV on a device: the bits are those of the CPU backend, a captured copy is replayed with other pairs, and
swapping keeps its order beside a busy stream."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pagedkv.optimized import BlockCopier, SwapSpace, copy_blocks, gather_kv, paged_attention, write_kv
from pagedkv.optimized.attention import debug, swapping
from pagedkv.spec import Misuse
from tests.gpu.site import Site, same_bits
from tests.gpu.test_graph_gpu import captured_call
from tests.optimized.gather_laws import laid_out, random_bits

LAYOUTS = ("plain", "heads first", "padded")
SHAPES = ((16, 8, 128, 128), (1, 1, 64, 64), (3, 5, 80, 112), (256, 2, 192, 128), (7, 3, 33, 5))
"""block size, heads, dims of keys and values."""


def pools(site: Site, dims: tuple[int, ...], size: int, heads: int, dtype: torch.dtype, layout: str) -> list[Tensor]:
    """Caches of random bits on the CPU, a cache for each dim."""
    generator = torch.Generator().manual_seed(size)
    blocks = 8 + site.count(512 // size)
    return [laid_out(random_bits((blocks, size, heads, dim), dtype, generator), layout) for dim in dims]


def there(site: Site, tensors: list[Tensor]) -> list[Tensor]:
    """The same on the device, with the same strides."""
    return [
        torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=site.device).copy_(t.to(site.device))
        for t in tensors
    ]


def alike(site: Site, device: list[Tensor], host: list[Tensor]) -> bool:
    return all(same_bits(a.cpu(), b) for a, b in zip(device, host, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_moves_are_those_of_the_cpu_backend(site: Site, shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    size, heads, *dims = shape
    for layout in LAYOUTS:
        host = pools(site, (dims[0], dims[1]), size, heads, dtype, layout)
        device, slots = there(site, host), len(host[0]) * size
        mapping = torch.randperm(slots)[: slots // 2]
        mapping[::5] = -1 - mapping[::5]
        for source in (torch.float32, dtype):
            rows = [torch.randn(len(mapping), heads, dim).to(source) for dim in dims]
            write_kv(rows[0], rows[1], host[0], host[1], mapping)
            on_device = [row.to(site.device) for row in rows]
            write_kv(on_device[0], on_device[1], device[0], device[1], mapping.to(site.device))
            assert alike(site, device, host)
        pairs = torch.randperm(len(host[0]))[: len(host[0]) // 2 * 2].view(-1, 2).int()
        pairs[1, 0] = -1
        copy_blocks(host, pairs)
        copy_blocks(device, pairs.to(site.device))
        assert alike(site, device, host)
        tables = torch.randint(len(host[0]), (5, 6), dtype=torch.int32)
        counts = torch.tensor([0, 6 * size, 0, 1, 2 * size, 5], dtype=torch.int32).clamp(max=6 * size)
        ends, starts = counts.cumsum(0).int(), torch.tensor([0, 10**9, 3, 4 * size, 0], dtype=torch.int32)
        starts[2], starts[4] = min(3, 6 * size - 1), 0
        arguments = [tables, ends, starts]
        total = int(ends[-1]) + 70
        for cache, other in zip(host, device, strict=True):
            wanted = gather_kv(cache, arguments[0], arguments[1], starts=arguments[2], total=total)
            given = [argument.to(site.device) for argument in arguments]
            assert same_bits(gather_kv(other, given[0], given[1], starts=given[2], total=total).cpu(), wanted)


def test_a_captured_copy_is_replayed_with_other_pairs(site: Site) -> None:
    host = pools(site, (64, 64, 64, 128), 16, 2, torch.bfloat16, "plain")
    device = there(site, host)
    copier = BlockCopier(device)
    static = torch.full((6, 2), -1, dtype=torch.int32, device=site.device)
    replay = captured_call(lambda: copier(static), site)
    for pairs in ([[0, 1], [2, 3]], [[1, 0]], [], [[4, 0], [4, 1], [5, 2], [6, 3], [7, 8]]):
        padded = torch.tensor([*pairs, *[[-1, 0]] * (6 - len(pairs))], dtype=torch.int32)
        static.copy_(padded)
        replay()
        copy_blocks(host, padded)
        assert alike(site, device, host)


def test_a_first_copy_under_capture_is_misuse(site: Site) -> None:
    if site.name == "cpu":
        pytest.skip("nothing is captured on the CPU")
    caches = [torch.zeros(4, 2, 1, 8, device=site.device)]
    pairs = torch.zeros(1, 2, dtype=torch.int32, device=site.device)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        pairs.add_(0)  # torch warns of an empty graph
        with pytest.raises(Misuse, match="BlockCopier"):
            copy_blocks(caches, pairs)


def keep_busy(site: Site) -> None:
    """Give the current stream some tens of milliseconds of work."""
    if site.name == "cuda":
        torch.cuda._sleep(50_000_000)  # type: ignore[no-untyped-call]  # of torch's own tests; in cycles


@pytest.mark.parametrize("blocks_at_a_time", [1, 3, 10**6])
def test_a_swap_keeps_its_order_beside_a_busy_stream(
    site: Site, blocks_at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = pools(site, (64, 64, 128, 33), 16, 2, torch.float16, "plain")
    bytes_a_block = sum(-(-cache[0].numel() * cache.itemsize // 16) * 16 for cache in host)
    monkeypatch.setattr(swapping, "STAGING_BYTES", bytes_a_block * blocks_at_a_time)
    device = there(site, [torch.zeros_like(cache) for cache in host])
    fresh, space = there(site, host), SwapSpace(device, 7)
    keep_busy(site)
    for cache, content in zip(device, fresh, strict=True):
        cache.copy_(content)  # the last thing before the transfer, on a stream that is still busy
    saved = [(0, 6), (3, 1), (4, 2), (5, 0), (6, 4)]
    out = space.swap_out(saved)
    out.wait()
    for cache in device:
        cache.fill_(3)  # the first thing after it
    keep_busy(site)
    space.swap_in([(slot, block + 1) for block, slot in saved]).wait()
    for cache, wanted in zip(device, host, strict=True):
        for block in range(8):
            moved = block - 1 in dict(saved)
            assert same_bits(cache[block].cpu(), wanted[block - 1] if moved else torch.full_like(wanted[0], 3))
    assert out.is_done()


def test_swap_space_is_pinned_and_the_host_can_wait(site: Site) -> None:
    device = there(site, pools(site, (64,), 16, 2, torch.float16, "plain"))
    space = SwapSpace(device, 4)
    assert space._host.is_pinned() == (site.name == "cuda")
    keep_busy(site)
    transfer = space.swap_out([(0, 0), (1, 1), (2, 2), (3, 3)])
    transfer.synchronize()
    assert transfer.is_done()
    assert same_bits(space._host.view(torch.float16).view(4, *device[0].shape[1:]), device[0][:4].cpu())


def test_memory_freed_during_a_transfer_is_not_given_away_before_its_end(site: Site) -> None:
    content = pools(site, (128,) * 4, 16, 8, torch.float16, "plain")
    device = there(site, content)
    space = SwapSpace(device, 8)
    if space.stream is not None:
        with torch.cuda.stream(space.stream):
            keep_busy(site)  # so that the transfer begins late
    space.swap_out([(block, block) for block in range(8)])
    host, shapes = space._host, [cache.shape for cache in device]
    del device, space
    spoilers = [torch.full(shape, 3, dtype=torch.float16, device=site.device) for shape in shapes]
    if site.name == "cuda":
        torch.cuda.synchronize()
    assert all(bool((spoiler == 3).all()) for spoiler in spoilers)
    offset = 0
    for cache in content:
        size = cache[0].numel() * cache.itemsize
        part = host[:, offset : offset + size].contiguous().view(torch.float16)
        assert same_bits(part, cache[:8].reshape(8, -1))
        offset += -(-size // 16) * 16


WRONG: dict[str, Callable[[Site, Tensor], object]] = {
    "slot_mapping": lambda site, c: write_kv(c[:2, 0], c[:2, 0], c, c.clone(), integers(site, [1, 1]).long()),
    "pairs": lambda site, c: copy_blocks([c, c.clone()], integers(site, [[0, 1], [1, 2]])),
    "block_tables": lambda site, c: gather_kv(c, integers(site, [[0, 99]]), integers(site, [0, 3]), total=3),
    "cu_seqlens": lambda site, c: gather_kv(c, integers(site, [[0, 1]]), integers(site, [0, 4]), total=3),
    "seq_lens": lambda site, c: paged_attention(c[0, :1], c, c, integers(site, [[0, 1]]), integers(site, [5])),
}


def integers(site: Site, values: list[int] | list[list[int]]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=site.device)


@pytest.mark.parametrize("argument", WRONG)
def test_debug_mode_finds_bad_values_on_the_device(site: Site, argument: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debug, "DEBUG", True)
    cache = torch.ones(4, 2, 1, 16, device=site.device)
    with pytest.raises(Misuse) as caught:
        WRONG[argument](site, cache)
    assert caught.value.argument == argument
    assert bool((cache == 1).all())
