"""Recordings: they are the program, they replay anywhere, and they are there when the engine is not any more."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.failures.replay import replay
from pagedkv.conformance.failures.shrinking import finish
from pagedkv.conformance.process.names import Names
from pagedkv.conformance.programs.choosing import Dice
from pagedkv.conformance.programs.generator import Programmer
from pagedkv.conformance.programs.plans import declared, draw_plan
from pagedkv.conformance.recorder import Log, Recorder
from pagedkv.optimized.subject import OptimizedSubject
from pagedkv.reference.manager import BlockManager
from pagedkv.spec import (
    Admit, Append, Attend, Batch, BeginStep, Commit, Config, EndStep, Evict, Fork, Free, Lookup, Misuse, Ok,
    Operation, Outcome, Permute, Pin, Preempt, RequestId, Reserve, ResetPrefixIndex, Resume, Truncate, Unpin,
)  # fmt: skip
from pagedkv.spec.expectation import Range
from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import Trace, load, sample

CONFIG = Config(num_blocks=4, block_size=2)
PLAIN = replace(CONFIG, prefix_cache=False)
MANAGERS: list[SubjectFactory] = [BlockManager, OptimizedSubject]


def recorded(manager: SubjectFactory, path: Path, seed: int, **how: Any) -> tuple[list[Operation], Trace]:
    """A random program on a manager that is recorded: the program, and the recording."""
    dice = Dice(seed)
    plan = draw_plan(dice, declared(manager))
    recorders = []

    def recording(config: Config) -> Recorder:
        recorders.append(Recorder(manager(config), config, path, **how))
        return recorders[-1]

    differential = Differential(recording, plan.config)
    programmer = Programmer(dice, plan, differential.capabilities)
    for _ in range(30):
        differential.step(programmer.next(differential.state))
    finish(differential)
    recorders[0].close()
    return differential.log, load(path)


@pytest.mark.parametrize("manager", MANAGERS)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_a_recording_is_the_program_and_holds_on_every_manager(
    manager: SubjectFactory, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    program, trace = recorded(manager, tmp_path_factory.mktemp("r") / "trace.jsonl", seed, observe=seed % 2 == 0)
    assert [line.op for line in trace.lines] == [
        operation for operation in program if not isinstance(operation, Permute)
    ]
    for other in MANAGERS:
        report = replay(trace, other)
        assert report.verdict == "holds", report


@pytest.mark.parametrize("manager", MANAGERS)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_what_was_seen_is_seen_again_by_the_same_manager(
    manager: SubjectFactory, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    _, trace = recorded(manager, tmp_path_factory.mktemp("r") / "trace.jsonl", seed, observe=True, strict=True)
    assert all(line.expect.outcome for line in trace.lines)
    assert all(line.expect.available_blocks is not None for line in trace.lines)
    report = replay(trace, manager)
    assert report.verdict == "holds", report


def test_an_engine_that_did_something_else_is_found_out(tmp_path: Path) -> None:
    class Leaking(BlockManager):
        """Has one block less than it should, after the first request."""

        def observe(self, requests: Any = None) -> Any:
            seen = super().observe(requests)
            return replace(seen, available_blocks=seen.available_blocks - 1)

    path = tmp_path / "trace.jsonl"
    with Recorder(Leaking(PLAIN), PLAIN, path, observe=True) as manager:
        manager.admit("a", (1, 2))
    report = replay(load(path), BlockManager)
    assert (report.verdict, report.at_line) == ("violation", 2)
    assert report.detail == "available_blocks: the trace has 2, the specification says 3"


EVERY: tuple[Operation, ...] = (
    Admit("a", (1, 2, 3), "n", 2), Reserve("a", 3), Commit("a", 3), Fork("a", "b"), Append("b", (4,)), Truncate("b", 2),
    Batch((Append("a", (1,)), Append("b", (1,))), "s"), Preempt("a", "swap"), Resume("a"), Lookup((1, 2), "n"),
    Pin((1, 2), "n"), Unpin((1, 2), "n"), Evict(1), ResetPrefixIndex(), BeginStep("s"), EndStep("s"), Free("a"),
    Attend(("b",), (1,)),
)  # fmt: skip


def test_a_log_writes_every_operation(tmp_path: Path) -> None:
    with Log(tmp_path / "t", CONFIG, note="by hand") as log:
        for operation in EVERY:
            log.run(operation)
        assert log.permute([1, 0, 2, 3]) == Ok()
    trace = load(tmp_path / "t")
    assert tuple(line.op for line in trace.lines) == EVERY
    assert (trace.header.config(), trace.header.note) == (CONFIG, "by hand")
    assert {type(line.op) for line in sample().lines} <= {type(operation) for operation in EVERY} | {Permute}


def test_ids_and_numbers_of_any_kind(tmp_path: Path) -> None:
    tokens, one, three = (cast(Any, number) for number in (np.arange(3), np.int32(1), np.int64(3)))
    with Log(tmp_path / "t", CONFIG, times=True) as log:
        log.admit(("conversation", 7), tokens, namespace=frozenset({"adapter"}))
        log.admit("~odd", [True], namespace=None)
        log.admit(8, (1,), reserve=one)
        log.admit("8", (1,))
        log.commit(("conversation", 7), three)
        log.batch([Free(8), Free(("conversation", 7))])
        log.admit(("conversation", 7), (1,))
    lines = load(tmp_path / "t").lines
    first, odd, eight, text, commit, batch, again = (line.op for line in lines)
    assert first == Admit("~conversation.7", (0, 1, 2), "~frozenset.adapter")
    assert (odd, eight, text) == (Admit("~odd", (1,), "~None"), Admit("~8", (1,), "", 1), Admit("8", (1,)))
    assert commit == Commit("~conversation.7", 3)
    assert batch == Batch((Free("~8"), Free("~conversation.7")))
    assert again == Admit("~conversation.7", (1,))
    times = [line.t for line in lines if line.t is not None]
    assert len(times) == len(lines)
    assert times == sorted(times)


@pytest.mark.parametrize("tokens", [[1.5], ["1"], [None]])
def test_what_no_trace_can_have_is_misuse_and_not_written(tokens: list[Any], tmp_path: Path) -> None:
    with Log(tmp_path / "t", CONFIG) as log:
        with pytest.raises(Misuse, match="tokens="):
            log.append("a", tokens)
        log.free("a")
    assert [line.op for line in load(tmp_path / "t").lines] == [Free("a")]


def test_a_pool_that_no_trace_can_have_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="num_blocks"):
        Log(tmp_path / "t", Config(num_blocks=2**21, block_size=1))


def test_an_expectation_is_of_the_last_line_of_the_same_thread(tmp_path: Path) -> None:
    with Log(tmp_path / "t", CONFIG) as log:
        assert not log.expect(outcome="ok")  # of the header there is none
        log.admit("a", (1, 2))
        assert log.expect(outcome="ok", available_blocks=3)
        assert not log.expect(outcome="ok")  # it has one
        log.admit("b", (1, 2))
        other = threading.Thread(target=log.free, args=("a",))
        other.start()
        other.join()
        assert not log.expect(outcome="refused")
        log.lookup((1,))
        for wrong in ({"colour": "red"}, {"outcome": "maybe"}, {"copies": "many"}):
            with pytest.raises(Misuse, match=next(iter(wrong))):
                log.expect(**wrong)
        assert log.expect(cached_tokens=Range(max=4))
    first, second, third, fourth = load(tmp_path / "t").lines
    assert fourth.expect.cached_tokens == Range(max=4)
    assert (first.expect.outcome, first.expect.available_blocks) == ("ok", 3)
    assert second.expect == third.expect == type(first.expect)()


def test_ids_that_are_used_no_more_are_forgotten(tmp_path: Path) -> None:
    """A live engine has a new id for each request and each step, for months."""
    with Log(tmp_path / "t", CONFIG) as log:
        for number in range(20):
            log.begin_step(number)
            log.admit(("r", number), (1,), namespace=0)
            log.run(Batch((Append(("r", number), (2,)),), step=number))
            log.run(Batch((Append(("r", number), (3,)),), step=("a label", number)))
            log.end_step(number)
            log.batch([Free(("r", number))])
        kept = {id(names): names for names in vars(log).values() if isinstance(names, Names)}
        assert sum(len(names._ids) + len(names._texts) for names in kept.values()) == 2  # the namespace
        assert not log._begun
    begun = [line.op.step for line in load(tmp_path / "t").lines if isinstance(line.op, BeginStep)]
    assert begun == [f"~{number}" for number in range(20)]


def test_a_step_has_one_name_from_its_begin_to_its_end(tmp_path: Path) -> None:
    with Log(tmp_path / "t", CONFIG) as log:
        log.begin_step((1,))
        log.begin_step("(1,)")
        log.begin_step("1,")
        log.run(Batch((Append("a", (2,)),), step=(1,)))
        log.begin_step("1")
        log.begin_step(1)
        log.end_step((1,))
        log.end_step(1)
    steps = [getattr(line.op, "step", None) for line in load(tmp_path / "t").lines]
    assert steps == ["~1", "(1,)", "1,", "~1", "1", "~1~2", "~1", "~1~2"]


def test_threads_do_not_tear_lines(tmp_path: Path) -> None:
    def work(log: Log, name: str) -> None:
        for _ in range(50):
            log.append(name, (1,) * 100)
            log.expect(outcome="ok")

    with Log(tmp_path / "t", CONFIG) as log:
        threads = [threading.Thread(target=work, args=(log, f"r{i}")) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(load(tmp_path / "t").lines) == 200


DIES = """
import os, sys
from pagedkv.conformance.recorder import Recorder
from pagedkv.reference.manager import BlockManager
from pagedkv.spec import Config

