"""Every invariant can fail, and names what is broken; alpha sees what tables do."""

from collections.abc import Callable

import pytest

from pagedkv.spec import (
    INVARIANTS, Config, State, admit, alpha, begin_step, broken, commit, fork, free, pin, preempt,
)  # fmt: skip
from pagedkv.spec.frame import broken_by
from pagedkv.spec.words import Identity


def busy_state() -> State:
    """Two requests that share, an idle block, a pin, a held block, a swapped request."""
    config = Config(num_blocks=10, block_size=2, swap_blocks=4, overlapped_steps=True)
    s, _ = admit(State(config), "a", (1, 2, 3))
    s, _ = commit(s, "a", 3)
    s, _ = fork(s, "a", "b")
    s, _ = admit(s, "c", (7, 8, 9))
    s, _ = commit(s, "c", 3)
    s, _ = pin(s, (7, 8))
    s, _ = begin_step(s, "s1")
    s, _ = free(s, "c")
    s, _ = admit(s, "d", (5,))
    s, _ = commit(s, "d", 1)
    s, _ = preempt(s, "d", "swap")
    return s


def _twice_in_a_table(s: State) -> None:
    r = s.requests["a"]
    s.requests["a"] = type(r)(**{**vars(r), "table": (r.table[0], r.table[0])})


def _short_table(s: State) -> None:
    r = s.requests["a"]
    s.requests["a"] = type(r)(**{**vars(r), "table": r.table[:1]})


def _hole(s: State) -> None:
    r = s.requests["a"]
    s.requests["a"] = type(r)(**{**vars(r), "table": (-1, *r.table[1:])})


def _hole_behind_what_lives(s: State) -> None:
    r = s.requests["a"]
    s.requests["a"] = type(r)(**{**vars(r), "table": (*r.table[:-1], -1)})


def _used_and_held(s: State) -> None:
    s.held[s.requests["a"].table[0]] = frozenset({"s1"})


def _uncounted(s: State) -> None:
    s.references[s.requests["a"].table[0]] += 1


def _unwritten(s: State) -> None:
    s.contents[s.requests["a"].table[1]] = ()


def _stale_entry(s: State) -> None:
    block = s.requests["a"].table[0]
    s.contents[block] = (9, 9)


def _two_identities(s: State) -> None:
    s.index[Identity("", (0, 0))] = s.requests["a"].table[0]


def _waits_for_nothing(s: State) -> None:
    s.held[9] = frozenset({"long over"})


def _too_much_saved(s: State) -> None:
    r = s.requests["d"]
    s.requests["d"] = type(r)(**{**vars(r), "saved": ((5,),) * 5})


CORRUPTIONS: dict[str, Callable[[State], None]] = {
    "every_block_is_of_one_kind": _used_and_held,
    "references_are_counted": _uncounted,
    "no_block_stands_twice_in_a_table": _twice_in_a_table,
    "tables_fit_their_lengths": _short_table,
    "holes_follow_the_sinks": _hole_behind_what_lives,
    "what_the_next_query_sees_is_there": _hole,
    "computed_positions_are_written": _unwritten,
    "entries_name_what_their_block_holds": _stale_entry,
    "index_is_a_bijection": _two_identities,
    "held_blocks_wait_for_steps_in_flight": _waits_for_nothing,
    "swap_space_is_bounded": _too_much_saved,
}


def test_the_busy_state_is_sound() -> None:
    s = busy_state()
    assert broken(s) == []
    assert alpha(s) == {"a": (1, 2, 3), "b": (1, 2, 3), "d": (5,)}
    assert s.held, "the state should have a held block to be worth its name"


@pytest.mark.parametrize("name", [invariant.__name__ for invariant in INVARIANTS])
def test_each_invariant_notices_its_corruption(name: str) -> None:
    s = busy_state().copy()
    CORRUPTIONS[name](s)
    assert name in broken(s)


def test_alpha_reads_through_the_table() -> None:
    s = busy_state().copy()
    r = s.requests["a"]
    s.requests["a"] = type(r)(**{**vars(r), "table": r.table[::-1]})
    assert alpha(s)["a"] != (1, 2, 3)


def test_a_write_into_a_shared_block_is_a_step_that_no_operation_takes() -> None:
    before, after = busy_state(), busy_state()
    block = before.requests["a"].table[0]
    assert before.references[block] > 1
    assert broken_by(before, after, []) == []
    after.contents[block] = (8, 8)
    assert broken_by(before, after, []) == ["shared_blocks_are_not_written"]


def test_a_change_of_a_request_that_was_not_named_breaks_the_frame() -> None:
    before, after = busy_state(), busy_state()
    r = after.requests["b"]
    after.requests["b"] = type(r)(**{**vars(r), "computed": r.computed - 1})
    assert broken_by(before, after, ["a"]) == ["others_are_left_alone"]
    assert broken_by(before, after, ["b"]) == []
