"""The kernels that write and copy KV: they, and the loops of the CPU, move what torch moves, bit for bit, in words as
wide as the layout allows, in one launch, and no program touches what another one writes."""

import re
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from pagedkv.optimized import BlockCopier, copy_blocks
from pagedkv.optimized.attention.move_launches import (
    address_table, copy_groups, copy_launch, gather_launch, write_launch,
)  # fmt: skip
from pagedkv.optimized.attention.torch_backend import TorchBackend
from pagedkv.optimized.audit.aot import audit_launch, compiled_kernel
from pagedkv.optimized.audit.interpret import OutOfBounds, ordered, recording, shuffled
from pagedkv.optimized.audit.targets import TARGETS
from pagedkv.optimized.cpu.backend import CpuBackend
from pagedkv.optimized.kernels.copy_blocks import copy_blocks_kernel
from pagedkv.optimized.kernels.gather import gather_kernel
from pagedkv.optimized.kernels.write_kv import write_kv_kernel
from pagedkv.optimized.launch import Launch
from pagedkv.spec import Misuse
from tests.conformance.move_kernel_mutants import NARROW_MUTANTS
from tests.conformance.mutants.attention import small_launch
from tests.conformance.mutants.mutation import Mutant
from tests.optimized.gather_laws import laid_out, random_bits, same_bits

SIZES = (1, 3, 16, 7, 256)
DIMS = ((80, 80), (96, 64), (112, 128), (24, 24), (5, 7), (1, 1))
"""Of keys and of values."""
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LAYOUTS = ("plain", "heads first", "padded")


def pools(dims: Sequence[int], size: int, heads: int, dtype: torch.dtype, layout: str, blocks: int = 4) -> list[Tensor]:
    """A cache of random bits for each dim."""
    generator = torch.Generator().manual_seed(size)
    return [laid_out(random_bits((blocks, size, heads, dim), dtype, generator), layout) for dim in dims]


def copies(sources: Sequence[Tensor], destinations: Sequence[Tensor], pairs: Tensor) -> list[Launch]:
    return [copy_launch(group, pairs) for group in copy_groups(sources, destinations)]


def twins(tensors: Sequence[Tensor], layout: str) -> list[Tensor]:
    return [laid_out(tensor.clone(), layout) for tensor in tensors]


CASES = [
    (size, dims, dtype, layout)
    for i, size in enumerate(SIZES)
    for j, dims in enumerate(DIMS)
    for dtype, layout in ((DTYPES[(i + j) % 3], LAYOUTS[j % 3]), (DTYPES[(i + j + 1) % 3], LAYOUTS[(j + i + 1) % 3]))
]
"""Each size with each dims, in two dtypes and two layouts of the three."""


@pytest.mark.parametrize(("size", "dims", "dtype", "layout"), CASES)
def test_writes_and_copies_are_those_of_the_torch_backend(
    size: int, dims: tuple[int, int], dtype: torch.dtype, layout: str
) -> None:
    caches = pools(dims, size, 3, dtype, layout)
    expected = twins(caches, layout)
    slots = torch.tensor([size * 4 - 1, -1, 0, -(2**40), size * 2])
    compiled, loops = twins(caches, layout), CpuBackend()
    for source in (torch.float32, dtype):
        rows = [torch.randn(5, 3, dim).to(source) for dim in dims]
        TorchBackend().write_kv((rows[0], rows[1]), (expected[0], expected[1]), slots)
        loops.write_kv((rows[0], rows[1]), (compiled[0], compiled[1]), slots)
        write_launch((rows[0], rows[1]), (caches[0], caches[1]), slots).interpret()
        assert all(same_bits(a, b) for moved in (caches, compiled) for a, b in zip(moved, expected, strict=True))
    pairs = torch.tensor([[3, 0], [-1, 99], [3, 1]], dtype=torch.int32)
    TorchBackend().copier(expected, expected)(pairs)
    loops.copier(compiled, compiled)(pairs)
    for launch in copies(caches, caches, pairs):
        launch.interpret()
    assert all(same_bits(a, b) for moved in (caches, compiled) for a, b in zip(moved, expected, strict=True))


def test_what_lies_between_the_elements_of_a_cache_stays() -> None:
    caches = pools((8, 8), 4, 3, torch.float16, "padded")
    rows = torch.randn(2, 3, 8)
    write_launch((rows, rows), (caches[0], caches[1]), torch.tensor([2, 9])).interpret()
    for launch in copies(caches, caches, torch.tensor([[0, 1]])):
        launch.interpret()
    for cache in caches:
        between = cache.as_strided((*cache.shape[:3], 3), cache.stride(), cache.storage_offset() + 8)
        assert bool((between == 7).all())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_are_copied_between_caches_of_other_strides(layout: str) -> None:
    sources = pools((16, 24), 4, 3, torch.float16, "plain")
    destinations = pools((16, 24), 4, 3, torch.float16, layout, blocks=6)
    expected = twins(destinations, layout)
    pairs = torch.tensor([[3, 5], [0, 0], [1, 2]])
    compiled = twins(destinations, layout)
    TorchBackend().copier(sources, expected)(pairs)
    CpuBackend().copier(sources, compiled)(pairs)
    for launch in copies(sources, destinations, pairs):
        launch.interpret()
    assert all(same_bits(a, b) for moved in (destinations, compiled) for a, b in zip(moved, expected, strict=True))


