"""Replay, and the corpus: programs that broke real block managers, each with what every legal one must answer."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pagedkv.conformance import corpus
from pagedkv.conformance.failures.replay import replay
from pagedkv.conformance.failures.shrinking import required
from pagedkv.conformance.importing import BUILT_IN
from pagedkv.conformance.subjects import subject
from pagedkv.reference.manager import BlockManager
from pagedkv.spec import (
    Admit, Append, Batch, Commit, Config, Fork, Free, Lookup, Misuse, Operation, Preempt, Resume,
)  # fmt: skip
from pagedkv.spec.subject import Capabilities
from pagedkv.spec.trace import Expect, Header, Line, Trace, load, parse, sample

from tests.conformance.illegal import ILLEGAL
from tests.conformance.legal import LEGAL

OF_OURS = [path for path in corpus.files() if not re.match(r"B\d{3}_", path.name)]
"""Those of a bug by its id have a mutant of their own, in `test_real_bugs`."""
ON_THE_HOST = re.compile(
    r"the subject (does not declare|cannot be made with .*:) (prefix_cache|reserve|preempt|swap|overlapped_steps)"
)
"""Why a trace is not applicable to the device pool."""
every_trace = pytest.mark.parametrize("path", OF_OURS, ids=lambda path: path.stem)


@pytest.mark.parametrize("name", BUILT_IN)
@every_trace
def test_the_corpus_holds_on_our_implementations(path: Path, name: str) -> None:
    report = replay(load(path), subject(name))
    assert report.verdict == "holds" or (name == "device" and ON_THE_HOST.match(report.detail)), report


def test_what_needs_no_prefix_index_holds_on_the_device() -> None:
    held = [path for path in corpus.files() if replay(load(path), subject("device")).verdict == "holds"]
    assert len(held) >= 17


@pytest.mark.parametrize("name", LEGAL)
def test_the_corpus_rejects_no_legal_allocator(name: str) -> None:
    reports = {path.stem: replay(load(path), LEGAL[name]) for path in corpus.files()}
    assert {stem: report for stem, report in reports.items() if report.verdict == "violation"} == {}


@every_trace
def test_every_trace_of_the_corpus_can_fail(path: Path) -> None:
    """Some broken manager breaks it, so it tests something."""
    trace = load(path)
    assert any(replay(trace, mutant.load()).verdict == "violation" for mutant in ILLEGAL.values())


@pytest.mark.parametrize("touched_only", [False, True])
@pytest.mark.parametrize("name", BUILT_IN)
def test_the_sample_holds(name: str, touched_only: bool) -> None:
    report = replay(sample(), subject(name), touched_only=touched_only)
    if name == "device":
        assert report.verdict == "not applicable", "it has every operation, and some are the host's"
        return
    assert report.verdict == "holds", report
    assert report.operations == len(sample().lines)


def program(*operations: Operation, config: Config | None = None, **header: Any) -> Trace:
    return Trace(Header.of(config or Config(4, 2), **header), tuple(map(Line, operations)))


def test_an_expectation_that_is_not_met_is_a_violation_at_its_line() -> None:
    text = """{"pagedkv_trace": 1, "num_blocks": 4, "block_size": 2}

    {"op": "admit", "request": "a", "tokens": [1, 2, 3], "expect": {"available_blocks": 2}}
    {"op": "commit", "request": "a", "computed": 3, "expect": {"outcome": "ok", "available_blocks": 1, "length": 4}}
    {"op": "free", "request": "a"}"""
    report = replay(parse(text), BlockManager)
    assert (report.verdict, report.at_line, report.law) == ("violation", 4, "the trace's expectation")
    assert report.detail == (
        "available_blocks: the trace has 1, the specification says 2; length: the trace has 4, the specification says 3"
    )
    assert report.as_json()["verdict"] == "violation"


def test_what_a_policy_promises_is_asked_of_who_declares_it() -> None:
    lines = [Line(op) for op in (Admit("a", (1, 2)), Commit("a", 2), Free("a"))]
    wrong = Line(Lookup((1, 2)), expect_policy={"lru": Expect(cached_tokens=0)})
    trace = Trace(Header(4, 2), (*lines, wrong))
    assert replay(trace, BlockManager).at_line == 5
    assert replay(trace, LEGAL["random_victim"]).verdict == "holds"


@pytest.mark.parametrize(
    ("config", "requires", "why"),
    [
        (Config(4, 2), ("fork", "swap"), "does not declare swap"),
        (Config(4, 2, publish="schedule"), (), "publish is 'schedule', the subject has 'commit'"),
        (Config(4, 2, dedup=True), (), "dedup is True, the subject has False"),
    ],
)
def test_a_trace_that_needs_more_does_not_apply(config: Config, requires: tuple[str, ...], why: str) -> None:
    class Forking(BlockManager):
        capabilities = Capabilities(fork=True)

    report = replay(program(Admit("a", (1,)), config=config, requires=requires), Forking)
    assert report.verdict == "not applicable"
    assert why in report.detail


@pytest.mark.parametrize("config", [Config(4, 2, publish="schedule"), Config(4, 2, dedup=True)])
def test_a_pool_that_the_subject_cannot_make_does_not_apply(config: Config) -> None:
    assert replay(program(Admit("a", (1,)), config=config), subject("optimized")).verdict == "not applicable"


@pytest.mark.parametrize("touched_only", [False, True])
def test_what_goes_wrong_elsewhere_is_seen_at_the_end(touched_only: bool) -> None:
    """A free that gives everybody's blocks away: at once, or, looking only at what is touched, when all is compared."""

    class Careless(BlockManager):
        def free(self, request: Any) -> Any:
            answer = super().free(request)
            for other in self.requests.values():
                other.table.reverse()
            return answer

    trace = program(Admit("a", (1, 2, 3)), Commit("a", 3), Admit("b", (4,)), Free("b"))
    report = replay(trace, Careless, touched_only=touched_only)
    assert (report.verdict, report.at_line) == ("violation", None if touched_only else 5)


