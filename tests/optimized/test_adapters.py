"""The calls that people already make: each means what its own documentation says, or is refused by name."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pagedkv.optimized import gather_kv, paged_attention
from pagedkv.optimized.attention import adapters
from pagedkv.optimized.attention.adapters import (
    flash_attn_varlen_func, flash_attn_with_kvcache, mask_of_window, split_size_of,
)  # fmt: skip
from pagedkv.spec import Misuse
from tests.optimized.torch_bound import bound_of, is_close

BATCH, HEADS, KV_HEADS, DIM, SIZE, WIDTH = 3, 4, 2, 8, 4, 3
WINDOWS = [(-1, -1), (0, 0), (2, 0), (-1, 0), (2, 2), (None, None), (5, 5)]


def cache_arguments(rows: int, seed: int = 0) -> dict[str, Any]:
    """A call of `flash_attn_with_kvcache` with `rows` query rows a request; one request is shorter than its rows."""
    generator = torch.Generator().manual_seed(seed)
    caches = torch.randn(2, 12, SIZE, KV_HEADS, DIM, generator=generator)
    return {
        "q": torch.randn(BATCH, rows, HEADS, DIM, generator=generator),
        "k_cache": caches[0],
        "v_cache": caches[1],
        "cache_seqlens": torch.tensor([7, 2, 5], dtype=torch.int32),
        "block_table": torch.randperm(12, generator=generator, dtype=torch.int32)[: BATCH * WIDTH].view(BATCH, WIDTH),
    }


def dense(q: Tensor, key: Tensor, value: Tensor, seen: Callable[[int, int], bool], bias: Any = None) -> Tensor:
    """Attention by the definition, in float64: `q` (rows, heads, dim), `key` and `value` (n, kv_heads, dim)."""
    out = torch.zeros(*q.shape, dtype=torch.float64)
    for i in range(len(q)):
        visible = [j for j in range(len(key)) if seen(i + len(key) - len(q), j)]
        for head in range(HEADS if visible else 0):
            k, v = (t[visible, head // (HEADS // KV_HEADS)].double() for t in (key, value))
            logits = k @ q[i, head].double() / math.sqrt(DIM)
            if bias is not None:
                logits -= bias[head].double() * torch.tensor([abs(i + len(key) - len(q) - j) for j in visible])
            out[i, head] = logits.softmax(0) @ v
    return out


def flash_mask(causal: bool, window_size: tuple[int | None, int | None]) -> Callable[[int, int], bool]:
    """What FlashAttention documents: i + seqlen_k - seqlen_q - left <= j <= i + seqlen_k - seqlen_q + right."""
    left, right = (math.inf if side in (None, -1) else side for side in window_size)
    right = 0 if causal else right
    return lambda own, j: own - left <= j <= own + right


def varlen(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same call for `flash_attn_varlen_func`, one row a request."""
    return {
        "q": arguments["q"].flatten(0, 1), "k": arguments["k_cache"], "v": arguments["v_cache"],
        "cu_seqlens_q": torch.arange(4, dtype=torch.int32), "seqused_k": arguments["cache_seqlens"],
        "block_table": arguments["block_table"],
    }  # fmt: skip


def contents(arguments: dict[str, Any], request: int, length: int) -> tuple[Tensor, Tensor]:
    """Keys and values of a request."""
    key, value = (gather_kv(arguments[c], arguments["block_table"][request], length) for c in ("k_cache", "v_cache"))
    return key, value


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window_size", WINDOWS)
def test_the_cached_call_sees_what_flash_attention_documents(
    rows: int, causal: bool, window_size: tuple[int | None, int | None]
) -> None:
    arguments = cache_arguments(rows)
    out = flash_attn_with_kvcache(**arguments, causal=causal, window_size=window_size)
    assert isinstance(out, Tensor)
    for r, length in enumerate(arguments["cache_seqlens"].tolist()):
        request = (arguments["q"][r], *contents(arguments, r, length))
        mask = mask_of_window(causal or rows == 1, window_size)._asdict()
        assert is_close(out[r], dense(*request, flash_mask(causal, window_size)), bound_of(*request, **mask))