def test_the_order_of_programs_changes_no_bit_and_none_touches_what_another_one_writes() -> None:
    slots, pairs = torch.tensor([3, 0, -1, 11, 6]), torch.tensor([[0, 3], [0, 2], [-1, -1]])
    rows = torch.randn(5, 9, 520, generator=torch.Generator().manual_seed(2))
    results = []
    for seed in range(4):
        caches = pools((520, 520), 4, 9, torch.float16, "plain")
        launches = [write_launch((rows, rows), (caches[0], caches[1]), slots), *copies(caches, caches, pairs)]
        with ordered(shuffled(seed)), recording() as log:
            for launch in launches:
                launch.interpret()
        assert all(len(launch.programs) > len(slots) for launch in log.launches)  # several pieces each
        assert log.conflicts() == []
        results.append(torch.cat(caches))
    assert all(same_bits(result, results[0]) for result in results)


def test_caches_that_lie_alike_share_a_launch() -> None:
    layers = [pools((16, 16), 4, 2, torch.float16, "plain") for _ in range(3)]
    caches = [cache for layer in layers for cache in layer]
    assert [launch.grid for launch in copies(caches, caches, torch.zeros(5, 2, dtype=torch.int32))] == [(5, 6, 1)]
    other = pools((16, 24), 4, 2, torch.bfloat16, "plain")  # keys like those above: bytes have no dtype
    assert [group.shape for group in copy_groups([*caches, *other], [*caches, *other])] == [(4, 2, 2), (4, 2, 3)]


def test_the_table_of_addresses_is_made_once() -> None:
    caches = pools((16, 16), 4, 2, torch.float16, "plain")
    first, second = copy_groups(caches, caches)[0], copy_groups(list(caches), list(caches))[0]
    assert first.source_addresses is first.destination_addresses is second.source_addresses
    assert first.source_addresses.tolist() == [cache.data_ptr() for cache in caches]


def test_a_first_copy_under_capture_names_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(Misuse, match="BlockCopier"):
        address_table((1, 2, 3), torch.device("cuda"))


def test_an_address_that_was_not_announced_is_out_of_bounds() -> None:
    caches = pools((16,), 4, 2, torch.float16, "plain")
    group = copy_groups(caches, caches)[0]
    with pytest.raises(OutOfBounds):
        copy_launch(group._replace(reached=()), torch.tensor([[0, 1]])).interpret()


def test_a_copier_does_what_copy_blocks_does() -> None:
    caches = pools((16, 24), 4, 3, torch.float16, "plain")
    others = twins(caches, "plain")
    copier = BlockCopier(caches)
    for pairs in (torch.tensor([[0, 1], [2, 3]]), torch.zeros(0, 2, dtype=torch.int32), torch.tensor([[1, 0]])):
        copier(pairs)
        copy_blocks(others, pairs)
        assert all(same_bits(a, b) for a, b in zip(caches, others, strict=True))
    BlockCopier([])(torch.tensor([[0, 1]]))  # nothing to copy in


@pytest.mark.parametrize("lanes", [2, 1, 0.5])
def test_a_layout_that_tears_words_apart_gets_narrower_ones(lanes: float) -> None:
    width = int(8 * lanes)  # 16, 8 and 4 bytes in half precision
    cache = torch.zeros(4, 2, 2, width, dtype=torch.float16)
    rows, slots = torch.zeros(1, 2, width, dtype=torch.float16), torch.zeros(1, dtype=torch.int64)
    launches = [
        write_launch((rows, rows), (cache, cache), slots),
        copies([cache], [cache], torch.zeros(1, 2, dtype=torch.int64))[0],
        gather_launch(cache, slots[:, None].int(), torch.zeros(2, dtype=torch.int32), None, rows),
    ]
    assert {launch.kwargs["LANES"] for launch in launches} == {min(8, width)}
    odd = torch.zeros(1 + cache.numel(), dtype=torch.float16)[1:].view_as(cache)  # two bytes past a word
    assert copy_groups([odd], [cache])[0].lanes == 1


