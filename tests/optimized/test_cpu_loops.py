"""Loops of the CPU backend one at a time: what is asked of memory, functions of numbers, rounding."""

import math
import platform
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.optimized import write_kv
from pagedkv.optimized.attention.subject import numba_rounding
from pagedkv.optimized.cpu import support, vector_code
from pagedkv.optimized.cpu.prefetching import prefetch_some
from pagedkv.optimized.cpu.backend import in_pairs
from pagedkv.optimized.cpu.compiler import compiled
from pagedkv.optimized.cpu.places import WHOLE_TILE, Following, look_ahead
from pagedkv.optimized.cpu.records import power_of_2
from pagedkv.optimized.cpu.rows import tanh
from pagedkv.optimized.cpu.simd import first_of, splat
from pagedkv.optimized.cpu.storage import BFLOAT16, FLOAT32
from pagedkv.optimized.cpu.work import TILE, Item, Work
from pagedkv.spec.attention_subject import RoundingModel


class Layout(NamedTuple):
    """A cache of one tile of tokens here, and one there."""

    heads: int
    dim: int
    head_major: bool
    kind: int = FLOAT32

    def work(self) -> Work:
        size = self.dim * (4 if self.kind == FLOAT32 else 2)
        token, head = (size, size * TILE) if self.head_major else (size * self.heads, size)
        fields = dict.fromkeys(Work._fields, 0)
        return Work(**{  # type: ignore[arg-type]  # numbers all
            **fields, "kind": self.kind, "head_dim": self.dim, "value_dim": self.dim, "in_pairs": False, "scale": 1.0,
            "softcap": 0.0, "keys_token": token, "values_token": token, "keys_head": head, "values_head": head,
        })  # fmt: skip


@compiled
def asked(work: Any, item: Any, h: int, following: Any, here: int, there: int, coming: int) -> Any:
    """What is asked for at one go after the other."""
    ahead = look_ahead(work, item, h, following, here, there, coming)
    first, turns = (ahead.next, ahead.end, ahead.size), 0
    while ahead.next < ahead.end:
        ahead = prefetch_some(ahead)
        turns += 1
    return first, turns


@pytest.mark.parametrize("head_major", [False, True])
@pytest.mark.parametrize(
    ("heads", "dim", "kind"), [(8, 128, BFLOAT16), (8, 128, FLOAT32), (1, 64, FLOAT32), (5, 8, BFLOAT16)]
)
def test_each_row_of_what_comes_next_is_asked_for_once_and_in_order(
    heads: int, dim: int, kind: int, head_major: bool
) -> None:
    """While the heads of a small tile are computed, all rows of the next; of a large one, those of the next head."""
    work, memory = Layout(heads, dim, head_major, kind).work(), np.zeros(1, np.uint8)
    places = memory.ctypes.data + work.keys_token * np.arange(TILE)  # prefetching what is not there does no harm
    here, there, coming = (np.concatenate([places + k, places + k + 2**21]) for k in (0, 2**22, 0))
    size = dim * (4 if kind == FLOAT32 else 2)
    whole, found = heads * TILE * 2 * size <= WHOLE_TILE, list[int]()
    for h in range(heads):
        given = Item(0, 0, 1, 0, 0, TILE, 0, heads, 0), h, Following(0, 0, heads)
        (first, end, row), turns = asked(work, *given, here.ctypes.data, there.ctypes.data, coming.ctypes.data)
        rows = coming[: (end - first) // 8].tolist()
        assert (len(rows), row) == (2 * TILE, size)
        assert 0 < turns <= 2 * TILE
        assert all(half == sorted(half) for half in (rows[:TILE], rows[TILE:]))
        if not whole and h + 1 < heads:
            assert set(rows) == {int(place) + (h + 1) * work.keys_head for place in here}
        else:
            found += rows
    expected = [int(place) + head * work.keys_head for place in there for head in range(heads if whole else 1)]
    assert sorted(found) == sorted(expected)


def test_nothing_is_asked_for_where_nothing_follows() -> None:
    work, room = Layout(1, 8, head_major=False).work(), np.zeros(4 * TILE, np.int64)
    (first, end, _), turns = asked(
        work, Item(0, 0, 1, 0, 0, 9, 0, 1, 0), 0, Following(7, 0, 0), *[room.ctypes.data] * 3
    )
    assert (end - first, turns) == (0, 0)


@given(st.floats(-126, 0, width=32))
def test_powers_of_2_are_off_by_less_than_they_say(x: float) -> None:
    exact = 2.0 ** float(np.float32(x))
    assert abs(float(power_of_2(np.float32(x))) - exact) < 2.0**-23 * exact


def test_powers_of_2_at_whole_numbers_are_exact_and_end_in_0() -> None:
    assert [float(power_of_2(np.float32(-n))) for n in range(127)] == [2.0**-n for n in range(127)]
    assert [float(power_of_2(np.float32(x))) for x in (-127.0, -1e30, -math.inf)] == [0.0] * 3
    assert math.isnan(power_of_2(np.float32(math.nan)))


@compiled
def tanh_of(x: np.float32) -> np.float32:
    """As vectors have it."""
    value: np.float32 = first_of(tanh(splat(x)))
    return value


@given(st.floats(-20, 20, width=32))
def test_tanh_is_near(x: float) -> None:
    exact = math.tanh(float(np.float32(x)))
    assert abs(float(tanh_of(np.float32(x))) - exact) <= 4 * 2.0**-24 * abs(exact) + 2.0**-149


def test_how_the_loops_round_is_what_the_bound_is_told() -> None:
    assert numba_rounding("float32", 128, 4096, 512) == RoundingModel(tile=32, num_tiles=129)
    assert numba_rounding("float16", 128, 100, 512) == RoundingModel(tile=32, num_tiles=6)
    weights = 2.0**-8 if in_pairs(torch.bfloat16, 128) else 0.0
    assert numba_rounding("bfloat16", 128, 1, 64) == RoundingModel(tile=32, num_tiles=3, u_weights=weights)
    assert numba_rounding("bfloat16", 33, 1, 64).u_weights == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_written_rounds_as_torch_does(dtype: torch.dtype) -> None:
    """Every sign, exponent and the first bits of the rest, NaN of any payload among them."""
    bits = torch.arange(0, 2**32, 2**14 - 1, dtype=torch.int64)
    numbers = bits.to(torch.int32).view(torch.float32)
    rows = numbers[: len(numbers) // 64 * 64].view(-1, 1, 64)
    k, v = torch.zeros(2, 1, len(rows), 1, 64, dtype=dtype)
    write_kv(rows, -rows, k, v, torch.arange(len(rows)), backend="numba")
    for found, given_rows in ((k[0], rows), (v[0], -rows)):
        expected = given_rows.to(dtype)
        assert torch.equal(found.isnan(), expected.isnan())
        assert torch.equal(found.nan_to_num().view(torch.int16), expected.nan_to_num().view(torch.int16))


@pytest.mark.parametrize(
    ("machine", "has", "said"),
    [
        ("x86_64", {"avx2", "fma", "f16c", "sse2"}, None), ("AMD64", {"avx2", "f16c"}, "fma in the processor"),
        ("x86_64", {"sse2"}, "avx2, f16c, fma in the processor"), ("arm64", {"neon"}, None),
        ("riscv64", {"avx2"}, "x86-64 or aarch64 (it is riscv64)"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(
    machine: str, has: set[str], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(vector_code, "processor", lambda: frozenset(has))
    found = support.missing.__wrapped__()
    assert found is None if said is None else said in str(found)
