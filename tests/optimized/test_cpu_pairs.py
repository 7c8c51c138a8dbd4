"""bfloat16 on the CPU, in pairs: what a row does not see stays out of it, also where it is half of a pair."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pagedkv.conformance.attention import Configuration, run
from pagedkv.optimized import paged_attention, write_kv
from pagedkv.optimized.attention.debug import check_slots
from pagedkv.optimized.attention.subject import OptimizedAttention
from pagedkv.optimized.cpu import backend
from pagedkv.spec import Misuse
from tests.optimized.cpu_pairs import pairs_anywhere
from tests.optimized.gather_laws import same_bits

DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def test_pairs_keep_every_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where this processor would not use them."""
    monkeypatch.setattr(backend, "in_pairs", pairs_anywhere)
    only = [Configuration("bfloat16", ("window", "softcap", "alibi", "sinks"))]
    report = run(OptimizedAttention(backend="numba"), seed=1, size="tiny", only=only)
    assert report.ok, report.lines()


def attend(rows: int, caches: tuple[Tensor, Tensor], length: int, window: int | None) -> tuple[Tensor, ...]:
    """The last `rows` tokens of a request, by the compiled loops."""
    generator = torch.Generator().manual_seed(length)
    query = torch.randn(rows, 2, 16, generator=generator).to(caches[0].dtype)
    tables = torch.arange(len(caches[0])).int()[None]
    found: Any = paged_attention(
        query, *caches, tables, torch.tensor([length], dtype=torch.int32), window=window, split_size=32,
        cu_seqlens_q=torch.tensor([0, rows], dtype=torch.int32), return_lse=True, backend="numba",
    )  # fmt: skip
    return tuple(found)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_what_a_row_does_not_see_takes_no_part(dtype: torch.dtype, data: st.DataObject) -> None:
    """A NaN at any position changes no bit of a row that does not see it, and all of one that does."""
    length = data.draw(st.integers(1, 90))
    rows = data.draw(st.integers(1, min(length, 20)))
    window = data.draw(st.none() | st.integers(1, 40))
    position = data.draw(st.integers(0, 95))
    caches = torch.randn(2, 12, 8, 1, 16, generator=torch.Generator().manual_seed(rows)).to(dtype)
    clean = attend(rows, (caches[0], caches[1]), length, window)
    caches[:, position // 8, position % 8] = torch.nan
    broken = attend(rows, (caches[0], caches[1]), length, window)
    for row in range(rows):
        own = length - rows + row
        if position <= own and (window is None or position > own - window):
            assert bool(broken[0][row].isnan().all())
        else:
            assert all(same_bits(a[row], b[row]) for a, b in zip(clean, broken, strict=True))


@settings(deadline=None, max_examples=200)
@given(slots=st.lists(st.integers(-2, 13), min_size=1, max_size=8), blocks=st.sampled_from([3, 300]))
def test_slots_are_looked_at_in_two_ways_that_agree(slots: list[int], blocks: int) -> None:
    """Marks where slots are many, and an order where they are few."""
    given, cache, rows = torch.tensor(slots), torch.zeros(2, blocks, 4, 1, 8), torch.ones(len(slots), 1, 8)
    kept = [slot for slot in slots if slot >= 0]
    if len(set(kept)) < len(kept) or max(kept, default=0) >= 4 * blocks:
        with pytest.raises(Misuse) as expected:
            check_slots(given, 4 * blocks)
        with pytest.raises(Misuse) as raised:
            write_kv(rows, rows, cache[0], cache[1], given, backend="numba")
        assert str(raised.value) == str(expected.value)
        assert not bool(cache.any())
        return
    write_kv(rows, rows, cache[0], cache[1], given, backend="numba")
    for each in cache:
        assert each.view(-1, 8).all(1).nonzero().flatten().tolist() == sorted(kept)