@pytest.mark.parametrize("odd", [0, 1])
def test_a_dim_that_is_no_whole_word_in_rows_that_are(odd: int) -> None:
    """Of keys or of values: 13 of 16 elements."""
    layouts = ["padded" if i == odd else "plain" for i in range(2)]
    caches = [pools((13 if i == odd else 16,), 4, 3, torch.float16, layouts[i])[0] for i in range(2)]
    expected = [laid_out(cache.clone(), layout) for cache, layout in zip(caches, layouts, strict=True)]
    wide, slots, pairs = torch.randn(2, 3, 16).half(), torch.tensor([7, 2]), torch.tensor([[1, 3]])
    rows = wide[..., : caches[0].shape[3]], wide[..., : caches[1].shape[3]]
    TorchBackend().write_kv(rows, (expected[0], expected[1]), slots)
    write_launch(rows, (caches[0], caches[1]), slots).interpret()
    TorchBackend().copier(expected, expected)(pairs)
    for launch in copies(caches, caches, pairs):
        launch.interpret()
    assert all(same_bits(a, b) for a, b in zip(caches, expected, strict=True))
    tables, ends = torch.tensor([[3, 1]], dtype=torch.int32), torch.tensor([0, 8], dtype=torch.int32)
    for cache in caches:
        for width in (16, 19):  # of the rows of the output
            out = torch.zeros(8, 3, width, dtype=torch.float16)[..., : cache.shape[3]]
            gather_launch(cache, tables, ends, None, out).interpret()
            assert same_bits(out, cache[[3, 1]].flatten(0, 1))


def test_the_stride_of_a_dimension_without_a_second_element_narrows_nothing() -> None:
    cache = torch.zeros(64).half().as_strided((4, 2, 1, 8), (16, 8, 3, 1))
    rows = torch.zeros(16).half().as_strided((2, 1, 8), (8, 5, 1))
    assert {MOVES[name](cache, rows).kwargs["LANES"] for name in ("copy", "gather")} == {8}


MOVES = {
    "write": lambda cache, rows: write_launch((rows, rows), (cache, cache), torch.zeros(3, dtype=torch.int64)),
    "write, rounded": lambda cache, rows: write_launch(
        (rows.float(), rows.float()), (cache, cache), torch.zeros(3, dtype=torch.int64)
    ),
    "copy": lambda cache, rows: copies([cache], [cache], torch.zeros(3, 2, dtype=torch.int32))[0],
    "gather": lambda cache, rows: gather_launch(
        cache, torch.zeros(2, 9, dtype=torch.int32), torch.zeros(3, dtype=torch.int32), None, rows
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MOVES)
def test_all_accesses_are_16_bytes_wide_and_nothing_spills(name: str, target: str) -> None:
    for size, heads, dim in ((16, 8, 128), (3, 1, 80)):
        cache, rows = (torch.zeros(3, *shape, heads, dim, dtype=torch.bfloat16) for shape in ((size,), ()))
        launch = MOVES[name](cache, rows)
        assert audit_launch(launch, target).problems() == []
        assert widths(launch, target) == {("load", 16), ("store", 16)}


@pytest.mark.parametrize("mutant", NARROW_MUTANTS, ids=lambda mutant: mutant.name)
def test_an_offset_of_32_bits_is_seen(mutant: Mutant) -> None:
    assert "32 bits" in "; ".join(audit_launch(small_launch(mutant), "sm_90").problems())


def widths(launch: Launch, target: str) -> set[tuple[str, int]]:
    """(load or store, bytes) of what moves KV: all vectors; a scalar is a slot, a table entry, an address."""
    asm = compiled_kernel(launch, target).asm
    if "ptx" in asm:
        found = re.findall(r"\b(ld|st)\.global(?:\.\w+)*\.v(\d)\.b(\d+)", asm["ptx"])
        stores = re.findall(r"\bst\.global\S*", asm["ptx"])
        assert all(".v" in store for store in stores)
        kind = {"ld": "load", "st": "store"}
        return {(kind[access], int(count) * int(bits) // 8) for access, count, bits in found}
    found = re.findall(r"\b(?:global|buffer)_(load|store)_dwordx(\d)", asm["amdgcn"])
    assert not re.search(r"(?:global|buffer)_store_(?!dwordx)", asm["amdgcn"])
    return {(access, 4 * int(count)) for access, count in found}


def test_the_widths_are_seen() -> None:
    cache = torch.zeros(3, 4, 2, 4, dtype=torch.bfloat16)
    assert widths(MOVES["copy"](cache, cache[:, 0]), "sm_90") == {("load", 8), ("store", 8)}


def test_what_changes_from_step_to_step_is_not_compiled_in() -> None:
    changing = {"block_tables", "cu_seqlens", "starts", "num_requests", "num_rows", "table_stride", "num_steps"}
    assert set(gather_kernel.do_not_specialize) == changing
    assert write_kv_kernel.do_not_specialize == ["slot_mapping"]
    assert copy_blocks_kernel.do_not_specialize == ["pairs"]
