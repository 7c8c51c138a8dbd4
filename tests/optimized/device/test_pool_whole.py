"""The pool as a whole: copies, relabelling, warming up, what the host sees of it, and what `check` finds."""

import copy
import pickle
from collections.abc import Callable
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from pagedkv.optimized import DevicePool, RowOutcome
from pagedkv.optimized.device.checking import INVARIANTS
from pagedkv.optimized.device.mirror import MOST_UNDER_WAY, CounterMirror, PoolCounters
from pagedkv.optimized.device.on_the_cpu import LoopOperations
from pagedkv.spec import Misuse
from tests.optimized.device.pools import InterpretedOperations, Make, carried_out
from tests.optimized.device.test_pool import holds, pool_of, table, vector

OK, SKIPPED, WRONG_ROW = RowOutcome.OK, RowOutcome.SKIPPED, RowOutcome.WRONG_ROW


def test_more_blocks_than_there_are_leave_memory_whole() -> None:
    pool = DevicePool(8, 2, 3, 8, leased=True)
    pool.lease(torch.arange(8).repeat(2))
    assert int(pool.num_free) == 8
    pool.admit(None, vector(6, 6, 6))
    pool.free()
    assert int(pool.num_free) <= 8
    pool.lease(vector(3, 3))
    assert not holds(pool)


def test_a_block_that_there_is_not_is_found_on_the_free_list() -> None:
    pool = pool_of(3)
    pool._state.free_list[0] = 2**31 - 1
    assert pool.check().tolist().count(0) == len(INVARIANTS) - 2


@pytest.mark.parametrize("make", [LoopOperations, InterpretedOperations])
def test_what_is_given_may_be_a_view_of_the_state(make: Make) -> None:
    pool, apart = (carried_out(pool_of(1, 2), make) for _ in range(2))
    calls: list[Callable[[DevicePool, Tensor], object]] = [
        lambda pool, given: pool.fork(given, vector(2, -1, 3, -1)),  # row 2 gets a length, which is a parent's number
        lambda pool, given: pool.append(given), lambda pool, given: pool.append(None, given, total=20),
        lambda pool, given: pool.truncate(given, given), lambda pool, given: pool.free(given),
    ]  # fmt: skip
    for call in calls:
        call(pool, pool.seq_lens)
        call(apart, apart.seq_lens.clone())
    assert torch.equal(pool.block_tables, apart.block_tables)
    assert torch.equal(pool.counters, apart.counters)
    assert holds(pool)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pool: pickle.loads(pickle.dumps(pool)), DevicePool.copy])
def test_a_copy_goes_its_own_way(copied: Callable[[DevicePool], DevicePool]) -> None:
    pool = pool_of(3)
    twin = copied(pool)
    assert twin.append(vector(0)).outcome.tolist() == [OK]
    assert (twin.seq_lens.tolist(), pool.seq_lens.tolist(), holds(twin)) == ([4, 0, 0, 0], [3, 0, 0, 0], True)


def test_a_cache_that_is_named_twice_moves_once() -> None:
    pool, cache = pool_of(4), torch.arange(8)
    pool.permute(torch.tensor([1, 2, 3, 4, 5, 6, 7, 0]), [cache, cache])
    assert cache.tolist() == [7, 0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(Misuse, match=r"caches\[1\]="):
        pool.permute(torch.tensor([1, 2, 3, 4, 5, 6, 7, 0]), [cache, torch.ones(8, requires_grad=True)])
    assert cache.tolist() == [7, 0, 1, 2, 3, 4, 5, 6]


def test_warming_up_changes_nothing() -> None:
    pool = pool_of(5, 3)
    before = {name: tensor.clone() for name, tensor in vars(pool._state).items()}
    pool.warm_up()
    pool.warm_up(3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in vars(pool._state).items())


def test_blocks_and_contents_move_together() -> None:
    pool, cache = pool_of(6, 3), torch.arange(8.0).view(8, 1).clone()
    pool.fork(vector(0), vector(2))
    before = {row: cache[table(pool, row)].tolist() for row in range(3)}
    pool.permute(torch.tensor([3, 7, 0, 1, 6, 2, 4, 5]), [cache])
    assert {row: cache[table(pool, row)].tolist() for row in range(3)} == before
    assert (holds(pool), sorted(cache.view(-1).tolist())) == (True, list(range(8)))


def test_the_host_follows_by_what_was_counted() -> None:
    pool = pool_of(5, 5)
    mirror = CounterMirror(pool)
    assert mirror.latest is None
    mirror.refresh()
    pool.append(vector(0, 9))
    assert mirror.latest == PoolCounters(1, 4, {outcome: 2 * (outcome == OK) for outcome in RowOutcome})
    for _ in range(7):
        mirror.refresh()
        pool.append(vector(9))
    assert mirror.latest == PoolCounters(8, 4, {o: 3 * (o == OK) + 7 * (o == WRONG_ROW) for o in RowOutcome})


def test_while_answers_are_under_way_the_youngest_question_replaces_the_one_before() -> None:
    pool = pool_of()
    mirror = CounterMirror(pool)
    late = [mirror._idle[i] for i in range(MOST_UNDER_WAY)]
    for answer in late:
        answer.arrived = Mock(query=Mock(return_value=False))
    for _ in range(9):
        mirror.refresh()
        assert mirror.latest is None
    assert sorted(answer.asked for answer in late) == [1, 2, 3, 9]
    for answer in late:
        answer.arrived.query.return_value = answer.asked != 9
    assert (mirror.latest or fail()).asked == 3
    mirror.refresh()
    for answer in late:
        answer.arrived.query.return_value = True
    assert (mirror.latest or fail()).asked == 10


def fail() -> PoolCounters:
    raise AssertionError("there is an answer")


@pytest.mark.parametrize("name", INVARIANTS)
def test_each_invariant_is_counted_when_it_is_broken(name: str) -> None:
    pool = DevicePool(6, 2, 4, 4, sliding_window=2)
    pool.admit(vector(0, 1), vector(6, 3))
    pool.release_window(vector(0))
    state, at = pool._state, INVARIANTS.index(name)
    assert holds(pool)
    ways: dict[int, Callable[[], object]] = {
        0: lambda: state.numbers[1, 3].fill_(2),
        1: lambda: state.numbers[1, 0].fill_(9),
        2: lambda: state.numbers[2, 1].fill_(3),
        3: lambda: state.tables[1, 0].fill_(6),
        4: lambda: state.tables[1, 1].copy_(state.tables[1, 0]),
        5: state.owned.zero_,
        6: lambda: state.references.add_(1),
        7: lambda: state.free_list[1].copy_(state.free_list[0]),
        8: lambda: state.counters[0].sub_(1),
        9: lambda: state.writers[2].fill_(1),
    }
    ways[at]()
    assert int(pool.check()[at]) > 0
