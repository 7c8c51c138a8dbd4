"""Debug mode: what is looked at is what the laws say, on any device the same, and at the price of one transfer."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from pagedkv.optimized import copy_blocks, gather_kv, paged_attention, write_kv
from pagedkv.optimized.attention import attend, debug, gathering, moves
from pagedkv.optimized.attention.arguments import AttentionCall, Mask
from pagedkv.optimized.attention.torch_backend import TorchBackend
from pagedkv.spec import Misuse

from tests.conformance.mutants.mutation import mutated_module

BLOCKS, SIZE, WIDTH = 5, 3, 4
"""Of the pool, and the columns of the tables."""


@pytest.fixture(params=["as arrays", "as tensors"], autouse=True)
def _form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the CPU, and as on a device."""
    if request.param == "as tensors":
        monkeypatch.setattr(debug, "array_of", lambda tensor: tensor)


def misuse(check: Callable[[], Any]) -> str | None:
    """The argument that it names."""
    try:
        check()
    except Misuse as error:
        return error.argument
    return None


def int32(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


numbers = st.sampled_from([-(2**62), -2, -1, 0, 1, 2, 3, 4, 5, 6, 14, 15, 2**31, 2**61])
small = st.sampled_from([-(2**31), -7, -1, 0, 1, 2, 3, 4, 5, 6, 12, 13, 2**31 - 1])
"""Of 32 bits; what is legal, what is one too much, and the ends of the format."""


@given(st.lists(numbers, max_size=5))
def test_slots_are_distinct_and_inside(slots: list[int]) -> None:
    kept = [slot for slot in slots if slot >= 0]
    legal = len(set(kept)) == len(kept) and all(slot < 15 for slot in kept)
    found = misuse(lambda: debug.check_slots(torch.tensor(slots, dtype=torch.int64), 15))
    assert found == (None if legal else "slot_mapping")


@example([(-(2**31), 4), (2, 0)], True, torch.int32)  # twice the first source is 0 in 32 bits
@example([(-(2**63), 4), (2, 0)], True, torch.int64)
@given(st.lists(st.tuples(numbers, numbers), max_size=4), st.booleans(), st.sampled_from([torch.int32, torch.int64]))
def test_pairs_are_blocks_that_do_not_get_in_each_others_way(
    pairs: list[tuple[int, int]], apart: bool, dtype: torch.dtype
) -> None:
    limit = torch.iinfo(dtype)
    pairs = [(max(limit.min, min(limit.max, a)), max(limit.min, min(limit.max, b))) for a, b in pairs]
    kept = [pair for pair in pairs if pair[0] >= 0]
    targets = [target for _, target in kept]
    legal = all(source < BLOCKS and 0 <= target < BLOCKS + 1 for source, target in kept)
    legal = legal and len(set(targets)) == len(targets)
    legal = legal and not (apart and {source for source, _ in kept} & set(targets))
    tensor = torch.tensor(pairs, dtype=dtype).reshape(-1, 2)
    found = misuse(lambda: debug.check_pairs(tensor, BLOCKS, BLOCKS + 1, apart=apart))
    assert found == (None if legal else "pairs")


def call(
    tables: Tensor, lengths: Tensor, cu_seqlens: Tensor | None, window: int | None = None, total: int = 9
) -> AttentionCall:
    caches, query = torch.zeros(2, BLOCKS, SIZE, 1, 8), torch.zeros(total, 1, 8)
    mask = Mask(1.0, True, window, 0.0, None, None)
    lse = torch.zeros(total, 1)
    return AttentionCall(query, caches[0], caches[1], tables, lengths, cu_seqlens, mask, query.clone(), lse, 512)


requests = st.lists(st.tuples(small, small, st.lists(small, min_size=WIDTH, max_size=WIDTH)), min_size=1, max_size=3)
mostly = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 3), st.lists(st.integers(-1, 5), min_size=WIDTH, max_size=WIDTH)),
    min_size=1,
    max_size=3,
)


