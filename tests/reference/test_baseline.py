"""Laws of the baseline, and paging against it on the same requests."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.reference.baseline import (
    ContiguousReservation,
    Usage,
    table_usage,
    waste_of_paging,
    waste_of_reservation,
)
from pagedkv.reference.manager import BlockManager
from pagedkv.spec.words import Config, Misuse, Ok, Reason, Refused

LENGTHS = st.lists(st.integers(1, 64), min_size=1, max_size=12)


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 16))
def test_paging_wastes_less_than_a_block_a_request(lengths: list[int], block_size: int) -> None:
    """Kwon et al., §4: internal fragmentation is bounded by the last block. A block of 1 wastes nothing."""
    usage = waste_of_paging(lengths, block_size)
    assert 0 <= usage.reserved_tokens - usage.used_tokens <= len(lengths) * (block_size - 1)
    assert waste_of_paging(lengths, 1).waste == 0


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 16))
def test_blocks_that_divide_the_maximum_never_lose_to_reservation(lengths: list[int], block_size: int) -> None:
    paged, reserved = waste_of_paging(lengths, block_size), waste_of_reservation(lengths, 4 * 16 * block_size)
    assert paged.used_tokens == reserved.used_tokens
    assert paged.reserved_tokens <= reserved.reserved_tokens
    assert paged.waste <= reserved.waste


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.sampled_from([1, 2, 4, 8]))
def test_the_managers_agree_with_the_formulas(lengths: list[int], block_size: int) -> None:
    """The same requests in both managers: what they hold is what the helpers compute, and paging admits as many."""
    maximum, capacity = 64, 512
    paged = BlockManager(Config(num_blocks=capacity // block_size, block_size=block_size, prefix_cache=False))
    contiguous = ContiguousReservation(capacity, maximum)
    admitted = [
        (isinstance(paged.admit(n, [n] * length), Ok), isinstance(contiguous.admit(n, [n] * length), Ok))
        for n, length in enumerate(lengths)
    ]
    assert sum(a for a, _ in admitted) >= sum(b for _, b in admitted) == contiguous.num_active
    assert contiguous.refusals[Reason.CAPACITY] == len(lengths) - contiguous.num_active
    contiguous_lengths = [length for length, (_, ok) in zip(lengths, admitted, strict=True) if ok]
    assert contiguous.usage == waste_of_reservation(contiguous_lengths, maximum)
    paged_lengths = [length for length, (ok, _) in zip(lengths, admitted, strict=True) if ok]
    seen = paged.observe()
    known = {request: lengths.length for request, lengths in seen.lengths.items()}
    assert table_usage(seen.tables, known, block_size) == waste_of_paging(paged_lengths, block_size)


def test_append_and_free_mean_what_they_mean_for_blocks() -> None:
    manager = ContiguousReservation(capacity_tokens=20, max_length=8)
    assert manager.admit("a", [1, 2, 3]) == Ok()
    assert manager.admit("b", [1]) == Ok()
    assert manager.append("b", [2, 3]) == Ok(slots=(9, 10))
    assert manager.admit("c", [1]) == Refused(Reason.CAPACITY), "4 tokens are left, and not 8 in one piece"
    assert manager.admit("d", [1] * 9) == Refused(Reason.UNSERVABLE)
    assert manager.append("a", [1] * 6) == Refused(Reason.UNSERVABLE)
    assert manager.usage == Usage(reserved_tokens=16, used_tokens=6)
    assert manager.usage.waste == pytest.approx(10 / 16)
    manager.free("a")
    assert manager.admit("c", [1]) == Ok()
    assert manager.slots("c") == (0,)
    assert manager.refusals == {Reason.CAPACITY: 1, Reason.UNSERVABLE: 2}


def test_sharing_counts_a_block_once() -> None:
    manager = BlockManager(Config(num_blocks=8, block_size=4))
    manager.admit("a", [1] * 6)
    manager.commit("a", 6)
    manager.fork("a", "b")
    seen = manager.observe()
    assert table_usage(seen.tables, {"a": 6, "b": 6}, 4) == Usage(reserved_tokens=8, used_tokens=6)


@pytest.mark.parametrize(
    ("arguments", "name"), [((0, 8), "capacity_tokens"), ((8, 0), "max_length"), ((8, True), "max_length")]
)
def test_sizes_are_checked(arguments: tuple[int, int], name: str) -> None:
    with pytest.raises(Misuse, match=name):
        ContiguousReservation(*arguments)


def test_misuse_changes_nothing() -> None:
    manager = ContiguousReservation(capacity_tokens=16, max_length=8)
    manager.admit("a", [1])
    for call in (
        lambda: manager.admit("a", [1]),
        lambda: manager.admit("b", []),
        lambda: manager.append("b", [1]),
        lambda: manager.append("a", [-1]),
        lambda: manager.free("b"),
        lambda: waste_of_paging([-1], 4),
        lambda: waste_of_reservation([9], 8),
    ):
        with pytest.raises(Misuse):
            call()
    assert (manager.num_active, manager.usage) == (1, Usage(8, 1))
