"""Failing programs are made minimal: nothing can go on its own, the law stays the same, and the trace replays."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.in_time import IN_TIME
from pagedkv.conformance.differential.violation import Violation
from pagedkv.conformance.failures import shrinking
from pagedkv.conformance.failures.replay import replay
from pagedkv.conformance.failures.shrinking import (
    Failure,
    attempt,
    cost_of,
    fault,
    is_simpler,
    minimise,
    trace_of,
)
from pagedkv.conformance.failures.steps import cost, single_steps
from pagedkv.conformance.failures.text import Program, cut
from pagedkv.conformance.programs.choosing import Dice
from pagedkv.conformance.programs.generator import Programmer
from pagedkv.conformance.programs.plans import declared, draw_plan
from pagedkv.reference.manager import BlockManager
from pagedkv.spec import (
    Admit, Append, Batch, BeginStep, Commit, Config, EndStep, Evict, Fork, Free, Lookup, Ok, Operation, Outcome, Pin,
    Preempt, Refused, RequestId, Reserve, Resume, Token, Truncate,
)  # fmt: skip
from pagedkv.spec.subject import Capabilities, SubjectFactory
from pagedkv.spec.trace import dumps, parse

from tests.conformance.illegal import ILLEGAL

A_HANDFUL = (
    "skipped_copy_on_write", "freed_while_shared", "spurious_refusal", "limit_of_requests_ignored", "pins_do_not_nest",
    "wrong_namespace_hit", "held_for_the_latest_step_only", "window_released_one_token_early", "swap_loses_the_holes",
)  # fmt: skip


@cache
def broken(name: str) -> SubjectFactory:
    """A manager, each name once: to make one takes longer than to find out what is wrong with it."""
    factory: SubjectFactory = ILLEGAL[name].load()
    return factory


def failing(factory: SubjectFactory, seed: int) -> Failure:
    """The first failing program of a seed."""
    for number in range(2_000):
        dice = Dice(f"{seed}/{number}")
        plan = draw_plan(dice, declared(factory))
        differential = Differential(factory, plan.config)
        programmer = Programmer(dice, plan, differential.capabilities)
        try:
            for _ in range(60):
                differential.step(programmer.next(differential.state))
        except Violation as violation:
            return Failure(plan.config, tuple(differential.log), violation)
    raise AssertionError("it is found in fewer programs")


@settings(max_examples=6)
@given(name=st.sampled_from(A_HANDFUL), seed=st.integers(0, 1 << 20))
def test_of_a_minimal_program_nothing_can_go(name: str, seed: int) -> None:
    """No single step leads to a simpler program that breaks the law, and minimising it again changes nothing."""
    factory = broken(name)
    found = failing(factory, seed)
    least = minimise(factory, found)
    assert fault(least.violation) == fault(found.violation)
    assert cost_of(least) <= cost_of(found)
    for candidate in single_steps(least.config, least.program):
        again = attempt(factory, *candidate)
        assert again is None or not is_simpler(again, least), candidate
    assert minimise(factory, least)[:2] == least[:2]
    assert minimise(factory, found)[:2] == least[:2], "and it is always the same one"
    trace = parse(dumps(trace_of(least)))
    report = replay(trace, factory)
    assert (report.verdict, report.law) == ("violation", found.violation.law)
    assert replay(trace, BlockManager).verdict == "holds"


def test_a_program_with_much_around_it_ends_as_one_would_write_it() -> None:
    """The pool, the text and the names are as small as the law allows, and what belongs to other requests is gone."""
    others: list[Operation] = [Admit("x", (7, 9), "tenant"), Commit("x", 2), Lookup((9,)), Append("x", (1,))]
    core: list[Operation] = [Admit("long name", tuple(range(30, 43))), Commit("long name", 13), Fork("long name", "b")]
    steps: list[Operation] = [
        BeginStep("first"),
        *others,
        *core,
        EndStep("first"),
        Commit("x", 3),
        Preempt("x"),
        Evict(2),
    ]
    last = Batch((Append("b", (4, 5)), Append("long name", (1,))), step="second")
    config = Config(16, 4, swap_blocks=3, max_requests=9, overlapped_steps=True)
    failure = attempt(broken("skipped_copy_on_write"), config, (*steps, last))
    assert failure is not None
    least = minimise(broken("skipped_copy_on_write"), failure)
    assert least.config == Config(2, 2, prefix_cache=False)
    assert least.program == (Admit("a", (0,)), Commit("a", 1), Fork("a", "b"), Append("b", (0,)))
    assert attempt(BlockManager, config, (*steps, last)) is None


def test_budgets_end_it_early() -> None:
    factory = broken("skipped_copy_on_write")
    found = failing(factory, 0)
    spent = minimise(factory, found, attempts=0)
    assert spent[:3] == found[:3]
    assert "not minimal" in spent.stopped
    assert minimise(factory, found, budget_s=0.0)[:3] == found[:3]
    some, all_of_them = minimise(factory, found, attempts=20), minimise(factory, found)
    assert cost_of(all_of_them) < cost_of(some) < cost_of(found)


def test_no_candidate_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    factory, tried = broken("pins_do_not_nest"), []
    found = failing(factory, 0)

    def counted(factory: SubjectFactory, config: Config, program: Program, *, limit_s: float) -> Failure | None:
        tried.append((config, program))
        return attempt(factory, config, program, limit_s=limit_s)

    monkeypatch.setattr(shrinking, "attempt", counted)
    minimise(factory, found)
    assert len(tried) == len(set(tried)) > 20


class RaisesTwice(BlockManager):
    """Two faults of one law: of no tokens it says something else than `Misuse`, and three requests are too many."""

    def append(self, request: RequestId, tokens: Sequence[Token]) -> Outcome:
        if not tokens:
            raise KeyError("no tokens")
        if len(self.observe().tables) > 2:
            raise ZeroDivisionError
        return super().append(request, tokens)


def test_an_exception_of_another_type_is_another_fault() -> None:
    program: tuple[Operation, ...] = (*(Admit(name, (1, 2)) for name in "abc"), Append("a", (1,)))
    failure = attempt(RaisesTwice, Config(8, 2), program)
    assert failure is not None
    least = minimise(RaisesTwice, failure)
    assert fault(least.violation)[1] == "ZeroDivisionError"
    assert len(least.program) == 4


class Leaking(BlockManager):
    """Gives nothing back, cannot be made with fewer than three blocks, and does not declare a swap."""

    def __init__(self, config: Config) -> None:
        if config.num_blocks < 3:
            raise ValueError("too small for us")
        super().__init__(config)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, swap=False)

    def free(self, request: RequestId) -> Outcome:
        return Ok()


def test_a_pool_that_the_subject_cannot_be_made_with_is_not_tried() -> None:
    failure = attempt(Leaking, Config(9, 2), (Admit("a", (1,)), Free("a")))
    assert failure is not None
    assert minimise(Leaking, failure).config == Config(3, 1, prefix_cache=False)


def test_what_a_subject_does_not_declare_is_not_asked_of_it() -> None:
    assert attempt(Leaking, Config(4, 2), (Admit("a", (1,)), Free("a"))) is not None
    assert attempt(Leaking, Config(4, 2), (Admit("a", (1,)), Preempt("a", "swap"), Free("a"))) is None


class Hanging(BlockManager):
    """Leaks, and in a pool of one block never answers."""

    def free(self, request: RequestId) -> Outcome:
        while self.config.num_blocks == 1:
            pass
        return Ok()


def test_what_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "LIMIT_OF_AN_ATTEMPT_S", 0.03)
    failure = attempt(Hanging, Config(9, 2), (Admit("a", (1,)), Free("a")))
    assert failure is not None
    assert minimise(Hanging, failure).config == Config(2, 1, prefix_cache=False)


def test_to_hang_is_a_failure_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "LIMIT_OF_AN_ATTEMPT_S", 0.03)
    program = (Admit("b", (1,)), Admit("a", (1,)), Commit("b", 1), Free("b"))
    failure = attempt(Hanging, Config(1, 4), program, limit_s=0.05)
    assert failure is not None
    assert failure.violation.law == IN_TIME
    least = minimise(Hanging, failure)
    assert least.violation.law == IN_TIME
    assert least.program == (Free("a"),)


def test_what_does_not_happen_again_is_left_as_it_is() -> None:
    failure = attempt(broken("spurious_refusal"), Config(4, 2), (Admit("a", (1, 2, 3)), Free("a")))
    assert failure is not None
    assert minimise(BlockManager, failure) is failure


PROGRAM: tuple[Operation, ...] = (
    Admit("a", (10, 11, 12, 13, 14), reserve=4), Commit("a", 4), Reserve("a", 7), Commit("a", 5), Fork("a", "b"),
    Batch((Append("a", (15, 16)), Append("b", (25,)))), Truncate("b", 3), Free("a"), Admit("a", (30, 31, 32)),
    Pin((10, 11, 12, 13)), Resume("b"),
)  # fmt: skip


def test_a_position_that_goes_is_counted_no_more() -> None:
    assert cut(PROGRAM, at=3) == (
        Admit("a", (10, 11, 12, 14), reserve=3), Commit("a", 3), Reserve("a", 6), Commit("a", 4), Fork("a", "b"),
        Batch((Append("a", (15, 16)), Append("b", (25,)))), Truncate("b", 3), Free("a"), Admit("a", (30, 31, 32)),
        Pin((10, 11, 12)), Resume("b"),
    )  # fmt: skip


def test_a_token_of_one_request_goes_from_its_children_too_and_from_nobody_else() -> None:
    assert cut(PROGRAM, at=2, request="a") == (
        Admit("a", (10, 11, 13, 14), reserve=3), Commit("a", 3), Reserve("a", 6), Commit("a", 4), Fork("a", "b"),
        Batch((Append("a", (15, 16)), Append("b", (25,)))), Truncate("b", 2), Free("a"), Admit("a", (30, 31, 32)),
        Pin((10, 11, 12, 13)), Resume("b"),
    )  # fmt: skip


def test_smaller_blocks_are_as_full_as_the_larger_ones_were() -> None:
    """One position of each three goes: six tokens, two blocks, become four, and no text is left empty."""
    program = (Admit("a", (10, 11, 12, 13, 14, 15)), Commit("a", 5), Append("a", (16, 17)), Append("a", (18,)))
    assert cut(program, every=3, at=2) == (Admit("a", (10, 11, 13, 14)), Commit("a", 4), Append("a", (16, 17)))


@settings(max_examples=25)
@given(st.integers(0, 1 << 20))
def test_every_step_is_another_program_and_some_are_simpler(seed: int) -> None:
    dice = Dice(seed)
    plan = draw_plan(dice, declared(BlockManager))
    differential = Differential(BlockManager, plan.config)
    for _ in range(8):
        differential.step(Programmer(dice, plan, differential.capabilities).next(differential.state))
    program = tuple(differential.log)
    costs = [cost(*candidate) for candidate in single_steps(plan.config, program)]
    assert sum(each < cost(plan.config, program) for each in costs) >= len(program)


class NeedlessCopy(BlockManager):
    """A child copies before its first append whether or not anybody else is there."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.children = set[RequestId]()

    def fork(self, parent: RequestId, child: RequestId) -> Outcome:
        outcome = super().fork(parent, child)
        self.children.add(child)
        return outcome

    def append(self, request: RequestId, tokens: Sequence[Token]) -> Outcome:
        inside = request in self.children and len(self.requests[request].tokens) % self.config.block_size
        outcome = super().append(request, tokens)
        if isinstance(outcome, Refused) or not inside or outcome.copies:
            return outcome
        return replace(outcome, slots=(99,) * len(outcome.slots))


def test_who_forks_and_leaves_is_left_out_and_text_that_grew_begins_as_long_as_it_has_to_be() -> None:
    program = (
        Admit("a", (0, 0)), Commit("a", 2), Fork("a", "b"), Append("b", (0,)), Commit("b", 3), Free("a"),
        Fork("b", "a"), Free("b"), Append("a", (0,)),
    )  # fmt: skip
    failure = attempt(NeedlessCopy, Config(num_blocks=4, block_size=2, prefix_cache=False), program)
    assert failure is not None
    least = minimise(NeedlessCopy, failure).program
    assert len(least) == 5
