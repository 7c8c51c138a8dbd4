"""What may come in: strided and overlapping tensors, gradients, huge windows, odd numbers; over every backend."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pagedkv.optimized import copy_blocks, gather_kv, paged_attention, write_kv
from pagedkv.optimized.attention import attend as attend_module, gathering, moves
from pagedkv.optimized.attention.arguments import AttentionCall
from pagedkv.optimized.cpu.backend import CpuBackend
from pagedkv.optimized.launch import Launch
from pagedkv.optimized.attention.torch_backend import TorchBackend
from pagedkv.optimized.attention.attend_launches import attention_launches
from pagedkv.optimized.attention.cutting import Overrides
from pagedkv.optimized.attention.triton_backend import TritonBackend
from pagedkv.spec import Misuse


class InterpretedBackend(TritonBackend):
    """The launches of the Triton backend, in the interpreter."""

    def attend(self, call: AttentionCall) -> None:
        for launch in attention_launches(call, Overrides(upcast=True)):
            launch.interpret()

    def launch(self, launch: Launch) -> None:
        launch.interpret()


@pytest.fixture(params=[TorchBackend, CpuBackend, InterpretedBackend], autouse=True)
def _backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The public functions, over each backend in turn."""
    for module in (attend_module, gathering, moves):
        monkeypatch.setattr(module, "backend_for", lambda device, name=None: request.param())


def launch(**options: Any) -> dict[str, Any]:
    """Two requests of lengths 7 and 10 with two rows each, four query heads."""
    generator = torch.Generator().manual_seed(5)
    caches = torch.randn(2, 6, 4, 2, 16, generator=generator)
    return {
        "query": torch.randn(4, 4, 16, generator=generator),
        "k_cache": caches[0],
        "v_cache": caches[1],
        "block_tables": torch.tensor([[3, 1, 0], [5, 2, 4]], dtype=torch.int32),
        "seq_lens": torch.tensor([7, 10], dtype=torch.int32),
        "cu_seqlens_q": torch.tensor([0, 2, 4], dtype=torch.int32),
        **options,
    }


def attend(**options: Any) -> Tensor:
    """Output and log-sum-exp side by side."""
    out, lse = paged_attention(**launch(**options), return_lse=True)
    return torch.cat([out, lse[..., None]], 2)


def every_other(tensor: Tensor) -> Tensor:
    """The same values, two elements apart."""
    return torch.stack([tensor, torch.full_like(tensor, 3)], 1)[:, 0]


HEADS = torch.tensor([0.5, 0.25, 1.0, 2.0])


@pytest.mark.parametrize("name", ["seq_lens", "cu_seqlens_q", "alibi_slopes", "sinks"])
def test_strides_of_one_dimensional_tensors_are_followed(name: str) -> None:
    dense = launch(alibi_slopes=HEADS, sinks=HEADS)
    strided = every_other(dense[name])
    assert not strided.is_contiguous()
    assert torch.equal(attend(**dense), attend(**{**dense, name: strided}))


@pytest.mark.parametrize("name", ["alibi_slopes", "sinks"])
def test_one_value_can_be_expanded_to_all_heads(name: str) -> None:
    expanded = torch.tensor([0.5]).expand(4)
    assert torch.equal(attend(**{name: expanded}), attend(**{name: expanded.clone()}))


def test_decode_reads_strided_lengths() -> None:
    decode = {"query": launch()["query"][:2], "cu_seqlens_q": None}
    assert torch.equal(attend(**decode), attend(**decode, seq_lens=every_other(launch()["seq_lens"])))


def test_writes_and_copies_read_strided_slots_and_pairs() -> None:
    rows, cache, other = torch.randn(3, 2, 16), torch.zeros(2, 4, 2, 16), torch.zeros(2, 4, 2, 16)
    write_kv(rows, rows, cache, other, every_other(torch.tensor([4, 0, 6])))
    assert torch.equal(gather_kv(cache, torch.tensor([1, 0], dtype=torch.int32), 5)[[0, 4, 2]], rows)
    copy_blocks([cache], torch.tensor([[1], [0]]).expand(2, 2).T[:1])
    assert torch.equal(cache[0], cache[1])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [12, 16, 2**31 - 1, 2**31, 2**63 - 1, 2**80, np.int64(2**62), np.int8(100)])
def test_a_window_wider_than_the_table_hides_nothing(window: Any, causal: bool) -> None:
    assert torch.equal(attend(window=window, causal=causal), attend(causal=causal))


def test_numpy_integers_are_integers() -> None:
    assert torch.equal(attend(window=np.int8(3), split_size=np.int64(16)), attend(window=3, split_size=16))


