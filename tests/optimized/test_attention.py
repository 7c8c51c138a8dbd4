"""`paged_attention` and its companions: batches, bad input, and who serves which device. (The laws of attention are
held by tests/conformance.)"""

import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pagedkv.optimized import copy_blocks, gather_kv, merge_attention, paged_attention, write_kv
from pagedkv.optimized.attention import backend_for
from pagedkv.optimized.attention.backends import made_current
from pagedkv.optimized.attention.subject import OptimizedAttention
from pagedkv.spec import Misuse
from pagedkv.spec.attention_subject import RoundingModel
from pagedkv.spec.bound import bound, rho


def launch(requests: int = 2, heads: int = 4, kv_heads: int = 2, dim: int = 8, size: int = 4) -> dict[str, Any]:
    """A small decode launch."""
    generator = torch.Generator().manual_seed(0)
    caches = torch.randn(2, 8, size, kv_heads, dim, generator=generator)
    return {
        "query": torch.randn(requests, heads, dim, generator=generator),
        "k_cache": caches[0],
        "v_cache": caches[1],
        "block_tables": torch.arange(4 * requests, dtype=torch.int32).view(requests, 4) % 8,
        "seq_lens": torch.tensor([5, 9][:requests], dtype=torch.int32),
    }


def attend_lse(tensors: dict[str, Any], **options: Any) -> tuple[Tensor, Tensor]:
    """The output and the log-sum-exp."""
    result = paged_attention(**{**tensors, **options}, return_lse=True)
    assert isinstance(result, tuple)
    return result


def attend(tensors: dict[str, Any], **options: Any) -> Tensor:
    """The output alone."""
    result = paged_attention(**{**tensors, **options})
    assert isinstance(result, Tensor)
    return result


def test_a_mixed_batch_equals_its_requests_alone() -> None:
    tensors = launch()
    query = torch.randn(4, 4, 8)
    whole = attend(tensors, query=query, cu_seqlens_q=torch.tensor([0, 3, 4], dtype=torch.int32))
    for r, rows in enumerate((slice(0, 3), slice(3, 4))):
        alone = {"block_tables": tensors["block_tables"][r : r + 1], "seq_lens": tensors["seq_lens"][r : r + 1]}
        count = torch.tensor([0, rows.stop - rows.start], dtype=torch.int32)
        assert torch.equal(attend({**tensors, **alone}, query=query[rows], cu_seqlens_q=count), whole[rows])


def test_rows_past_the_last_request_see_nothing() -> None:
    tensors = launch()
    cu_seqlens = torch.tensor([0, 1, 2], dtype=torch.int32)
    out, lse = attend_lse(tensors, query=torch.randn(5, 4, 8), cu_seqlens_q=cu_seqlens)
    assert bool((out[2:] == 0).all())
    assert bool((lse[2:] == -torch.inf).all())


@given(st.integers(0, 9), st.integers(0, 9))
def test_parts_merge_to_the_whole(first: int, second: int) -> None:
    tensors = launch(requests=1)
    low, high = sorted((first, second))
    bounds = [0, low, high, 9]
    key, value = (gather_kv(tensors[name], tensors["block_tables"][0], 9) for name in ("k_cache", "v_cache"))
    outs, lses = [], []
    for begin, end in pairwise(bounds):
        part = {
            "k_cache": key[None, begin:end] if end > begin else key[None, :1],
            "v_cache": value[None, begin:end] if end > begin else value[None, :1],
            "block_tables": torch.zeros(1, 1, dtype=torch.int32),
            "seq_lens": torch.tensor([end - begin], dtype=torch.int32),
        }
        out, lse = attend_lse({**tensors, **part})
        outs.append(out)
        lses.append(lse)
    merged, total = merge_attention(torch.stack(outs), torch.stack(lses))
    whole, lse = attend_lse(tensors, seq_lens=torch.tensor([9], dtype=torch.int32))
    model = RoundingModel(tile=9, num_tiles=2 + len(outs), lse_merge=True)
    exact = bound(*(each.numpy() for each in (tensors["query"], key, value)), model=model, scale=8**-0.5)
    for got, got_lse in ((merged, total), (whole, lse)):
        assert rho(got.numpy(), exact.out, exact.out_bound).max() <= 1
        assert rho(got_lse.numpy(), exact.lse, exact.lse_bound).max() <= 1