class Dying(BlockManager):
    def fork(self, parent, child):
        os.abort()

config = Config(num_blocks=4, block_size=2)
manager = Recorder(Dying(config), config, sys.argv[1], strict=True)
manager.admit("a", (1,))
manager.commit("a", 1)
manager.fork("a", "b")
"""


def test_the_last_line_is_what_the_engine_died_of(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    died = subprocess.run([sys.executable, "-c", DIES, str(path)], check=False, timeout=60)
    assert died.returncode == -6
    trace = load(path)
    assert [line.op for line in trace.lines] == [Admit("a", (1,)), Commit("a", 1), Fork("a", "b")]
    assert [line.expect.outcome for line in trace.lines] == ["ok", "ok", None]
    assert replay(trace, BlockManager).verdict == "holds"


def test_what_is_raised_is_raised(tmp_path: Path) -> None:
    with Recorder(BlockManager(CONFIG), CONFIG, tmp_path / "t", strict=True) as manager:
        with pytest.raises(Misuse, match="request="):
            manager.free("nobody")
        assert manager.capabilities == BlockManager(CONFIG).capabilities
    (line,) = load(tmp_path / "t").lines
    assert line.expect.outcome == "error"
    assert "x-misuse" in (tmp_path / "t").read_text(encoding="utf-8")


def test_no_copy_and_no_hit_are_answers_too(tmp_path: Path) -> None:
    class Careless(BlockManager):
        def append(self, request: RequestId, tokens: Any) -> Outcome:
            outcome = super().append(request, tokens)
            return replace(outcome, copies=()) if isinstance(outcome, Ok) else outcome

        def commit(self, request: RequestId, computed: int) -> Any:
            super().commit(request, computed)

    config = Config(num_blocks=4, block_size=2, prefix_cache=False)
    with Recorder(Careless(config), config, tmp_path / "t") as recorder:
        recorder.admit("a", (1,))
        recorder.commit("a", 1)
        recorder.fork("a", "b")
        recorder.append("b", (2,))
    report = replay(load(tmp_path / "t"), BlockManager)
    assert (report.verdict, report.at_line) == ("violation", 5)
    assert report.detail == "copies: the trace has 0, the specification says 1"
    assert '"x-answer":"(None,)"' in (tmp_path / "t").read_text(encoding="utf-8"), "no answer is not ok"