@given(requests | mostly, st.sampled_from([None, 1, 2, 7]), st.booleans())
def test_a_batch_is_legal_where_positions_are_seen(batch: list[Any], window: int | None, decode: bool) -> None:
    lengths, counts, tables = (list(part) for part in zip(*batch, strict=True))
    ends = [0]
    for count in [1] * len(counts) if decode else counts:
        ends.append(max(-(2**31), min(2**31 - 1, ends[-1] + count)))
    expected = None
    if not decode and (any(a > b for a, b in pairwise(ends)) or ends[-1] > 9):
        expected = "cu_seqlens_q"
    elif any(not 0 <= length <= WIDTH * SIZE for length in lengths):
        expected = "seq_lens"
    else:
        for length, begin, end, table in zip(lengths, ends, ends[1:], tables, strict=False):
            first = 0 if window is None else max(0, length - (end - begin) - window + 1)
            seen = range(first, length) if end > begin else ()
            if any(not 0 <= table[position // SIZE] < BLOCKS for position in seen):
                expected = "block_tables"
    cu_seqlens = None if decode else int32(*ends)
    assert misuse(lambda: debug.check_call(call(int32(*tables), int32(*lengths), cu_seqlens, window))) == expected


@example([(2**31 - 1, 3, [0] * WIDTH)], True)  # the last position is past 32 bits
@example([(2**31 - 1, 0, [9] * WIDTH)], True)  # no row, no position
@given(requests | mostly, st.booleans())
def test_a_gather_is_legal_where_rows_are_read(batch: list[Any], given_starts: bool) -> None:
    starts, counts, tables = (list(part) for part in zip(*batch, strict=True))
    starts = starts if given_starts else [0] * len(starts)
    ends = [0]
    for count in counts:
        ends.append(max(-(2**31), min(2**31 - 1, ends[-1] + count)))
    rows = list(zip(starts, ends, ends[1:], tables, strict=False))
    expected = None
    if any(begin > end for _, begin, end, _ in rows) or ends[-1] > 9:
        expected = "cu_seqlens"
    elif any(end > begin and not 0 <= start <= start + end - begin <= WIDTH * SIZE for start, begin, end, _ in rows):
        expected = "starts" if given_starts else "cu_seqlens"
    elif any(
        not 0 <= table[position // SIZE] < BLOCKS
        for start, begin, end, table in rows
        for position in range(start, start + end - begin)
    ):
        expected = "block_tables"
    cache = torch.zeros(BLOCKS, SIZE, 1, 8)
    tensors = int32(*tables), int32(*ends), int32(*starts) if given_starts else None
    assert misuse(lambda: debug.check_gather(cache, *tensors, 9)) == expected


CHECKS: dict[str, Callable[[], None]] = {
    "slots": lambda: debug.check_slots(torch.tensor([4, -1, 0]), 15),
    "pairs": lambda: debug.check_pairs(int32([0, 1], [-1, 0]), BLOCKS, BLOCKS, apart=True),
    "call": lambda: debug.check_call(call(int32([0, 1, 2, 9]), int32(9), int32(0, 2), 4)),
    "gather": lambda: debug.check_gather(torch.zeros(5, 3, 1, 8), int32([0, 1]), int32(0, 4), int32(2), 9),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_waits_for_the_device_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, tolist = list[Tensor](), Tensor.tolist

    def waiting(self: Tensor) -> Any:
        waits.append(self)
        return tolist(self)

    monkeypatch.setattr(debug, "array_of", lambda tensor: tensor)
    monkeypatch.setattr(Tensor, "tolist", waiting)
    for method in ("__bool__", "__int__", "__index__", "item", "cpu", "numpy", "nonzero"):
        monkeypatch.setattr(Tensor, method, lambda self, method=method: pytest.fail(f"{method} waits"))
    CHECKS[name]()
    assert len(waits) == 1


def pool() -> Tensor:
    return torch.arange(120.0).view(BLOCKS, SIZE, 1, 8)


ROWS = torch.ones(2, 1, 8)
TABLES = int32([0, 1, 2, 3], [1, 0, 4, 2])
WRONG: dict[str, Callable[[Tensor], Any]] = {
    "slot_mapping": lambda c: write_kv(ROWS, ROWS, c, c.clone(), torch.tensor([1, 1])),
    "pairs": lambda c: copy_blocks([c, c.clone()], torch.tensor([[0, 1], [1, 2]])),
    "block_tables": lambda c: gather_kv(c, int32([0, 5]), int32(0, 5), total=5),
    "starts": lambda c: gather_kv(c, TABLES, int32(0, 1, 2), starts=int32(0, 12), total=5),
    "cu_seqlens": lambda c: gather_kv(c, TABLES, int32(0, 3, 2), total=5),
    "cu_seqlens_q": lambda c: paged_attention(ROWS, c, c, TABLES, int32(3, 3), cu_seqlens_q=int32(0, 2, 1)),
    "seq_lens": lambda c: paged_attention(ROWS, c, c, TABLES, int32(3, 13)),
}


@pytest.mark.parametrize("argument", WRONG)
def test_the_kernels_are_guarded_in_debug_mode_as_the_cpu_backend_always_is(
    argument: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="Triton exists for Linux only")
    from pagedkv.optimized.attention.triton_backend import TritonBackend  # noqa: PLC0415  # imports Triton

    launched: list[str] = []
    monkeypatch.setattr(TritonBackend, "launch", lambda self, launch: launched.append(launch.name))
    cache, told = pool(), []
    for backend, mode in ((TorchBackend, False), (TritonBackend, True)):
        monkeypatch.setattr(debug, "DEBUG", mode)
        for module in (attend, gathering, moves):
            monkeypatch.setattr(module, "backend_for", lambda device, name=None, backend=backend: backend())
        with pytest.raises(Misuse) as caught:
            WRONG[argument](cache)
        assert caught.value.argument == argument
        told.append(str(caught.value))
    assert told[0] == told[1]
    assert launched == []
    assert torch.equal(cache, pool())
    monkeypatch.setattr(debug, "DEBUG", False)
    WRONG[argument](cache)  # nobody looks
    assert launched != []


@pytest.mark.parametrize(("value", "on"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)])
def test_the_environment_says_whether(value: str | None, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAGEDKV_DEBUG", raising=False)
    if value is not None:
        monkeypatch.setenv("PAGEDKV_DEBUG", value)
    assert mutated_module("pagedkv.optimized.attention.debug", []).DEBUG is on