def test_the_drain_rule_ends_a_trace() -> None:
    class Keeping(BlockManager):
        def observe(self, requests: Any = None) -> Any:
            seen = super().observe(requests)
            return replace(seen, available_blocks=seen.available_blocks - (not self.requests))

    report = replay(program(Admit("a", (1, 2, 3))), Keeping)
    assert (report.law, report.at_line) == ("counts add up", None)
    assert report.detail.startswith("at the end of the trace: 3 blocks available, expected 4")


def test_what_a_program_requires() -> None:
    append: Callable[[str], Append] = lambda name: Append(name, (1,))  # noqa: E731  # short for a test
    everything = (Fork("a", "b"), Batch((append("a"), append("b"))), Preempt("a", "swap"), Resume("a"), Lookup(()))
    assert required(Config(4, 2, prefix_cache=False), everything) == ("batch", "fork", "lookup", "swap")
    assert required(Config(4, 2, sliding_window=1), (Admit("a", (1,), reserve=0),)) == (
        "prefix_cache", "reserve", "sliding_window",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("refrence", "reference, optimized, device, "),
        ("no.such:thing", "there is no no"),
        ("pagedkv.reference.nothing:thing", "there is no pagedkv.reference.nothing"),
        ("pagedkv.spec:nothing", "a function or class in pagedkv.spec"),
        ("pagedkv.spec:HOLE", "a function or class in pagedkv.spec"),
    ],
)
def test_a_subject_that_is_not_there_is_misuse(name: str, allowed: str) -> None:
    with pytest.raises(Misuse, match="subject=") as caught:
        subject(name)
    assert allowed in str(caught.value)


def test_any_subject_can_be_named() -> None:
    found = subject("tests.conformance.legal:EvictingAll")
    assert found(Config(2, 2)).num_blocks == 2  # type: ignore[attr-defined]  # a pool, not a manager
