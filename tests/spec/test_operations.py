"""Refused and misuse change nothing; what the text of the specification promises in words."""

from collections.abc import Callable
from typing import Any

import pytest

from pagedkv.spec import (
    Config, Misuse, Ok, Reason, Refused, State, Transition, admit, append, available, begin_step, commit, end_step,
    HOLE, evict, fork, free, lookup, permute, pin, preempt, reserve, reset_prefix_index, resume, truncate, unpin,
)  # fmt: skip
from pagedkv.spec.window import dead_blocks, seen_by, sink_blocks


def two_requests(**options: Any) -> State:
    s, _ = admit(State(Config(num_blocks=4, block_size=2, **options)), "a", (1, 2, 3))
    s, _ = commit(s, "a", 3)
    s, _ = admit(s, "b", (7,))
    return s


MISUSES: list[tuple[str, Callable[[State], Transition]]] = [
    ("request", lambda s: admit(s, "a", (1,))),
    ("tokens", lambda s: admit(s, "c", ())),
    ("tokens", lambda s: admit(s, "c", (1, -2))),
    ("tokens", lambda s: admit(s, "c", (True,))),
    ("reserve", lambda s: admit(s, "c", (1, 2), reserve=3)),
    ("request", lambda s: append(s, "nobody", (1,))),
    ("tokens", lambda s: append(s, "a", ())),
    ("length", lambda s: reserve(s, "a", 0)),
    ("request", lambda s: reserve(s, "nobody", 1)),
    ("computed", lambda s: commit(s, "a", 2)),
    ("computed", lambda s: commit(s, "a", 4)),
    ("parent", lambda s: fork(s, "b", "c")),
    ("child", lambda s: fork(s, "a", "b")),
    ("request", lambda s: fork(s, "nobody", "c")),
    ("length", lambda s: truncate(s, "a", 4)),
    ("length", lambda s: truncate(s, "a", 0)),
    ("request", lambda s: free(s, "nobody")),
    ("mode", lambda s: preempt(s, "a", "sideways")),  # type: ignore[arg-type]  # that it is wrong is the point
    ("request", lambda s: resume(s, "a")),
    ("tokens", lambda s: unpin(s, (1, 2))),
    ("blocks", lambda s: evict(s, -1)),
    ("step", lambda s: begin_step(s, "s1")),
    ("step", lambda s: end_step(s, "s1")),
    ("new_block", lambda s: permute(s, [0, 0, 1, 2])),
]


@pytest.mark.parametrize(("argument", "call"), MISUSES)
def test_misuse_names_its_argument_and_changes_nothing(argument: str, call: Callable[[State], Transition]) -> None:
    s = two_requests()
    before = s.copy()
    with pytest.raises(Misuse) as caught:
        call(s)
    assert caught.value.argument == argument
    assert s == before


REFUSALS: list[tuple[Reason, dict[str, Any], Callable[[State], Transition]]] = [
    (Reason.CAPACITY, {}, lambda s: admit(s, "c", (4, 5, 6, 7))),
    (Reason.UNSERVABLE, {}, lambda s: admit(s, "c", tuple(range(9)))),
    (Reason.MAX_REQUESTS, {"max_requests": 2}, lambda s: admit(s, "c", (4,))),
    (Reason.MAX_REQUESTS, {"max_requests": 2}, lambda s: fork(s, "a", "c")),
    (Reason.SWAP_SPACE, {"swap_blocks": 1}, lambda s: preempt(s, "a", "swap")),
    (Reason.PINNED, {}, lambda s: reset_prefix_index(pin(s, (1, 2)).state)),
]


@pytest.mark.parametrize(("reason", "options", "call"), REFUSALS)
def test_refused_gives_its_reason_and_changes_nothing(
    reason: Reason, options: dict[str, Any], call: Callable[[State], Transition]
) -> None:
    s = two_requests(**options)
    before = s.copy()
    after, outcome = call(s)
    assert outcome == Refused(reason)
    assert s == before
    assert after == s or reason is Reason.PINNED


def test_a_window_refuses_to_bring_back_what_it_released() -> None:
    s, _ = admit(State(Config(num_blocks=8, block_size=1, sliding_window=2, max_rollback=1)), "a", (1, 2, 3, 4, 5))
    s, _ = commit(s, "a", 5)
    assert s.requests["a"].table[:3] == (-1, -1, -1)
    assert truncate(s, "a", 4).outcome == Ok()  # within max_rollback
    assert truncate(s, "a", 3).outcome == Refused(Reason.RELEASED)