def test_a_head_major_cache_is_a_view_and_gives_the_same_bits() -> None:
    tensors = launch()
    head_major = {
        name: tensors[name].permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3) for name in ("k_cache", "v_cache")
    }
    assert not head_major["k_cache"].is_contiguous()
    assert torch.equal(attend(tensors), attend({**tensors, **head_major}))


def test_written_keys_are_gathered_in_order() -> None:
    cache = torch.full((4, 4, 2, 8), float("nan"))
    rows = torch.randn(5, 2, 8)
    slots = torch.tensor([8, 9, 10, 11, 4])
    write_kv(rows, rows, cache, cache.clone(), slots)
    assert torch.equal(gather_kv(cache, torch.tensor([2, 1], dtype=torch.int32), 5), rows)


def test_copies_happen_as_if_at_once() -> None:
    cache = torch.arange(4.0)[:, None, None, None].expand(4, 2, 1, 1).clone()
    copy_blocks([cache], torch.tensor([[0, 2], [1, 3]]))
    assert cache[:, 0, 0, 0].tolist() == [0, 1, 0, 1]


BAD: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
    ("query.shape", lambda t: t.update(query=t["query"][0])),
    ("query.shape", lambda t: t.update(query=t["query"][:1])),
    ("query.shape", lambda t: t.update(query=t["query"][:, :3])),
    ("query.shape", lambda t: t.update(query=t["query"][..., :4].contiguous())),
    ("query.dtype", lambda t: t.update(query=t["query"].half())),
    ("query.stride()", lambda t: t.update(query=t["query"].transpose(1, 2).contiguous().transpose(1, 2))),
    ("query.requires_grad", lambda t: t.update(query=t["query"].requires_grad_())),
    ("k_cache.shape", lambda t: t.update(k_cache=t["k_cache"][0])),
    ("k_cache.dtype", lambda t: t.update(k_cache=t["k_cache"].double())),
    ("v_cache.shape", lambda t: t.update(v_cache=t["v_cache"][:4])),
    ("v_cache.dtype", lambda t: t.update(v_cache=t["v_cache"].half())),
    ("block_tables.dtype", lambda t: t.update(block_tables=t["block_tables"].long())),
    ("block_tables.shape", lambda t: t.update(block_tables=t["block_tables"][0])),
    ("block_tables", lambda t: t.update(block_tables=t["block_tables"] + 8)),
    ("seq_lens.shape", lambda t: t.update(seq_lens=t["seq_lens"][:1])),
    ("seq_lens", lambda t: t.update(seq_lens=t["seq_lens"] + 100)),
    ("cu_seqlens_q.shape", lambda t: t.update(cu_seqlens_q=torch.zeros(2, dtype=torch.int32))),
    ("cu_seqlens_q", lambda t: t.update(cu_seqlens_q=torch.tensor([0, 5, 2], dtype=torch.int32))),
    ("window", lambda t: t.update(window=0)),
    ("softcap", lambda t: t.update(softcap=-1.0)),
    ("alibi_slopes.shape", lambda t: t.update(alibi_slopes=torch.zeros(3))),
    ("sinks.dtype", lambda t: t.update(sinks=torch.zeros(4, dtype=torch.float64))),
    ("split_size", lambda t: t.update(split_size=24)),
    ("out.shape", lambda t: t.update(out=torch.zeros(1))),
    ("backend", lambda t: t.update(backend="triton")),
    ("backend", lambda t: t.update(backend="cuda")),
    ("query.device", lambda t: t.update(query=t["query"].to("meta"))),
]


@pytest.mark.parametrize(("argument", "spoil"), BAD)
def test_bad_input_names_the_argument(argument: str, spoil: Callable[[dict[str, Any]], None]) -> None:
    tensors: dict[str, Any] = launch()
    spoil(tensors)
    with pytest.raises(Misuse) as caught:
        attend(tensors)
    assert caught.value.argument == argument


