"""How calls become launches: padding rows, scales, values that are not finite, workspaces, and what decides no bit."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton", reason="Triton exists for Linux only")

from pagedkv.optimized import paged_attention, workspace_size
from pagedkv.optimized.attention import tuned
from pagedkv.optimized.attention.arguments import AttentionCall, Mask
from pagedkv.optimized.attention.attend_launches import MERGE_REGISTERS, attention_launches
from pagedkv.optimized.attention.cutting import (
    DECODE_ROWS, Overrides, cut, filling_split_size, plan_of, shape_of, turns, workspace_elements,
)  # fmt: skip
from pagedkv.optimized.attention.tuned import Tiling, max_registers
from pagedkv.optimized.audit.aot import compiled_kernel
from pagedkv.spec import Misuse
from pagedkv.spec.attention_subject import RoundingModel
from pagedkv.spec.bound import Bound, bound, rho

SMALL = Overrides(Tiling(16, 16, 4, 1), merged=2, programs=8, upcast=True)
PLAIN = Mask(0.25, True, None, 0.0, None, None)
SIZE, KV_HEADS, DIM = 4, 2, 16


def call_of(lengths: list[int], rows: list[int], padding: int = 0, mask: Mask = PLAIN, **options: Any) -> AttentionCall:
    """A call on random contents; `padding` rows past the last request. Two query heads a KV head, splits of 16."""
    generator = torch.Generator().manual_seed(3)
    width = max(1, -(-max(lengths, default=1) // SIZE))
    num_blocks = max(1, width * len(lengths))
    caches = torch.randn(2, num_blocks, SIZE, KV_HEADS, DIM, generator=generator)
    tables = torch.randperm(num_blocks, generator=generator)[: width * len(lengths)].to(torch.int32)
    query = torch.randn(sum(rows) + padding, 2 * KV_HEADS, DIM, generator=generator)
    cu_seqlens = torch.tensor([0, *np.cumsum(rows)], dtype=torch.int32)
    out, lse = torch.full_like(query, torch.nan), torch.full(query.shape[:2], torch.nan)
    return AttentionCall(
        query, caches[0], caches[1], tables.view(len(lengths), width), torch.tensor(lengths, dtype=torch.int32),
        cu_seqlens, mask, out, lse, **({"split_size": 16} | options),
    )  # fmt: skip


def run(call: AttentionCall, way: Overrides = SMALL) -> tuple[Tensor, Tensor]:
    """The call, interpreted, on outputs of its own."""
    call = replace(call, out=torch.full_like(call.out, torch.nan), lse=torch.full_like(call.lse, torch.nan))
    for launch in attention_launches(call, way):
        launch.interpret()
    return call.out, call.lse


def expected(call: AttentionCall, request: int) -> Bound:
    """What the specification says of one request, and how far from it float32 may be."""
    assert call.cu_seqlens_q is not None
    length = int(call.seq_lens[request])
    blocks = call.block_tables[request, : -(-length // SIZE)].long()
    key, value = (cache[blocks].flatten(0, 1)[:length].numpy() for cache in (call.k_cache, call.v_cache))
    rows = slice(int(call.cu_seqlens_q[request]), int(call.cu_seqlens_q[request + 1]))
    model = RoundingModel(tile=16, num_tiles=length // 16 + 4)
    return bound(call.query[rows].numpy(), key, value, model=model, scale=float(np.float32(call.mask.scale)))


@pytest.mark.parametrize("padding", [1, DECODE_ROWS, DECODE_ROWS + 1, 25])
@pytest.mark.parametrize("lengths", [[], [5], [40, 3]])
def test_rows_past_the_last_request_see_nothing(lengths: list[int], padding: int) -> None:
    call = call_of(lengths, [1] * len(lengths), padding)
    out, lse = run(call)
    assert not out[len(lengths) :].any()
    assert bool((lse[len(lengths) :] == -torch.inf).all())
    alone = run(call_of(lengths, [1] * len(lengths)))[0] if lengths else out[:0]
    assert torch.equal(out[: len(lengths)], alone)


@pytest.mark.parametrize("scale", [-0.5, 0.0, 1e-30, 1e-46, 2.0**100])
@pytest.mark.parametrize("rows", [1, 12])
def test_any_finite_scale_means_what_it_says(scale: float, rows: int) -> None:
    call = call_of([33], [rows], mask=replace(PLAIN, scale=scale))
    out, lse = run(call)
    want = expected(call, 0)
    assert rho(out.numpy(), want.out, want.out_bound).max() <= 1
    assert rho(lse.numpy(), want.lse, want.lse_bound).max() <= 1


@pytest.mark.parametrize("logit", [3.3e9, -3.3e9, 1e30])
@pytest.mark.parametrize("rows", [1, 12])
def test_huge_logits_that_are_equal_weigh_the_same(logit: float, rows: int) -> None:
    """Their rounding is larger than all that an exponential can tell apart, and cancels."""
    call = call_of([37], [rows])
    call.query.zero_()
    call.query[..., 0] = 1.0
    call.k_cache[..., 0] = logit / call.mask.scale
    out, lse = run(call)
    means = [
        call.v_cache[call.block_tables[0].long()].flatten(0, 1)[: 37 - rows + row + 1].mean(0) for row in range(rows)
    ]
    np.testing.assert_array_less(
        (out.view(rows, KV_HEADS, 2, DIM) - torch.stack(means)[:, :, None]).abs().numpy(), 1e-5
    )
    assert bool(((lse - logit).abs() <= 1e-6 * abs(logit)).all())
    one = call.block_tables[0, 0].long()
    call.k_cache[one, 0, :, 0] = 2 * abs(logit) / call.mask.scale
    assert torch.equal(run(call)[0][-1].view(KV_HEADS, 2, DIM)[:, 0], call.v_cache[one, 0])


@pytest.mark.parametrize("odd", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("rows", [1, 3, 12])
def test_a_value_that_is_not_finite_reaches_the_rows_that_see_it(odd: float, rows: int) -> None:
    """And no others: the law `unseen` of the kit."""
    call = call_of([33], [rows])
    last = call.block_tables[0, 32 // SIZE]
    call.v_cache[last, 32 % SIZE, 0, 5] = odd
    out, _ = run(call)
    with np.errstate(invalid="ignore"):
        want = expected(call, 0).out
    assert np.array_equal(np.isfinite(out.numpy()), np.isfinite(want))
    assert np.array_equal(out.numpy()[~np.isfinite(want)], want[~np.isfinite(want)], equal_nan=True)


@pytest.mark.parametrize("rows", [DECODE_ROWS - 1, DECODE_ROWS, DECODE_ROWS + 1])
def test_every_request_is_served_by_one_kernel(rows: int) -> None:
    call = call_of([30, 21], [rows, 1])
    out, _ = run(call)
    assert bool(out.isfinite().all())
    served = {}
    for name in ("decode", "prefill"):
        part = replace(call, out=torch.full_like(call.out, torch.nan), lse=torch.full_like(call.lse, torch.nan))
        for launch in attention_launches(part, SMALL):
            if (launch.name == "prefill") == (name == "prefill"):
                launch.interpret()
        served[name] = part.out.isfinite().all(2).all(1)
    assert bool((served["decode"] ^ served["prefill"]).all())
    assert bool(served["prefill"][:rows].all()) == (rows > DECODE_ROWS)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 40), st.integers(1, 3))
def test_how_many_programs_share_the_work_decides_no_bit(programs: int, merged: int) -> None:
    """Nor how many splits are merged in one go, where each weighs little more than the others."""
    call = call_of([70, 9], [2, 1])
    few, many = (run(call, SMALL._replace(programs=number)) for number in (1, programs))
    assert torch.equal(few[0], many[0])
    assert torch.equal(few[1], many[1])
    assert run(call, SMALL._replace(merged=2**merged))[0].isfinite().all()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=3), st.integers(0, 9), st.booleans())
def test_a_workspace_of_the_size_asked_for_is_enough_and_changes_no_bit(
    requests: list[tuple[int, int]], padding: int, decode: bool
) -> None:
    """The interpreter refuses every access past it."""
    lengths, rows = [length for length, _ in requests], [1 if decode else count for _, count in requests]
    call = call_of(lengths, rows, 0 if decode else padding)
    call = replace(call, cu_seqlens_q=None if decode else call.cu_seqlens_q)
    tensors = (call.query, call.v_cache, call.block_tables)
    elements = workspace_size(*tensors, cu_seqlens_q=call.cu_seqlens_q, split_size=16)
    own, given = run(call), run(replace(call, workspace=torch.full((elements,), torch.nan)))
    assert torch.equal(own[0], given[0])
    assert torch.equal(own[1], given[1])
    meta = [tensor.to("meta") for tensor in tensors]
    rows_of = None if decode else torch.zeros(len(lengths) + 1, device="meta")
    assert workspace_size(meta[0], meta[1], meta[2], cu_seqlens_q=rows_of, split_size=16) == elements


def test_a_workspace_that_does_not_fit_is_misuse() -> None:
    call = call_of([40], [1])
    tensors = (call.query, call.k_cache, call.v_cache, call.block_tables, call.seq_lens)
    elements = workspace_size(call.query, call.v_cache, call.block_tables, split_size=16)
    assert elements > 0
    whole = torch.zeros(elements)
    paged_attention(*tensors, split_size=16, workspace=whole)
    for wrong in (whole[1:], whole.double(), whole.view(1, -1), torch.zeros(2 * elements)[::2], whole.to("meta")):
        with pytest.raises(Misuse, match="workspace"):
            paged_attention(*tensors, split_size=16, workspace=wrong)


def test_a_larger_batch_needs_no_less_room() -> None:
    shape = shape_of(torch.empty(4, 4, 16), torch.empty(8, 4, 2, 16), torch.empty(4, 64), None)
    for name in ("num_requests", "total_q", "positions", "num_q_heads", "value_dim"):
        larger = shape._replace(**{name: 2 * getattr(shape, name)})
        assert workspace_elements(larger, 16) >= workspace_elements(shape, 16)
        several, more = (each._replace(several=True) for each in (shape, larger))
        assert workspace_elements(more, 16) >= workspace_elements(several, 16)


@pytest.mark.parametrize("decode", [True, False])
def test_no_step_of_a_model_has_a_kernel_compiled_anew(decode: bool) -> None:
    """Whatever the batch, its rows and the width of its tables: all that varies from step to step."""
    variants: dict[str, set[str]] = {}
    for batch, width in ((3, 17), (4, 16), (16, 18)):
        query, out = torch.zeros(2, batch * (1 if decode else 12), 7, 64, dtype=torch.float16)
        caches = torch.zeros(2, 4, 16, 1, 64, dtype=torch.float16)
        starts = None if decode else torch.arange(0, 12 * batch + 1, 12, dtype=torch.int32)
        call = AttentionCall(
            query, caches[0], caches[1], torch.zeros(batch, width, dtype=torch.int32),
            torch.zeros(2 * batch, dtype=torch.int32)[batch:], starts, PLAIN, out, torch.zeros(query.shape[:2]), 64,
        )  # fmt: skip
        for launch in attention_launches(call, architecture="sm_90"):
            variants.setdefault(launch.name, set()).add(compiled_kernel(launch, "sm_90").hash)
    assert {name: len(hashes) for name, hashes in variants.items()} == dict.fromkeys(variants, 1)
    assert set(variants) == ({"decode", "merge"} if decode else {"decode", "merge", "prefill"})


def test_long_code_may_take_all_registers_and_a_plain_decode_leaves_room_for_more_programs() -> None:
    call = call_of([40, 30], [1, 20])
    half = [tensor.half() for tensor in (call.query, call.k_cache, call.v_cache, call.out)]
    call = replace(call, query=half[0], k_cache=half[1], v_cache=half[2], out=half[3])
    alone = replace(call, query=half[0][:2], out=half[3][:2], cu_seqlens_q=None)
    given = [launch.kwargs.get("maxnreg") for launch in attention_launches(call, architecture="sm_90")]
    assert given == [255, MERGE_REGISTERS, 255]  # decode, merge, prefill
    given = [launch.kwargs.get("maxnreg") for launch in attention_launches(alone, architecture="sm_90")]
    assert given == [None, MERGE_REGISTERS]
    assert all("maxnreg" not in launch.kwargs for launch in attention_launches(call, architecture="gfx942"))


@pytest.mark.parametrize("dims", [(264, 64), (64, 272)])
def test_dims_that_do_not_fit_a_gpu_are_misuse(dims: tuple[int, int]) -> None:
    call = call_of([4], [1])
    wide = [torch.zeros(2, SIZE, KV_HEADS, dim) for dim in dims]
    call = replace(call, k_cache=wide[0], v_cache=wide[1], query=torch.zeros(1, 4, dims[0]))
    with pytest.raises(Misuse, match="256"):
        attention_launches(call)


@given(st.integers(1, 600), st.integers(0, 100_000), st.integers(1, 10_000))
def test_turns_fill_what_is_wanted_and_no_more_than_there_is(most: int, programs: int, wanted: int) -> None:
    found = turns(most, programs, wanted)
    assert 1 <= found <= most
    assert found == most or found * max(1, programs) >= wanted
    assert found == 1 or (found - 1) * max(1, programs) < wanted


@given(st.integers(1, 512), st.integers(1, 4096), st.integers(1, 300))
def test_filling_splits_are_whole_tiles_and_fewer_in_larger_batches(batch: int, blocks: int, processors: int) -> None:
    shape = shape_of(torch.empty(batch, 8, 16), torch.empty(1, 16, 2, 16), torch.empty(batch, blocks), None)
    size = filling_split_size(shape, processors)
    assert size % 64 == 0
    assert filling_split_size(shape._replace(num_requests=2 * batch, total_q=2 * batch), processors) >= size
    splits = plan_of(shape, size).num_splits
    assert splits == 1 or (splits - 1) * batch * 2 <= 2 * processors


def test_a_row_may_name_a_group_or_a_dim_that_is_no_power_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (*tuned.KEYS, "tile", "rows", "num_warps", "num_stages")
    rows = ["decode,*,*,*,*,*,16,16,1,1", "decode,*,*,*,5,*,16,16,4,1", "decode,*,*,*,8,*,16,16,2,1"]
    rows += ["decode,*,*,*,64,*,16,16,8,1", "decode,*,*,80,*,*,16,16,3,1", "decode,*,*,128,1,*,16,16,6,1"]
    table = tuple(dict(zip(columns, row.split(","), strict=True)) for row in rows)
    monkeypatch.setattr(tuned, "table", lambda: table)
    tuned.tiling.cache_clear()
    try:
        groups = (1, 5, 7, 8, 40, 128)
        dims = {dim: tuned.tiling("decode", "any", "float16", dim, 1, 16).num_warps for dim in (64, 80, 96, 128)}
        warps = {group: tuned.tiling("decode", "any", "float16", 64, group, 16).num_warps for group in groups}
    finally:
        tuned.tiling.cache_clear()
    assert dims == {64: 1, 80: 3, 96: 6, 128: 6}
    assert warps == {1: 1, 5: 4, 7: 2, 8: 2, 40: 8, 128: 8}


@pytest.mark.parametrize("group", [1, 3, 5, 7, 8, 64, 128])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "any"])
@pytest.mark.parametrize("kernel", ["decode", "prefill"])
def test_every_shape_has_a_tiling(kernel: str, architecture: str, group: int) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for dim in (32, 80, 112, 128, 192, 256):
            query, cache = torch.empty(1, 2 * group, dim, dtype=dtype), torch.empty(1, 16, 2, dim, dtype=dtype)
            found = cut(kernel, shape_of(query, cache, torch.empty(1, 1), None), architecture)
            assert found.tile in (16, 32, 64, 128, 256)
            assert found.rows >= max(16, group)
            assert found.rows & (found.rows - 1) == 0
            assert found.num_warps in (1, 2, 4, 8, 16)
            registers = max_registers(architecture, found.num_warps).get("maxnreg", 0)
            assert 32 * found.num_warps * registers <= 65536


def test_every_row_of_the_table_decides_something() -> None:
    """A row that others cover is read by people only, who would believe it."""
    targets, dtypes = ("sm_80", "sm_90", "sm_100", "gfx942", "any"), ("float32", "float16", "bfloat16")
    dims, groups, sizes = (16, 32, 64, 72, 80, 96, 112, 128, 192, 256), (1, 2, 4, 5, 7, 8, 64), (1, 16, 24, 64, 100)
    deciding = {
        tuned.deciding(*shape) for shape in product(("decode", "prefill"), targets, dtypes, dims, groups, sizes)
    }
    assert [row for place, row in enumerate(tuned.table()) if place not in deciding] == []