def test_rows_before_the_beginning_see_through_a_wide_window_what_they_see_without() -> None:
    early = {"seq_lens": torch.tensor([0, 1], dtype=torch.int32), "causal": False}
    assert torch.equal(attend(window=15, **early), attend(**early))


@pytest.mark.parametrize("value", [10**400, -(10**400), Fraction(1, 2), 1e39, math.inf])
@pytest.mark.parametrize("name", ["scale", "softcap"])
def test_numbers_that_float32_cannot_hold_are_misuse(name: str, value: Any) -> None:
    with pytest.raises(Misuse) as caught:
        attend(**{name: value})
    assert caught.value.argument == name


@pytest.mark.parametrize("caches", [None, 3, iter([torch.zeros(2, 1, 1, 8)])])
def test_caches_to_copy_in_are_a_sequence(caches: Any) -> None:
    with pytest.raises(Misuse) as caught:
        copy_blocks(caches, torch.tensor([[0, 1]]))
    assert caught.value.argument == "caches"


@pytest.mark.parametrize("name", ["query", "k_cache", "v_cache", "alibi_slopes", "sinks", "out"])
def test_a_gradient_is_misuse_unless_none_is_asked_for(name: str) -> None:
    given = launch(alibi_slopes=HEADS, sinks=HEADS, out=torch.zeros(4, 4, 16))
    expected = attend(**given)
    given[name] = given[name].clone().requires_grad_()
    with pytest.raises(Misuse) as caught:
        attend(**given)
    assert caught.value.argument == f"{name}.requires_grad"
    with torch.no_grad():
        assert torch.equal(attend(**given), expected)


def pool() -> Tensor:
    return torch.zeros(4, 2, 1, 8)


SPOILT: list[tuple[str, Callable[[], Tensor]]] = [
    ("requires_grad", lambda: pool().requires_grad_()),
    ("stride()", lambda: torch.zeros(1, 2, 1, 8).expand(4, 2, 1, 8)),
    ("stride()", lambda: torch.zeros(40).as_strided((4, 2, 1, 8), (8, 8, 8, 1))),
]


@pytest.mark.parametrize(("what", "spoilt"), SPOILT)
def test_a_destination_that_cannot_be_written_is_found_before_the_first_write(
    what: str, spoilt: Callable[[], Tensor]
) -> None:
    good, bad, ones = pool(), spoilt(), torch.ones(1, 1, 8)
    good[0] = 1
    before = good.clone()
    with pytest.raises(Misuse, match="v_cache") as caught:
        write_kv(ones, ones, good, bad, torch.tensor([7]))
    assert caught.value.argument == f"v_cache.{what}"
    with pytest.raises(Misuse) as caught:
        copy_blocks([good, bad], torch.tensor([[0, 1]]))
    assert caught.value.argument == f"caches[1].{what}"
    assert torch.equal(good, before)


def test_rows_to_write_that_require_a_gradient_are_misuse() -> None:
    with pytest.raises(Misuse, match="no gradient") as caught:
        write_kv(torch.ones(1, 1, 8), torch.ones(1, 1, 8).requires_grad_(), pool(), pool(), torch.tensor([7]))
    assert caught.value.argument == "value.requires_grad"


def test_an_expanded_output_is_misuse() -> None:
    with pytest.raises(Misuse) as caught:
        attend(out=torch.zeros(1, 4, 16).expand(4, 4, 16))
    assert caught.value.argument == "out.stride()"


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_an_output_over_the_query_gets_the_right_result(offset: int) -> None:
    memory = torch.zeros(6, 4, 16)
    query = memory[:4].copy_(launch()["query"])
    expected = attend()
    assert torch.equal(attend(query=query, out=memory[offset : offset + 4]), expected)


def test_without_requests_every_row_sees_nothing() -> None:
    none = {"block_tables": torch.zeros(0, 3, dtype=torch.int32), "seq_lens": torch.zeros(0, dtype=torch.int32)}
    result = attend(**none, cu_seqlens_q=torch.zeros(1, dtype=torch.int32))
    assert not result[..., :-1].any()
    assert bool((result[..., -1] == -torch.inf).all())


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("window", [None, 2])
def test_a_row_reads_what_it_sees_and_nothing_else(poison: float, window: int | None) -> None:
    q, v = torch.zeros(2, 1, 1), torch.tensor([1.0, poison]).view(1, 2, 1, 1)
    given = {"block_tables": torch.zeros(1, 1, dtype=torch.int32), "seq_lens": torch.tensor([2], dtype=torch.int32)}
    given |= {"query": q, "k_cache": torch.zeros(1, 2, 1, 1), "cu_seqlens_q": torch.tensor([0, 2], dtype=torch.int32)}
    first, second = attend(**given, v_cache=v, window=window)[:, 0, 0].tolist()
    assert first == 1.0
    assert not math.isfinite(second)