def test_bad_writes_and_copies_change_nothing() -> None:
    cache = torch.zeros(4, 2, 1, 8)
    rows = torch.ones(2, 1, 8)
    for slots in ([3, 3], [0, 8]):
        with pytest.raises(Misuse, match="slot_mapping"):
            write_kv(rows, rows, cache, cache.clone(), torch.tensor(slots))
    for pairs in ([[0, 1], [1, 2]], [[0, 1], [2, 1]], [[0, 4]]):
        with pytest.raises(Misuse, match="pairs"):
            copy_blocks([cache], torch.tensor(pairs))
    assert not cache.any()


def test_the_numpy_type_of_the_results_is_that_of_the_query() -> None:
    out, lse = attend_lse(launch())
    assert str(out.numpy().dtype) == str(lse.numpy().dtype) == "float32"


def test_a_gpu_without_triton_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ImportError, match=r'pip install "pagedkv\[gpu\]"'):
        backend_for(torch.device("cuda"))


@pytest.mark.parametrize("rows", [1, 3])
def test_the_torch_path_makes_nothing_on_another_device_than_its_tensors(rows: int) -> None:
    """By name it serves any device. Here tensors that do not say where they lie would be on meta."""
    tensors = launch() | {"sinks": torch.rand(4), "alibi_slopes": torch.rand(4)}
    tensors["v_cache"][1, 0] = torch.nan  # which some rows see
    tensors["query"] = torch.randn(2 * rows, 4, 8)
    tensors["cu_seqlens_q"] = torch.arange(3, dtype=torch.int32) * rows
    options: dict[str, Any] = {"backend": "torch", "softcap": 5.0, "window": 4}
    pairs, slots, new = torch.tensor([[0, 1]]), torch.tensor([3, -1]), torch.randn(2, 2, 8)
    for causal in (True, False):
        expected = attend_lse(tensors, **options, causal=causal)
        with torch.device("meta"):
            got = attend_lse(tensors, **options, causal=causal)
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    with torch.device("meta"):
        merge_attention(torch.stack([expected[0]] * 2), torch.stack([expected[1]] * 2), backend="torch")
        gather_kv(tensors["k_cache"], tensors["block_tables"][0], 5, backend="torch")
        write_kv(new, new, tensors["k_cache"], tensors["v_cache"], slots, backend="torch")
        copy_blocks([tensors["k_cache"]], pairs, backend="torch")


def test_only_a_backend_without_splits_declares_that_they_change_nothing() -> None:
    assert OptimizedAttention("cpu", "torch").capabilities.split_invariant
    assert not OptimizedAttention("cpu", "numba").capabilities.split_invariant
    assert not OptimizedAttention("cuda").capabilities.split_invariant


@pytest.mark.parametrize("where", ["cpu", "cuda:0", "cuda:1"])
def test_a_kernel_is_launched_on_the_device_of_its_tensors(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[torch.device] = []

    class Entered:
        def __init__(self, device: torch.device) -> None:
            entered.append(device)

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", Entered)
    with made_current(torch.device(where)):
        assert entered == ([torch.device(where)] if where == "cuda:1" else [])


@pytest.mark.parametrize("where", ["query", "k_cache", "sinks", "alibi_slopes", "workspace"])
def test_an_output_that_lies_over_what_is_read_gets_the_right_result(where: str) -> None:
    tensors = launch() | {"sinks": torch.rand(4), "alibi_slopes": torch.rand(4)}
    options: dict[str, Any] = {"workspace": torch.zeros(5000)} if where == "workspace" else {}
    expected = attend(tensors)
    memory = torch.zeros(9000)
    read = options if where == "workspace" else tensors
    shape = read[where].shape
    read[where] = memory[: read[where].numel()].view(shape).copy_(read[where])
    out = memory[:64].view(2, 4, 8)
    assert torch.equal(attend(tensors, **options, out=out), expected)
    assert torch.equal(out, expected)


def test_a_workspace_over_what_is_read_is_misuse() -> None:
    tensors = launch()
    with pytest.raises(Misuse, match="workspace"):
        attend(tensors, workspace=tensors["k_cache"].flatten())


def test_logits_that_are_all_minus_infinity_weigh_nothing() -> None:
    tensors = launch()
    tensors["k_cache"][...] = -1e30
    out, lse = attend_lse(tensors, query=torch.full((2, 4, 8), 1e30))
    assert bool((lse == -torch.inf).all())
    assert not out.any()