def test_alibi_falls_on_the_seen_side() -> None:
    arguments, slopes = cache_arguments(3), torch.tensor([0.5, 0.25, 0.125, 1.0])
    out = flash_attn_with_kvcache(**arguments, causal=True, alibi_slopes=slopes)
    request = (arguments["q"][0], *contents(arguments, 0, 7))
    wanted = dense(*request, flash_mask(True, (-1, -1)), slopes)
    assert is_close(torch.as_tensor(out)[0], wanted, bound_of(*request, alibi_slopes=slopes.numpy()))
    # One row is the last position: nothing lies behind it, so the call need not say that it is causal.
    one = cache_arguments(1)
    lax, strict = (flash_attn_with_kvcache(**one, causal=causal, alibi_slopes=slopes) for causal in (False, True))
    assert torch.equal(torch.as_tensor(lax), torch.as_tensor(strict))


def test_new_keys_are_written_behind_the_old_ones_first() -> None:
    arguments = cache_arguments(2)
    key, value = torch.randn(2, BATCH, 2, KV_HEADS, DIM).unbind()
    before = arguments["k_cache"].clone()
    out, lse = flash_attn_with_kvcache(**arguments, k=key, v=value, causal=True, return_softmax_lse=True)
    assert lse.shape == (BATCH, HEADS, 2)
    for r, length in enumerate(arguments["cache_seqlens"].tolist()):
        assert torch.equal(contents(arguments, r, length + 2)[0][length:], key[r])
        assert torch.equal(contents(arguments, r, length + 2)[1][length:], value[r])
    assert int((arguments["k_cache"] != before).any(-1).any(-1).sum()) == BATCH * 2
    after = {**arguments, "cache_seqlens": arguments["cache_seqlens"] + 2}
    assert torch.equal(out, torch.as_tensor(flash_attn_with_kvcache(**after, causal=True)))


def test_new_keys_that_do_not_fit_are_refused_and_nothing_is_written() -> None:
    arguments = cache_arguments(1)
    arguments["cache_seqlens"] = torch.tensor([7, 2, SIZE * WIDTH], dtype=torch.int32)
    before = arguments["k_cache"].clone()
    new = torch.randn(BATCH, 1, KV_HEADS, DIM)
    with pytest.raises(Misuse, match="cache_seqlens"):
        flash_attn_with_kvcache(**arguments, k=new, v=new)
    assert torch.equal(arguments["k_cache"], before)


@pytest.mark.parametrize(
    "wrong",
    [
        {"softcap": -1.0}, {"softmax_scale": math.nan}, {"num_splits": -1}, {"alibi_slopes": torch.zeros(5)},
        {"q": torch.zeros(BATCH, 1, HEADS, DIM, dtype=torch.float64)}, {"q": torch.zeros(BATCH, 1, 3, DIM)},
        {"block_table": torch.full((BATCH, WIDTH), -1, dtype=torch.int32)},
    ],
    ids=str,
)  # fmt: skip
def test_a_call_that_is_refused_has_written_nothing(wrong: dict[str, Any]) -> None:
    arguments = {**cache_arguments(1), **wrong}
    before = [arguments[name].clone() for name in ("k_cache", "v_cache")]
    new = torch.randn(BATCH, 1, KV_HEADS, DIM)
    with pytest.raises(Misuse):
        flash_attn_with_kvcache(**arguments, causal=True, k=new, v=new)
    assert all(torch.equal(arguments[name], old) for name, old in zip(("k_cache", "v_cache"), before, strict=True))


def test_one_length_stands_for_all_and_none_for_the_whole_table() -> None:
    arguments = cache_arguments(1)
    for given_length, length in ((5, 5), (None, SIZE * WIDTH)):
        wanted = flash_attn_with_kvcache(**{**arguments, "cache_seqlens": torch.full((BATCH,), length).int()})
        got = flash_attn_with_kvcache(**{**arguments, "cache_seqlens": given_length})
        assert torch.equal(torch.as_tensor(got), torch.as_tensor(wanted))


