"""Write, copy, gather and merge: bytes are exact, bad input names its argument, and what is refused changes nothing."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pagedkv.optimized import copy_blocks, gather_kv, merge_attention, paged_attention, write_kv
from pagedkv.spec import Misuse


def pool(blocks: int = 4) -> Tensor:
    """(blocks, 2, 1, 8), every element another."""
    return torch.arange(16.0 * blocks).view(blocks, 2, 1, 8)


def table(*blocks: int) -> Tensor:
    return torch.tensor(blocks, dtype=torch.int32)


ROWS = torch.full((2, 1, 8), -1.0)
SLOTS = torch.tensor([0, 1])
PAIRS = torch.tensor([[0, 1]])
TABLES, ENDS = torch.tensor([[0, 1, 2], [3, 2, -1]], dtype=torch.int32), torch.tensor([0, 4, 6], dtype=torch.int32)
PARTS, LSES = torch.ones(2, 1, 1, 4), torch.zeros(2, 1, 1)

BAD: list[tuple[str, Callable[[Tensor], Any]]] = [
    ("slot_mapping", lambda c: write_kv(ROWS, ROWS, c, c, [0, 1])),  # type: ignore[arg-type]  # on purpose
    ("slot_mapping.shape", lambda c: write_kv(ROWS, ROWS, c, c, SLOTS[:, None])),
    ("slot_mapping.shape", lambda c: write_kv(ROWS, ROWS, c, c, torch.tensor(3))),
    ("slot_mapping.dtype", lambda c: write_kv(ROWS, ROWS, c, c, SLOTS.int())),
    ("slot_mapping", lambda c: write_kv(ROWS, ROWS, c, c, torch.tensor([0, 8]))),
    ("slot_mapping", lambda c: write_kv(ROWS, ROWS, c, c, torch.tensor([1, 1]))),
    ("key.shape", lambda c: write_kv(ROWS[0], ROWS, c, c, SLOTS)),
    ("value.shape", lambda c: write_kv(ROWS, ROWS[:1], c, c, SLOTS)),
    ("key.dtype", lambda c: write_kv(ROWS.half(), ROWS, c, c, SLOTS)),
    ("value.device", lambda c: write_kv(ROWS, ROWS.to("meta"), c, c, SLOTS)),
    ("k_cache", lambda c: write_kv(ROWS, ROWS, None, c, SLOTS)),  # type: ignore[arg-type]  # on purpose
    ("v_cache.dtype", lambda c: write_kv(ROWS, ROWS, c, c.half(), SLOTS)),
    ("caches", lambda c: copy_blocks(c, PAIRS)),  # type: ignore[arg-type]  # mypy knows; a tensor is easily passed
    ("caches[1].shape", lambda c: copy_blocks([c, pool(2)], PAIRS)),
    ("pairs", lambda c: copy_blocks([c], [[0, 1]])),  # type: ignore[arg-type]  # on purpose
    ("pairs.shape", lambda c: copy_blocks([c], PAIRS[0])),
    ("pairs.dtype", lambda c: copy_blocks([c], PAIRS.float())),
    ("pairs", lambda c: copy_blocks([c, c.clone()], torch.tensor([[0, 2], [1, 4]]))),
    ("pairs", lambda c: copy_blocks([c], torch.tensor([[0, 1], [1, 2]]))),
    ("pairs", lambda c: copy_blocks([c], torch.tensor([[0, -1]]))),
    ("block_tables", lambda c: gather_kv(c, [0, 1], 3)),  # type: ignore[arg-type]  # on purpose
    ("block_tables", lambda c: gather_kv(c, table(0, 9), 3)),
    ("block_tables", lambda c: gather_kv(c, table(-1, 1), 3)),
    ("block_tables", lambda c: gather_kv(c, TABLES, ENDS, starts=table(0, 4), total=9)),
    ("block_tables.dtype", lambda c: gather_kv(c, TABLES.long(), ENDS, total=9)),
    ("block_tables.shape", lambda c: gather_kv(c, TABLES, 3)),
    ("block_tables.shape", lambda c: gather_kv(c, table(0, 1), ENDS, total=9)),
    ("cu_seqlens", lambda c: gather_kv(c, table(0, 1), 5)),
    ("cu_seqlens", lambda c: gather_kv(c, table(0, 1), -1)),
    ("cu_seqlens", lambda c: gather_kv(c, table(0, 1), True)),
    ("cu_seqlens", lambda c: gather_kv(c, TABLES, ENDS, total=4)),
    ("cu_seqlens", lambda c: gather_kv(c, TABLES, table(0, 7, 9), total=9)),
    ("cu_seqlens.shape", lambda c: gather_kv(c, TABLES, table(0, 5), total=5)),
    ("cu_seqlens.dtype", lambda c: gather_kv(c, TABLES, ENDS.long(), total=9)),
    ("starts", lambda c: gather_kv(c, TABLES, ENDS, starts=table(4, 0), total=9)),
    ("starts.shape", lambda c: gather_kv(c, TABLES, ENDS, starts=table(1), total=9)),
    ("total", lambda c: gather_kv(c, TABLES, ENDS)),
    ("total", lambda c: gather_kv(c, TABLES, ENDS, total=-1)),
    ("total", lambda c: gather_kv(c, table(0, 1), 3, total=3)),
    ("out", lambda c: gather_kv(c, TABLES, ENDS, out=c.flatten(0, 1))),
    ("out", lambda c: gather_kv(c, TABLES, ENDS, out=[1.0])),  # type: ignore[arg-type]  # on purpose
    ("out.shape", lambda c: gather_kv(c, TABLES, ENDS, out=torch.zeros(9, 8))),
    ("out.shape", lambda c: gather_kv(c, TABLES, ENDS, total=8, out=torch.zeros(9, 1, 8))),
    ("out.dtype", lambda c: gather_kv(c, TABLES, ENDS, out=torch.zeros(9, 1, 8).half())),
    ("out.stride()", lambda c: gather_kv(c, TABLES, ENDS, out=torch.zeros(1, 1, 8).expand(9, 1, 8))),
    ("cache.shape", lambda c: gather_kv(c[:, :0], table(0, 1), 0)),
    ("lses.shape", lambda c: merge_attention(PARTS, LSES[0])),
    ("lses.dtype", lambda c: merge_attention(PARTS, LSES.double())),
    ("outs.shape", lambda c: merge_attention(PARTS[:0], LSES[:0])),
    ("outs.dtype", lambda c: merge_attention(PARTS.int(), LSES)),
    ("outs", lambda c: merge_attention(None, LSES)),  # type: ignore[arg-type]  # on purpose
]


@pytest.mark.parametrize(("argument", "call"), BAD)
def test_bad_input_names_the_argument_and_changes_nothing(argument: str, call: Callable[[Tensor], Any]) -> None:
    cache = pool()
    with pytest.raises(Misuse) as caught:
        call(cache)
    assert caught.value.argument == argument
    assert torch.equal(cache, pool())


@pytest.mark.parametrize(("argument", "call"), [bad for bad in BAD if "slot" in bad[0] or "key" in bad[0]])
def test_a_legal_write_before_it_hides_no_bad_one(argument: str, call: Callable[[Tensor], Any]) -> None:
    cache = pool()
    write_kv(ROWS, ROWS, cache, cache, SLOTS)
    with pytest.raises(Misuse) as caught:
        call(pool())
    assert caught.value.argument == argument


def test_a_write_of_rows_with_a_gradient_is_legal_only_where_none_is_asked_for() -> None:
    rows = ROWS.clone().requires_grad_()
    write_kv(ROWS, ROWS, pool(), pool(), SLOTS)
    with torch.no_grad():
        write_kv(rows, rows, pool(), pool(), SLOTS)
    with pytest.raises(Misuse, match="no gradient"):
        write_kv(rows, rows, pool(), pool(), SLOTS)


OPTIONS: list[tuple[str, Any]] = [
    ("scale", math.nan), ("scale", "x"), ("window", 2.5), ("window", True), ("window", "3"), ("softcap", math.nan),
    ("softcap", math.inf), ("softcap", None), ("split_size", 16.0), ("split_size", -16), ("causal", None),
    ("alibi_slopes", [1.0]), ("sinks", 3), ("out", 3), ("cu_seqlens_q", [0, 1]), ("backend", 3),
]  # fmt: skip


def launch(**options: Any) -> Any:
    """Two requests of lengths 3 and 4, one query head."""
    tensors = {"query": ROWS, "k_cache": pool(), "v_cache": pool(), "block_tables": torch.stack([table(0, 1)] * 2)}
    return paged_attention(**{**tensors, "seq_lens": table(3, 4), **options})


@pytest.mark.parametrize(("name", "value"), OPTIONS)
def test_bad_options_are_named(name: str, value: Any) -> None:
    with pytest.raises(Misuse) as caught:
        launch(**{name: value})
    assert caught.value.argument == name


@pytest.mark.parametrize("name", ["query", "k_cache", "v_cache", "block_tables", "seq_lens"])
def test_what_is_no_tensor_is_named(name: str) -> None:
    with pytest.raises(Misuse, match=r"torch\.Tensor, not list") as caught:
        launch(**{name: [1]})
    assert caught.value.argument == name


@pytest.mark.parametrize("name", ["block_tables", "seq_lens", "cu_seqlens_q"])
def test_a_later_request_that_is_wrong_leaves_the_output_alone(name: str) -> None:
    out = torch.full((2, 1, 8), 7.0)
    wrong = {
        "block_tables": torch.stack([table(0, 1), table(0, 4)]),
        "seq_lens": table(3, 5),
        "cu_seqlens_q": table(0, 1, 3),
    }
    with pytest.raises(Misuse):
        launch(out=out, **{name: wrong[name]})
    assert bool((out == 7).all())


@given(st.permutations(range(8)), st.integers(0, 8), st.sampled_from(["float32", "float16", "bfloat16"]))
def test_written_bytes_are_the_rounded_rows_and_all_others_stay(slots: list[int], skipped: int, dtype: str) -> None:
    kind = getattr(torch, dtype)
    before = pool().to(kind)
    keys, values = before.clone(), -before
    rows = torch.randn(8, 1, 8) * 3
    mapping = torch.tensor(slots)
    mapping[:skipped] = -1 - mapping[:skipped]
    write_kv(rows, 2 * rows, keys, values, mapping)
    for token, slot in enumerate(slots):
        at = divmod(slot, 2)
        kept = token >= skipped
        assert torch.equal(keys[at], rows[token].to(kind) if kept else before[at])
        assert torch.equal(values[at], (2 * rows[token]).to(kind) if kept else -before[at])


@given(st.permutations(range(6)), st.integers(0, 3))
def test_a_copy_moves_the_bytes_of_whole_blocks(blocks: list[int], count: int) -> None:
    bits = torch.randint(-(2**31), 2**31 - 1, (6, 2, 1, 8), dtype=torch.int32)  # NaN among them
    caches = [bits.view(torch.float32).clone(), bits.flip(0).view(torch.float32).clone()]
    before = [cache.view(torch.int32).clone() for cache in caches]
    sources, destinations = blocks[:count], blocks[3 : 3 + count]
    copy_blocks(caches, torch.tensor([sources, destinations], dtype=torch.int64).T.reshape(-1, 2))
    for cache, was in zip(caches, before, strict=True):
        origin = [sources[destinations.index(b)] if b in destinations else b for b in range(6)]
        assert torch.equal(cache.view(torch.int32), was[origin])


def test_a_merge_gives_a_part_that_saw_nothing_no_weight() -> None:
    outs = torch.stack([torch.full((1, 1, 4), math.nan), torch.ones(1, 1, 4)])
    merged, lse = merge_attention(outs, torch.tensor([-math.inf, 2.0]).view(2, 1, 1))
    assert torch.equal(merged, torch.ones(1, 1, 4))
    assert lse.item() == 2.0
    nothing, lse = merge_attention(outs, torch.full((2, 1, 1), -math.inf))
    assert not nothing.any()
    assert lse.item() == -math.inf