def test_sinks_are_never_released_and_count_in_need() -> None:
    s, _ = admit(State(Config(num_blocks=6, block_size=2, sliding_window=2, sink_tokens=3)), "a", tuple(range(10)))
    s, _ = commit(s, "a", 10)
    assert s.requests["a"].table == (0, 1, HOLE, HOLE, 4)
    assert truncate(s, "a", 9).outcome == Ok()
    assert truncate(s, "a", 8).outcome == Refused(Reason.RELEASED)
    assert truncate(s, "a", 3).outcome == Refused(Reason.RELEASED), "nor into the sinks"
    s, _ = free(s, "a")
    s, outcome = admit(s, "b", tuple(range(10)))
    assert (outcome, s.requests["b"].table) == (Ok(cached_tokens=8), (0, 1, HOLE, 3, 5))
    assert available(s) == 2, "of its five blocks four are needed"


def test_sinks_mean_nothing_without_a_window() -> None:
    config = Config(num_blocks=6, block_size=2, sink_tokens=3)
    s, _ = admit(State(config), "a", tuple(range(10)))
    s, _ = commit(s, "a", 10)
    assert s.requests["a"].holes == sink_blocks(config) == 0
    assert truncate(s, "a", 1).outcome == Ok()


@pytest.mark.parametrize("sinks", [0, 1, 2, 3, 9])
@pytest.mark.parametrize(("block_size", "window", "rollback"), [(1, 1, 0), (2, 1, 1), (2, 3, 0), (3, 4, 2)])
def test_a_block_dies_once_no_query_to_come_sees_a_position_of_it(
    sinks: int, block_size: int, window: int, rollback: int
) -> None:
    """By going through all queries to come, the earliest one after the largest rollback first."""
    config = Config(
        num_blocks=40, block_size=block_size, sliding_window=window, sink_tokens=sinks, max_rollback=rollback
    )
    for computed in range(20):
        to_come = {p // block_size for q in range(max(0, computed - rollback), 40) for p in seen_by(config, q)}
        written_full = set(range(computed // block_size))
        assert set(dead_blocks(config, computed)) == written_full - to_come


def test_a_wholly_cached_prompt_leaves_one_token_to_compute() -> None:
    s, _ = admit(State(Config(num_blocks=8, block_size=2)), "a", (1, 2, 3, 4))
    s, _ = commit(s, "a", 4)
    assert lookup(s, (1, 2, 3, 4)).outcome == Ok(cached_tokens=4)  # uncapped
    assert admit(s, "b", (1, 2, 3, 4)).outcome == Ok(cached_tokens=2)  # one whole block is left


def test_a_hit_needs_the_namespace_and_the_whole_path() -> None:
    s, _ = admit(State(Config(num_blocks=8, block_size=2)), "a", (1, 2, 3, 4), "tenant")
    s, _ = commit(s, "a", 4)
    assert lookup(s, (1, 2), "tenant").outcome == Ok(cached_tokens=2)
    assert lookup(s, (1, 2), "other").outcome == Ok()
    assert lookup(s, (3, 4), "tenant").outcome == Ok()


def test_what_is_freed_while_a_step_is_in_flight_waits_for_it_and_no_longer() -> None:
    s, _ = admit(State(Config(num_blocks=2, block_size=2, overlapped_steps=True)), "a", (1, 2, 3))
    s, _ = begin_step(s, "s1")
    s, _ = free(s, "a")
    s, _ = begin_step(s, "s2")  # began after the release
    assert available(s) == 0
    s, _ = end_step(s, "s1")
    assert available(s) == 2


def test_a_write_into_an_indexed_block_drops_its_entry_only_if_nobody_else_holds_it() -> None:
    s, _ = admit(State(Config(num_blocks=4, block_size=2)), "a", (1, 2))
    s, _ = commit(s, "a", 2)
    s, _ = truncate(s, "a", 1)
    alone, outcome = append(s, "a", (9,))
    assert outcome == Ok(slots=(1,))
    assert lookup(alone, (1, 2)).outcome == Ok()
    pinned, _ = pin(s, (1, 2))
    pinned, outcome = append(pinned, "a", (9,))
    assert isinstance(outcome, Ok)
    assert len(outcome.copies) == 1
    assert lookup(pinned, (1, 2)).outcome == Ok(cached_tokens=2)