@given(st.integers(1, 40), st.integers(0, 5000))
def test_so_many_splits_hold_the_whole_table_and_fewer_would_not(num_splits: int, capacity: int) -> None:
    size = split_size_of(num_splits, capacity)
    assert size is not None
    assert size % 16 == 0
    assert num_splits * size >= capacity
    assert num_splits * (size - 16) < max(1, capacity)


def test_the_number_of_splits_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def recorder(*args: Any, **options: Any) -> Any:
        sizes.append(options["split_size"])
        return paged_attention(*args, **options)

    monkeypatch.setattr(adapters, "paged_attention", recorder)
    for num_splits in (0, 1, 3):
        flash_attn_with_kvcache(
            **{**cache_arguments(1), "block_table": torch.zeros(BATCH, 24).int()}, num_splits=num_splits
        )
    assert sizes == [None, 96, 32]


@pytest.mark.parametrize("causal", [False, True])
def test_the_varlen_call_equals_the_cached_call(causal: bool) -> None:
    arguments = cache_arguments(3)
    out, lse = flash_attn_with_kvcache(**arguments, causal=causal, window_size=(3, 3), return_softmax_lse=True)
    given_out = torch.empty(BATCH * 3, HEADS, DIM)
    got, got_lse = flash_attn_varlen_func(
        q=arguments["q"].flatten(0, 1), k=arguments["k_cache"], v=arguments["v_cache"], max_seqlen_q=3,
        cu_seqlens_q=torch.tensor([0, 3, 6, 9], dtype=torch.int32), max_seqlen_k=7, causal=causal,
        seqused_k=arguments["cache_seqlens"], block_table=arguments["block_table"], window_size=[3, 3],
        return_softmax_lse=True, out=given_out, fa_version=3, scheduler_metadata=None, dropout_p=0.0,
    )  # fmt: skip
    assert got is given_out
    assert torch.equal(got.view_as(out), out)
    assert torch.equal(got_lse.T.reshape(BATCH, 3, HEADS).transpose(1, 2), lse)


def test_sinks_of_any_float_dtype_take_their_share() -> None:
    arguments = cache_arguments(1)
    call = {**varlen(arguments), "causal": True}
    sinks = torch.tensor([1, -2, 0, 3], dtype=torch.bfloat16)
    out = torch.as_tensor(flash_attn_varlen_func(**call, s_aux=sinks))
    for r, length in enumerate(arguments["cache_seqlens"].tolist()):
        exact = bound_of(arguments["q"][r], *contents(arguments, r, length), sinks=sinks.double().numpy())
        assert is_close(out[r : r + 1], torch.from_numpy(exact.out), exact)


@given(st.booleans(), st.integers(-1, 4), st.integers(-1, 4))
def test_a_window_is_taken_over_exactly_or_refused(causal: bool, left: int, right: int) -> None:
    """Whatever is answered sees the same pairs of a row's own position and another, both below 12."""
    if not causal and right not in (0, left):
        with pytest.raises(Misuse, match="window_size"):
            mask_of_window(causal, (left, right))
        return
    mask = mask_of_window(causal, (left, right))
    theirs = flash_mask(causal, (left, right))
    reach = math.inf if mask.window is None else mask.window
    for own in range(12):
        for j in range(12):
            assert theirs(own, j) == (abs(own - j) < reach and (j <= own or not mask.causal))


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("rotary_cos", {"rotary_cos": torch.ones(4, 4)}),
    ("rotary_sin", {"rotary_sin": torch.ones(4, 4)}),
    ("cache_batch_idx", {"cache_batch_idx": torch.zeros(3, dtype=torch.int32)}),
    ("cache_leftpad", {"cache_leftpad": torch.zeros(3, dtype=torch.int32)}),
    ("block_table", {"block_table": None}),
    ("block_table.shape", {"block_table": torch.zeros(2, 3, dtype=torch.int32)}),
    ("block_table.dtype", {"block_table": torch.zeros(3, 3, dtype=torch.int64)}),
    ("q.shape", {"q": torch.zeros(3, 4, 8)}),
    ("k", {"v": torch.zeros(3, 1, 2, 8)}),
    ("v", {"k": torch.zeros(3, 1, 2, 8)}),
    ("k.shape", {"k": torch.zeros(2, 1, 2, 8), "v": torch.zeros(3, 1, 2, 8)}),
    ("v.shape", {"k": torch.zeros(3, 1, 2, 8), "v": torch.zeros(3, 2, 2, 8)}),
    ("cache_seqlens", {"cache_seqlens": SIZE * WIDTH + 1}),
    ("cache_seqlens", {"cache_seqlens": -1}),
    ("cache_seqlens.dtype", {"cache_seqlens": torch.zeros(3, dtype=torch.int64)}),
    ("window_size", {"window_size": (1, 2)}),
    ("window_size", {"window_size": (1,)}),
    ("window_size", {"window_size": (-2, 0)}),
    ("window_size", {"window_size": 4}),
    ("causal", {"causal": 1}),
    ("num_splits", {"num_splits": -1}),
    ("alibi_slopes", {"alibi_slopes": torch.zeros(4)}),
    ("alibi_slopes.shape", {"alibi_slopes": torch.zeros(3, 4), "causal": True}),
]


