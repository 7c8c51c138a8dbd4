"""Leases, case by case: what may not be returned or adopted, and where a request goes that comes back."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from pagedkv.optimized.events import BlocksStored
from pagedkv.optimized.groups import CacheGroup
from pagedkv.optimized.leasing import Leased
from pagedkv.optimized.manager import BlockManager
from pagedkv.spec import HOLE, Misuse, Reason, Refused

from tests.optimized.feature_programs import tables
from tests.optimized.state_image import differences, image


def blocks_of(outcome: object) -> tuple[int, ...]:
    assert isinstance(outcome, Leased)
    return outcome.blocks


def away(manager: BlockManager, count: int = 3) -> tuple[int, ...]:
    """A request of six tokens in two blocks, all computed and ready to be written; and a lease."""
    manager.admit("a", range(6))
    manager.commit("a", 6)
    return blocks_of(manager.lease(count))


@pytest.mark.parametrize("blocks", [0, -1, True, 1.5, "2", None, [1]])
def test_a_lease_is_at_least_one_block(blocks: Any) -> None:
    with pytest.raises(Misuse, match=r"^blocks=.*an integer >= 1"):
        BlockManager(8, 4).lease(blocks)


WRONG_RETURNS: Sequence[Callable[[tuple[int, ...]], Any]] = (
    lambda leased: [leased[0]] * 2,
    lambda leased: [*leased, 0],
    lambda leased: [8],
    lambda leased: [-1],
    lambda leased: leased[0],
    lambda leased: "23",
    lambda leased: {*leased},
    lambda leased: [float(leased[0])],
    lambda leased: [True],
    lambda leased: [[leased[0]]],
    lambda leased: np.array(leased[0]),
)


@pytest.mark.parametrize("wrong", WRONG_RETURNS)
def test_only_what_is_leased_is_returned_and_once(wrong: Callable[[tuple[int, ...]], Any]) -> None:
    manager = BlockManager(8, 4)
    leased = away(manager)
    before = image(manager)
    with pytest.raises(Misuse, match=r"^blocks="):
        manager.return_lease(wrong(leased))
    assert not differences(image(manager), before)
    manager.return_lease(np.array(leased, np.uint8))
    with pytest.raises(Misuse, match=r"^blocks="):
        manager.return_lease(leased)
    manager.return_lease([])
    assert manager.available_blocks == 6


WRONG_TABLES: dict[str, Callable[[tuple[int, ...]], Any]] = {
    "too short": lambda leased: [0, 1],
    "too long": lambda leased: [0, 1, *leased[:2]],
    "of strangers": lambda leased: [0, 1, 7],
    "of its own, elsewhere": lambda leased: [1, 0, leased[0]],
    "of one twice": lambda leased: [0, leased[0], leased[0]],
    "with a hole": lambda leased: [HOLE, 1, leased[0]],
    "of no blocks": lambda leased: [0, 1, 99],
    "of no numbers": lambda leased: ["0", "1", "2"],
    "none": lambda leased: None,
    "a number": lambda leased: 3,
}


@pytest.mark.parametrize("what", WRONG_TABLES)
def test_a_table_is_of_blocks_that_the_request_may_have(what: str) -> None:
    manager = BlockManager(8, 4)
    leased = away(manager)
    before = image(manager)
    with pytest.raises(Misuse, match=r"^table="):
        manager.adopt("a", range(12), WRONG_TABLES[what](leased))
    assert not differences(image(manager), before)


@pytest.mark.parametrize("tokens", [range(5), [1, *range(1, 12)], [], None, [0.5] * 12])
def test_tokens_go_on_from_those_that_are_known(tokens: Any) -> None:
    manager = BlockManager(8, 4)
    leased = away(manager)
    with pytest.raises(Misuse, match=r"^tokens="):
        manager.adopt("a", tokens, [0, 1, leased[0]])


def test_a_block_that_others_may_see_is_not_written() -> None:
    """Kept where the device must have copied it: misuse, unless nothing was written."""
    manager = BlockManager(16, 4)
    leased = away(manager)
    manager.fork("a", "b")
    with pytest.raises(Misuse, match=r"^table=.*leased block as entry 1: others own 1"):
        manager.adopt("a", range(7), [0, 1])
    manager.adopt("a", range(6), [0, 1])
    manager.adopt("a", range(7), [0, leased[0]])
    assert tables(manager, "b") == ((0, 1),)
    manager.adopt("b", range(12), [0, 1, leased[1]])  # nobody else has block 1 now
    manager.truncate("b", 7)
    with pytest.raises(Misuse, match=r"can find it"):
        manager.adopt("b", [*range(7), 0], [0, 1])
    manager.reserve("b", 8)
    manager.adopt("b", [*range(7), 0], [0, 1])
    assert manager.lookup([*range(7), 0]).cached_tokens == 8
    assert manager.lookup(range(8)).cached_tokens == 4
    manager.check()


def test_what_is_left_out_or_replaced_is_released() -> None:
    """The known one is idle then, the others are free; steps in flight hold them."""
    manager = BlockManager(16, 4, overlapped_steps=True)
    leased = away(manager)
    manager.reserve("a", 14)
    assert tables(manager, "a") == ((0, 1, 5, 6),)
    manager.begin_step("s")
    manager.adopt("a", range(9), [leased[1], leased[0], 5])
    stats = manager.stats()
    assert (stats.free, stats.used, stats.idle, stats.held, stats.leased) == (11, 3, 1, 3, 1)
    manager.end_step("s")
    assert (manager.available_blocks, manager.stats().held) == (12, 0)
    manager.check()


def test_what_is_returned_while_a_step_is_in_flight_is_held() -> None:
    manager = BlockManager(4, 4, overlapped_steps=True)
    leased = blocks_of(manager.lease(3))
    manager.begin_step("s")
    manager.return_lease(leased)
    assert manager.available_blocks == 1
    assert manager.lease(2) == Refused(Reason.IN_FLIGHT)
    manager.end_step("s")
    assert blocks_of(manager.lease(3)) == leased
    assert manager.lease(2) == Refused(Reason.CAPACITY)
    assert manager.lease(5) == Refused(Reason.UNSERVABLE)


def test_what_dies_on_the_device_comes_back_as_a_hole() -> None:
    """As many as are dead at most, as many as were holes here at least; what else is dead is released."""
    manager = BlockManager(32, 2, sliding_window=4, sink_tokens=2, max_rollback=1)
    manager.admit("a", range(8))
    manager.commit("a", 8)
    assert tables(manager, "a") == ((0, HOLE, 2, 3),)
    leased = blocks_of(manager.lease(8))
    table = [0, *[HOLE] * 4, *leased[:3]]
    for wrong in ([0, HOLE, HOLE, 3, HOLE, *leased[:3]], [HOLE] * 5 + [*leased[:3]], [0, 1, 2, 3, *leased[:4]],
                  [0, *[HOLE] * 6, leased[0]]):  # fmt: skip
        with pytest.raises(Misuse, match=r"^table=.*at least 1 and at most 5 holes, the first of them entry 1"):
            manager.adopt("a", range(16), wrong)
    manager.adopt("a", range(16), table)
    assert tables(manager, "a") == ((0, *[HOLE] * 5, *leased[1:3]),)
    assert manager.available_blocks == 32 - 3 - 5
    assert manager.truncate("a", 10) == Refused(Reason.RELEASED)
    manager.check()
    manager.free("a")
    manager.return_lease(leased[3:])
    assert manager.available_blocks == 32


def test_a_chunked_prompt_is_finished_elsewhere() -> None:
    manager = BlockManager(16, 4, events=True)
    manager.admit("a", range(10), "tenant", reserve=2)
    manager.commit("a", 2)
    leased = blocks_of(manager.lease(2))
    manager.adopt("a", range(10), [0, *leased])
    (event,) = manager.take_events()
    assert isinstance(event, BlocksStored)
    assert (event.tokens, event.namespace) == ((*range(8),), "tenant")
    assert manager.admit("b", range(10), "tenant").__dict__["cached_tokens"] == 8


def test_what_must_not_be_found_is_not() -> None:
    for options, asked in (({"prefix_cache": False}, True), ({}, False)):
        manager = BlockManager(16, 4, **options)  # type: ignore[arg-type]  # flags only
        manager.admit("a", range(4), write_cache=asked)
        leased = blocks_of(manager.lease(2))
        manager.adopt("a", range(12), [0, *leased])
        assert manager.lookup(range(12)).cached_tokens == 0
        manager.check()


def test_who_is_not_here_is_not_adopted() -> None:
    manager = BlockManager(16, 4, swap_blocks=4)
    leased = away(manager)
    manager.preempt("a", "swap")
    strangers: tuple[Any, ...] = ("a", "nobody", [])
    for request in strangers:
        with pytest.raises(Misuse, match=r"^request="):
            manager.adopt(request, range(6), leased[:2])


def test_with_cache_groups_there_is_no_one_table() -> None:
    manager = BlockManager(16, 4, groups=[CacheGroup(), CacheGroup(4)])
    leased = away(manager)
    with pytest.raises(Misuse, match=r"^table=.*one for each cache group"):
        manager.adopt("a", range(6), leased[:2])
    manager.return_lease(leased)
    manager.check()


def test_leased_blocks_are_renamed_with_the_others() -> None:
    manager = BlockManager(8, 4)
    leased = away(manager)
    manager.permute([(block + 1) % 8 for block in range(8)])
    with pytest.raises(Misuse):
        manager.return_lease(leased)
    manager.adopt("a", range(9), [1, 2, leased[0] + 1])
    manager.return_lease([leased[1] + 1, leased[2] + 1])
    manager.check()


def test_what_is_leased_stays_so_when_all_else_goes() -> None:
    manager = BlockManager(8, 4)
    leased = away(manager)
    manager.free("a")
    manager.evict(9)
    manager.reset_prefix_index()
    assert manager.available_blocks == 5
    assert manager.admit("all", range(24)) == Refused(Reason.CAPACITY)
    assert manager.footprint().empty_slots == 0
    manager.return_lease(leased)
    assert manager.available_blocks == 8
