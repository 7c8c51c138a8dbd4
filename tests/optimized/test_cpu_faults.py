"""What the compiled loops must bear: other defaults of torch, interrupts, ends of the process, numbers at the edge."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from pagedkv.optimized import BlockCopier, merge_attention, paged_attention, prepare_attention, write_kv
from pagedkv.optimized.cpu import warming
from pagedkv.optimized.attention.subject import numba_rounding
from pagedkv.spec import Misuse
from pagedkv.spec.bound import rho
from tests.optimized.gather_laws import same_bits
from tests.optimized.torch_bound import bound_of, is_close


def call(length: int = 4096, requests: int = 1, heads: int = 8, dim: int = 64, **options: Any) -> dict[str, Any]:
    """Some requests of one length; keys are values."""
    generator = torch.Generator().manual_seed(1)
    blocks = -(-length // 16)
    cache = torch.randn(blocks, 16, heads, dim, generator=generator)
    return {
        "query": torch.randn(requests, 2 * heads, dim, generator=generator), "k_cache": cache, "v_cache": cache,
        "block_tables": torch.randperm(blocks, generator=generator).int().repeat(requests, 1),
        "seq_lens": torch.full((requests,), length, dtype=torch.int32), "return_lse": True, **options,
    }  # fmt: skip


def both(**options: Any) -> list[tuple[Tensor, Tensor]]:
    """What the loops give, and torch."""
    return [paged_attention(**options, backend=name) for name in ("numba", "torch")]  # type: ignore[misc]  # with lse


@contextmanager
def defaults(dtype: torch.dtype | None = None, device: str | None = None) -> Iterator[None]:
    """Torch makes tensors of this kind unless told otherwise."""
    before = torch.get_default_dtype()
    try:
        if dtype is not None:
            torch.set_default_dtype(dtype)
        if device is not None:
            torch.set_default_device(device)
        yield
    finally:
        torch.set_default_dtype(before)
        torch.set_default_device(None)


@pytest.mark.parametrize("kind", [{"dtype": torch.bfloat16}, {"dtype": torch.float64}, {"device": "meta"}], ids=str)
def test_the_defaults_of_torch_do_not_matter(kind: dict[str, Any]) -> None:
    """Scratch memory half as large as needed was once written past its end."""
    given = call(requests=5)
    outs, lses = torch.randn(8, 64, 64, 64), torch.randn(8, 64, 64)
    expected = [*both(**given)[0], *merge_attention(outs, lses, backend="numba")]
    with defaults(**kind):
        warming.use_every_loop()
        found = [*paged_attention(**given, backend="numba"), *merge_attention(outs, lses, backend="numba")]
    assert all(same_bits(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("dim", "value_dim", "heads", "dtype"),
    [(576, 512, 16, torch.bfloat16), (300, 288, 16, torch.float16), (256, 640, 16, torch.float32),
     (2, 1, 3, torch.bfloat16), (33, 17, 4, torch.bfloat16), (1, 3, 1, torch.bfloat16), (66, 31, 5, torch.bfloat16),
     (40, 200, 2, torch.bfloat16), (16, 16, 65, torch.float32), (576, 512, 128, torch.bfloat16)],
)  # fmt: skip
def test_heads_of_any_width_stay_in_scratch(dim: int, value_dim: int, heads: int, dtype: torch.dtype) -> None:
    """The list of what is asked for was once longer than its room, in 16 bits with wide heads."""
    generator = torch.Generator().manual_seed(dim)
    k, v = (torch.randn(100, 16, 1, each, generator=generator).to(dtype) for each in (dim, value_dim))
    query = torch.randn(1, heads, dim, generator=generator).to(dtype)
    tables, lengths = torch.arange(100).int()[None], torch.tensor([1600], dtype=torch.int32)
    found: Any = paged_attention(query, k, v, tables, lengths, return_lse=True, backend="numba")
    kind = str(dtype).removeprefix("torch.")
    exact = bound_of(query, k.flatten(0, 1), v.flatten(0, 1), numba_rounding(kind, dim, 1600, 512), dtype=kind)
    assert is_close(found[0], torch.from_numpy(exact.out), exact)
    assert float(rho(found[1].numpy(), exact.lse, exact.lse_bound).max()) <= 1


@pytest.mark.parametrize("where", ["query", "last span", "first span"])
def test_what_is_no_number_stays_none(where: str) -> None:
    """Spans merge by their largest logit, which a span of NaN does not have."""
    given = call(513, heads=1)
    keys = given["k_cache"].clone()
    blocks = given["block_tables"][0].long()
    if where == "query":
        given["query"] = given["query"] * math.nan
    else:
        keys[blocks[32:] if where == "last span" else blocks[:32]] = math.nan
    given["k_cache"] = keys
    for out, lse in both(**given):
        assert bool(out.isnan().all())
        assert bool(lse.isnan().all())


@pytest.mark.parametrize(
    "options", [{"scale": 3e38}, {"softcap": 1e8}, {"softcap": 1e15}, {"softcap": 1e30}, {"softcap": 0.01}], ids=str
)
def test_numbers_at_the_edge_are_computed_as_torch_does(options: dict[str, Any]) -> None:
    given = call(600, heads=1, **options)
    if "scale" in options:
        given["k_cache"] = torch.zeros_like(given["k_cache"])
    a, b = both(**given)
    torch.testing.assert_close(a[0], b[0])
    torch.testing.assert_close(a[1], b[1])


def test_large_logits_and_sinks_are_finite() -> None:
    one = torch.ones(1, 1, 1, 1)
    shared = {"v_cache": one, "block_tables": torch.zeros(1, 1, dtype=torch.int32), "seq_lens": torch.ones(1).int()}
    for q, k, sinks in ((3e19, 1e19, None), (1.0, 1.0, torch.tensor([3e38]))):
        given = {"query": one[0] * q, "k_cache": one * k, "sinks": sinks, "scale": 1.0, "return_lse": True, **shared}
        a, b = both(**given)
        assert bool(a[1].isfinite().all())
        torch.testing.assert_close(a, b)


def test_rows_that_lie_in_the_cache_are_read_before_it_is_written() -> None:
    caches = []
    for name in ("numba", "torch"):
        k = torch.arange(16.0).view(4, 4, 1, 1).contiguous()
        v = k.clone()
        write_kv(k.view(16, 1, 1)[:4], v.view(16, 1, 1)[:4], k, v, torch.arange(1, 5), backend=name)
        caches.append((k, v))
    assert all(torch.equal(a, b) for a, b in zip(*caches, strict=True))


def test_so_are_those_that_lie_in_the_other_cache() -> None:
    caches = []
    for name in ("numba", "torch"):
        k, v = torch.arange(32.0).view(2, 4, 4, 1, 1).clone()
        write_kv(v.view(16, 1, 1)[:4], k.view(16, 1, 1)[:4], k, v, torch.arange(1, 5), backend=name)
        caches.append((k, v))
    assert all(torch.equal(a, b) for a, b in zip(*caches, strict=True))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("position", [3, 700])
def test_a_seen_value_that_is_no_number_is_seen_however_spans_are_cut(position: int, value: float) -> None:
    """Its span may weigh nothing beside another: 0 times NaN or infinity is none, as in torch."""
    given = call(1024, heads=1)
    keys, values = given["k_cache"].clone(), given["v_cache"].clone()
    blocks = given["block_tables"][0].long()
    keys[blocks[32:] if position < 512 else blocks[:32]] = 100 * given["query"][0, 0]
    values[blocks[position // 16], position % 16] = value
    for options in ({"backend": "torch"}, {"split_size": 1024}, {"split_size": 512}, {"split_size": 64}):
        arguments: dict[str, Any] = {**given, "k_cache": keys, "v_cache": values, "backend": "numba", **options}
        found: Any = paged_attention(**arguments)
        assert bool(found[0][0, 0].isnan().all())


def test_copiers_look_at_the_memory_that_caches_have_now() -> None:
    caches = [torch.zeros(4, 16, 2, 8) for _ in range(2)]
    copy, pairs = BlockCopier(caches), torch.tensor([[0, 1]])
    caches[0].data = torch.full((4, 16, 2, 8), 7.0)
    caches[0][1:] = 0
    copy(pairs)
    assert bool((caches[0][1] == 7).all())
    caches[0].untyped_storage().resize_(0)
    with pytest.raises(Misuse, match="memory"):
        copy(pairs)


def test_views_whose_memory_holds_the_opposite_are_refused() -> None:
    opposite = torch.complex(torch.ones(3, 2, 4), torch.ones(3, 2, 4)).conj().imag
    with pytest.raises(Misuse, match=r"lses\.is_neg\(\)"):
        merge_attention(torch.ones(3, 2, 4, 8), opposite)
    given = call(16, heads=1)
    del given["return_lse"]
    for name in ("query", "k_cache"):
        with pytest.raises(Misuse, match=rf"{name}\.is_neg\(\)"):
            paged_attention(**{**given, name: torch._neg_view(given[name])})
    prepared = prepare_attention(**given)
    with pytest.raises(Misuse, match=r"query\.is_neg\(\)"):
        prepared(torch._neg_view(given["query"]), given["k_cache"], given["v_cache"])


def test_tensors_without_memory_are_never_followed() -> None:
    """Modes and transformations see an operator; what is freed, or was never there, is refused."""
    outs, lses = torch.ones(2, 3, 4, 8), torch.zeros(2, 3, 4)
    given = call(64, heads=1)
    expected = paged_attention(**given)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert type(merge_attention(outs, lses)[0]) is FakeTensor
        assert type(paged_attention(**given)[0]) is FakeTensor
    assert torch.equal(torch.func.functionalize(merge_attention)(outs, lses)[0], outs[0])
    found = torch.func.functionalize(lambda query: paged_attention(**{**given, "query": query}))(given["query"])
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    with pytest.raises(Misuse, match="memory"):
        merge_attention(outs, torch._efficientzerotensor((2, 3, 4)), backend="numba")
    outs.untyped_storage().resize_(0)
    with pytest.raises(Misuse, match="memory"):
        merge_attention(outs, lses, backend="numba")


def test_tensors_of_other_layouts_and_names_that_are_none_are_refused() -> None:
    outs, lses = torch.ones(2, 3, 4, 8), torch.zeros(2, 3, 4)
    with pytest.raises(Misuse, match=r"outs\.layout"):
        merge_attention(outs.to_sparse(), lses)
    for name in ("", 0, False, ["torch"]):
        with pytest.raises(Misuse, match="backend"):
            merge_attention(outs, lses, backend=name)  # type: ignore[arg-type]  # on purpose


def test_a_split_may_be_longer_than_any_request() -> None:
    assert same_bits(both(**call(600, split_size=2**70))[0][0], both(**call(600, split_size=2**30))[0][0])
