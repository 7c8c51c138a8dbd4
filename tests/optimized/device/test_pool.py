"""What a call of the device pool answers, row by row; the odd ones too. The laws of random programs are the kit's."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pagedkv.optimized import DevicePool, RowOutcome
from pagedkv.spec import Misuse

OK, SKIPPED, DUPLICATE = RowOutcome.OK, RowOutcome.SKIPPED, RowOutcome.DUPLICATE
WRONG_ROW, BAD_LENGTH, RELEASED = RowOutcome.WRONG_ROW, RowOutcome.BAD_LENGTH, RowOutcome.RELEASED
TABLE_FULL, UNSERVABLE, CAPACITY = RowOutcome.TABLE_FULL, RowOutcome.UNSERVABLE, RowOutcome.CAPACITY


BAD_TABLE = RowOutcome.BAD_TABLE


def pool_of(*lengths: int, num_blocks: int = 8, block_size: int = 4, max_blocks: int = 8, rows: int = 4) -> DevicePool:
    """A pool whose first rows have these lengths."""
    pool = DevicePool(num_blocks, block_size, rows, max_blocks)
    assert pool.admit(vector(*range(len(lengths))), vector(*lengths)).outcome.tolist() == [OK] * len(lengths)
    return pool


def vector(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def table(pool: DevicePool, row: int) -> list[int]:
    blocks = -(-int(pool.seq_lens[row]) // pool.shape.block_size)
    found: list[int] = pool.block_tables[row, :blocks].tolist()
    return found


def holds(pool: DevicePool) -> bool:
    return not pool.check().any()


def test_a_row_that_does_not_fit_is_refused_whole_and_those_behind_it_are_served_from_what_is_left() -> None:
    pool = pool_of(num_blocks=3)
    plan = pool.admit(vector(0, 1, 2, 3), vector(8, 9, 4, 4), total=25)
    assert plan.outcome.tolist() == [OK, CAPACITY, OK, CAPACITY]
    assert plan.seq_lens.tolist() == [8, 0, 4, 0]
    assert plan.slot_mapping.tolist() == [*range(8), *[-1] * 9, *range(8, 12), *[-1] * 4]
    assert pool.in_use.tolist() == [1, 0, 1, 0]
    assert (int(pool.num_free), holds(pool)) == (0, True)


def test_of_those_who_share_a_block_the_last_writes_in_place_if_the_others_have_left_it() -> None:
    pool = pool_of(2, num_blocks=4)
    pool.fork(vector(0, 0), vector(1, 2))
    plan = pool.append(vector(2, 0, 1))
    assert plan.copies.tolist() == [[0, 1], [0, 2], [-1, -1]]
    assert plan.slot_mapping.tolist() == [6, 10, 2]
    assert (pool.references.tolist(), holds(pool)) == ([1, 1, 1, 0], True)


def test_if_one_of_them_is_refused_the_last_has_to_copy_too() -> None:
    pool = pool_of(2, num_blocks=2)
    pool.fork(vector(0, 0), vector(1, 2))
    plan = pool.append(vector(2, 0, 1))  # one block: the first copies, and the second finds nothing left
    assert plan.outcome.tolist() == [OK, CAPACITY, CAPACITY]
    assert plan.copies.tolist() == [[0, 1], [-1, -1], [-1, -1]]
    assert (pool.references.tolist(), pool.seq_lens.tolist(), holds(pool)) == ([2, 1], [2, 2, 3, 0], True)


def test_a_block_that_many_rows_give_back_in_one_call_is_free_once() -> None:
    pool = pool_of(8)
    pool.fork(vector(0, 0, 0), vector(1, 2, 3))
    assert pool.free().tolist() == [OK] * 4
    assert (int(pool.num_free), holds(pool)) == (8, True)
    assert pool.append(None).outcome.tolist() == [SKIPPED] * 4, "of all rows, those that are not in use are"


def test_a_row_is_used_again_once_it_was_freed() -> None:
    pool = pool_of(8, 3)
    assert pool.admit(vector(0), vector(4)).outcome.tolist() == [WRONG_ROW]
    pool.free(vector(0))
    assert pool.admit(vector(0), vector(4)).outcome.tolist() == [OK]
    assert (pool.seq_lens.tolist(), holds(pool)) == ([4, 3, 0, 0], True)


def test_a_request_moves_to_another_row_by_a_fork_and_a_free() -> None:
    pool = pool_of(6)
    before = table(pool, 0)
    pool.fork(vector(0), vector(3))
    pool.free(vector(0))
    assert (table(pool, 3), pool.references.sum().item(), holds(pool)) == (before, 2, True)


def test_a_pool_made_in_inference_mode_is_used_outside_and_the_other_way_round() -> None:
    with torch.inference_mode():
        inside = DevicePool(8, 4, 2, 4)
        assert inside.admit(torch.arange(2), torch.tensor([5, 3])).outcome.tolist() == [0, 0]
    outside = DevicePool(8, 4, 2, 4)
    assert outside.admit(torch.arange(2), torch.tensor([5, 3])).outcome.tolist() == [0, 0]
    new_block = torch.arange(8).roll(1)  # blocks 1 and 2, which are written into, become 0 and 1
    inside.permute(new_block)  # the same as kernels do: in place
    with torch.inference_mode():
        outside.permute(new_block)
    for pool in (inside, outside):
        assert pool.append(torch.arange(2)).slot_mapping.tolist() == [1, 7]
        assert not pool.check().any()


def test_a_flag_on_the_device_says_which_requests_have_ended() -> None:
    pool = pool_of(4, 4, 4)
    tokens, end_of_sequence = vector(7, 2, 9, 2), 2
    ended = tokens == end_of_sequence
    assert pool.free(where=ended).tolist() == [SKIPPED, OK, SKIPPED, SKIPPED]
    assert pool.append(where=~ended).outcome.tolist() == [OK, SKIPPED, OK, SKIPPED]
    assert (pool.seq_lens.tolist(), holds(pool)) == ([5, 0, 5, 0], True)


def test_nothing_is_a_length_and_a_count() -> None:
    pool = pool_of(0, 4)
    assert (pool.in_use.tolist(), table(pool, 0)) == ([1, 1, 0, 0], [])
    plan = pool.append(vector(0, 1), vector(0, 0), total=0)
    assert (plan.outcome.tolist(), plan.copies.tolist(), len(plan.slot_mapping)) == ([OK, OK], [[-1, -1]] * 2, 0)
    assert pool.truncate(vector(1), vector(0)).tolist() == [OK]
    assert (pool.seq_lens.tolist(), int(pool.num_free), holds(pool)) == ([0, 0, 0, 0], 8, True)
    assert pool.append(vector(0, 1)).outcome.tolist() == [OK, OK]


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        (lambda pool: pool.admit(vector(2, 2, 2), vector(4, 4, 4)).outcome, [OK, DUPLICATE, DUPLICATE]),
        (lambda pool: pool.admit(vector(2, 2), vector(99, 4)).outcome, [UNSERVABLE, DUPLICATE]),
        (lambda pool: pool.append(vector(0, 0, 1)).outcome, [OK, DUPLICATE, OK]),
        (lambda pool: pool.append(vector(0, 0), where=torch.tensor([False, True])).outcome, [SKIPPED, OK]),
        (lambda pool: pool.free(vector(0, 0)), [OK, DUPLICATE]),
        (lambda pool: pool.fork(vector(0, 1), vector(2, 2)), [OK, DUPLICATE]),
        (lambda pool: pool.fork(vector(0, 2), vector(2, 3)), [OK, WRONG_ROW]),
        (lambda pool: pool.fork(vector(0, 9, -1, 3), vector(1, 2, 3, 3)), [WRONG_ROW, WRONG_ROW, WRONG_ROW, DUPLICATE]),
        (lambda pool: pool.append(vector(-1, 4, 2, 1 << 30)).outcome, [SKIPPED, WRONG_ROW, WRONG_ROW, WRONG_ROW]),
        (lambda pool: pool.append(vector(0, 1), vector(-1, 5), total=4).outcome, [BAD_LENGTH, BAD_LENGTH]),
        (lambda pool: pool.append(vector(0, 1), vector(2**31 - 1, 2**30)).outcome, [BAD_LENGTH, UNSERVABLE]),
        (lambda pool: pool.admit(vector(2), vector(29)).outcome, [TABLE_FULL]),
        (lambda pool: pool.truncate(vector(0, 1), vector(-1, 6)), [BAD_LENGTH, BAD_LENGTH]),
        (lambda pool: pool.release_window(vector(0, 2)), [OK, WRONG_ROW]),
        (lambda pool: pool.release_window(vector(0, 1), computed=vector(5, -1)), [OK, BAD_LENGTH]),
        (lambda pool: pool.append(vector()).outcome, []),
        (lambda pool: pool.import_(vector(0, 2, 2), vector(1, 2, 3)[:, None], vector(1, -1, 1)), [3, 4, 2]),
        (lambda pool: pool.import_(vector(2, 3), vector(1, 2)[:, None], vector(5, 1), owning=True), [TABLE_FULL, OK]),
        (lambda pool: pool.import_(vector(2, 3), vector(8, -1)[:, None], vector(1, 1)), [BAD_TABLE, BAD_TABLE]),
        (lambda pool: pool.import_(vector(2, 3), vector(5, 0)[:, None], vector(1, 1), owning=True), [BAD_TABLE, OK]),
        (lambda pool: pool.import_(vector(2), vector(0)[:, None], vector(1), num_holes=vector(1)), [BAD_TABLE]),
        (lambda pool: pool.import_(vector(2), torch.empty(1, 0, dtype=torch.int32), vector(0)), [OK]),
        (lambda pool: pool.truncate(vector(0, 1), vector(4, 4), computed=vector(-1, 6)), [BAD_LENGTH, BAD_LENGTH]),
    ],
)  # fmt: skip
def test_what_a_row_is_told(call: Callable[[DevicePool], Tensor], outcome: list[int]) -> None:
    pool = pool_of(5, 5, max_blocks=7)
    assert call(pool).tolist() == outcome
    assert pool.outcome_counts.sum().item() == 2 + len(outcome)


def test_slots_for_which_total_leaves_no_room_are_a_bad_length_and_no_sum_overflows() -> None:
    pool = pool_of(1, 1, 1, 1)
    plan = pool.append(None, vector(2, 3, 0, 1), total=4)
    assert plan.outcome.tolist() == [OK, BAD_LENGTH, BAD_LENGTH, BAD_LENGTH]
    assert plan.slot_mapping.tolist() == [1, 2, -1, -1]
    plan = pool.append(None, torch.tensor([1, 2**63 - 1, 2**63 - 1, 1]), total=4)
    assert (plan.outcome.tolist(), plan.slot_mapping.tolist()) == ([OK, *[BAD_LENGTH] * 3], [3, -1, -1, -1])
    assert (pool.seq_lens.tolist(), holds(pool)) == ([4, 1, 1, 1], True)


def test_what_never_fits_is_told_apart_from_what_does_not_fit_now() -> None:
    pool = pool_of(4, 4, num_blocks=2, max_blocks=4)
    assert pool.append(vector(0, 1), vector(4, 5)).outcome.tolist() == [CAPACITY, UNSERVABLE]


def test_what_is_refused_changes_nothing() -> None:
    pool = pool_of(5, 5, num_blocks=4)
    before = {name: tensor.clone() for name, tensor in vars(pool._state).items()}
    pool.admit(vector(0, 2, 9), vector(1, 20, 1))
    pool.append(vector(0, 0, 1), vector(-2, 1, 30))
    pool.truncate(vector(0, 3), vector(6, 0))
    pool.fork(vector(3, 0), vector(2, 1))
    changed = [name for name, tensor in vars(pool._state).items() if not torch.equal(tensor, before[name])]
    assert changed == ["counters"]
    assert torch.equal(pool._state.counters[0], before["counters"][0])


def test_a_window_leaves_holes_and_a_text_does_not_go_back_into_them() -> None:
    pool = DevicePool(8, 2, 2, 8, sliding_window=3, sink_tokens=1, max_rollback=1)
    pool.admit(vector(0), vector(12))
    before = table(pool, 0)
    assert pool.release_window(vector(0), computed=vector(7)).tolist() == [OK]
    assert table(pool, 0) == [before[0], -1, *before[2:]]
    assert pool.release_window(vector(0), computed=vector(9)).tolist() == [OK]
    assert table(pool, 0) == [before[0], -1, -1, *before[3:]]
    assert pool.truncate(vector(0), vector(7)).tolist() == [RELEASED]
    assert pool.truncate(vector(0), vector(8), computed=vector(7)).tolist() == [RELEASED]
    assert pool.truncate(vector(0), vector(8)).tolist() == [OK]
    pool.fork(vector(0), vector(1))
    assert (table(pool, 1), pool.num_holes.tolist(), holds(pool)) == ([before[0], -1, -1, before[3]], [2, 2], True)
    assert pool.free().tolist() == [OK, OK]
    assert int(pool.num_free) == 8


@pytest.mark.parametrize("holes", [-100, 3, -(2**31), 2**32 - 3])
def test_holes_that_there_cannot_be_are_a_bad_table(holes: int) -> None:
    pool = DevicePool(8, 2, 2, 4, leased=True, sliding_window=3, sink_tokens=1)
    given = torch.tensor([holes]), vector(3, 4, 5)[None], vector(5)
    assert pool.import_(vector(0), given[1], given[2], num_holes=given[0]).tolist() == [BAD_TABLE]
    assert pool.import_(vector(0), given[1], given[2], num_holes=vector(2)).tolist() == [BAD_TABLE], "it is not full"
    assert pool.import_(vector(0), given[1], given[2], num_holes=vector(1)).tolist() == [OK]
    assert (table(pool, 0), pool.references.sum().item(), holds(pool)) == ([3, -1, 5], 4, True)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: DevicePool(0, 4, 4, 4), "num_blocks"),
        (lambda: DevicePool(4, 4, 2**20, 2**20), r"num_rows \* max_blocks"),
        (lambda: DevicePool(4, 2**20, 4, 2**20), r"max_blocks \* block_size"),
        (lambda: DevicePool(4, 4, 4, 4, sliding_window=0), "sliding_window"),
        (lambda: DevicePool(4, 4, 4, 4, leased=1), "leased"),  # type: ignore[arg-type]  # which is the point
        (lambda: DevicePool(4, 4, 4, 4, device="meta"), "device"),
        (lambda: pool_of().append([0]), "rows"),  # type: ignore[arg-type]  # which is the point
        (lambda: pool_of().append(torch.zeros(1)), r"rows\.dtype"),
        (lambda: pool_of().append(vector(0)[None]), r"rows\.shape"),
        (lambda: DevicePool(4, 1, 1, 2**28).free(vector(*[-1] * 9)), r"rows\.shape"),
        (lambda: pool_of().append(vector(0), vector(1, 2)), r"counts\.shape"),
        (lambda: pool_of().append(torch.zeros(1, dtype=torch.int32, device="meta")), r"rows\.device"),
        (lambda: pool_of().free(vector(0), where=vector(1)), r"where\.dtype"),
        (lambda: pool_of().admit(vector(0), vector(1), total=-1), "total"),
        (lambda: pool_of().permute(vector(0)), r"new_block\.shape"),
        (lambda: pool_of().permute(vector(*range(8)), [torch.zeros(7, 1)]), r"caches\[0\]\.shape"),
        (lambda: pool_of().import_(vector(0), vector(0), vector(1)), r"block_tables\.shape"),
        (lambda: pool_of().import_(vector(0), torch.zeros(1, 1), vector(1)), "block_tables"),
        (lambda: pool_of().return_lease(9), "count"),
    ],
)  # fmt: skip
def test_misuse_that_the_host_can_see_names_the_argument(call: Callable[[], object], argument: str) -> None:
    with pytest.raises(Misuse, match=f"^{argument}="):
        call()