@pytest.mark.parametrize(("argument", "options"), REFUSED, ids=[f"{i}, {a}" for i, (a, _) in enumerate(REFUSED)])
def test_what_is_not_supported_is_named(argument: str, options: dict[str, Any]) -> None:
    with pytest.raises(Misuse) as caught:
        flash_attn_with_kvcache(**{**cache_arguments(2), **options})
    assert caught.value.argument == argument


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("dropout_p", 0.1), ("return_attn_probs", True), ("cp_world_size", 2), ("cp_rank", 1), ("q_v", torch.ones(1)),
        ("cu_seqlens_k", torch.ones(1)), ("window_size", (1, 2)), ("s_aux", 1.0),
        ("no_such_argument", 1), ("alibi_slopes", torch.zeros(4)), ("block_table", None),
    ],
)  # fmt: skip
def test_what_the_varlen_call_does_not_support_is_named(argument: str, value: object) -> None:
    arguments = cache_arguments(1)
    call = {**varlen(arguments), argument: value}
    with pytest.raises(Misuse) as caught:
        flash_attn_varlen_func(**call)
    assert caught.value.argument == argument


def test_descales_are_of_fp8_caches_alone_and_these_are_refused() -> None:
    arguments = cache_arguments(1)
    call = varlen(arguments)
    descales: dict[str, Any] = {
        name: torch.full((), 7.0).expand(BATCH, KV_HEADS) for name in ("q_descale", "k_descale", "v_descale")
    }
    out, plain = (torch.as_tensor(flash_attn_varlen_func(**call, **more)) for more in (descales, {}))
    assert torch.equal(out, plain)
    with pytest.raises(Misuse, match=r"k\.dtype"):
        flash_attn_varlen_func(**{**call, "k": call["k"].to(torch.float8_e4m3fn)}, **descales)


def test_neither_call_looks_at_a_device() -> None:
    """On meta nothing can be looked at, and no step that needs values succeeds."""
    arguments = {k: v.to("meta") for k, v in cache_arguments(2).items()}
    new = torch.empty(BATCH, 2, KV_HEADS, DIM, device="meta")
    out, lse = flash_attn_with_kvcache(**arguments, k=new, v=new, causal=True, return_softmax_lse=True)
    assert out.shape == (BATCH, 2, HEADS, DIM)
    assert lse.shape == (BATCH, HEADS, 2)


def test_the_cached_call_compiles_whole() -> None:
    torch.compiler.reset()
    arguments, twin = cache_arguments(2), cache_arguments(2)
    new = torch.randn(BATCH, 2, KV_HEADS, DIM)
    compiled = torch.compile(flash_attn_with_kvcache, fullgraph=True, backend="aot_eager")
    expected = flash_attn_with_kvcache(**twin, k=new, v=new, causal=True)
    got = compiled(**arguments, k=new, v=new, causal=True)
    assert torch.equal(torch.as_tensor(got), torch.as_tensor(expected))
    assert torch.equal(arguments["k_cache"], twin["k_cache"])
    torch.compiler.reset()
