"""Traces: what is written is read back, and the shipped sample tells the truth."""

import json
import random
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.spec import operations as ops
from pagedkv.spec import program
from pagedkv.spec.blocks import Choices, available, available_in_order, evictable
from pagedkv.spec.operations import Fork
from pagedkv.spec.state import State
from pagedkv.spec.trace import (
    DATA,
    Expect,
    Header,
    Line,
    Range,
    Trace,
    TraceError,
    dumps,
    load,
    mismatches,
    parse,
    sample,
    save,
    stream_tokens,
)
from pagedkv.spec.trace_fields import OPERATIONS
from pagedkv.spec.words import Config, Misuse, Ok, Outcome, Reason, Refused
from tests.spec.trace_strategies import HEADER, SCHEMA, VALID_HEADER, VALID_LINE, lines, names, traces


@given(traces)
def test_what_is_written_is_read_back(trace: Trace) -> None:
    text = dumps(trace)
    assert parse(text) == trace
    assert dumps(parse(text)) == text, "streams are written as streams again"


@given(traces)
def test_the_schema_accepts_what_is_written(trace: Trace) -> None:
    first, *rest = [json.loads(line) for line in dumps(trace).splitlines()]
    VALID_HEADER.validate(first)
    for line in rest:
        VALID_LINE.validate(line)


@given(st.data(), lines)
def test_an_unknown_key_is_an_error_for_parser_and_schema(data: st.DataObject, line: Line) -> None:
    bad = json.loads(dumps(Trace(Header(1, 1), (line,))).splitlines()[1])
    parts = [bad, *bad.get("ops", []), *[bad[key] for key in ("expect",) if key in bad]]
    data.draw(st.sampled_from(parts))["lenght"] = 1
    assert not VALID_LINE.is_valid(bad)
    with pytest.raises(TraceError, match="lenght"):
        parse(HEADER + "\n" + json.dumps(bad))


@given(st.data(), lines)
def test_a_missing_key_is_an_error_for_parser_and_schema(data: st.DataObject, line: Line) -> None:
    bad = json.loads(dumps(Trace(Header(1, 1), (line,))).splitlines()[1])
    needed = ["ops" if field.name == "rows" else field.name for field in fields(line.op) if field.default is MISSING]
    del bad[data.draw(st.sampled_from(["op", *needed]))]
    assert not VALID_LINE.is_valid(bad)
    with pytest.raises(TraceError):
        parse(HEADER + "\n" + json.dumps(bad))


@given(lines)
def test_keys_of_others_are_ignored(line: Line) -> None:
    trace = Trace(Header(1, 1), (line,))
    first, second = (json.loads(text) for text in dumps(trace).splitlines())
    for part in (first, second, *second.get("ops", []), second.get("expect", {})):
        part["x-mine"] = {"any": [None]}
    VALID_HEADER.validate(first)
    VALID_LINE.validate(second)
    assert parse(json.dumps(first) + "\n" + json.dumps(second)) == trace


def test_streams_stay_small() -> None:
    mixed = '{"op": "lookup", "tokens": [{"stream": "system", "start": 0, "count": 600}, 7]}'
    single = '{"op": "lookup", "tokens": {"stream": "system", "start": 0, "count": 600}}'
    assert dumps(parse(f"{HEADER}\n{mixed}\n{single}")).splitlines()[1:] == [mixed, single]


def test_only_a_newline_ends_a_line() -> None:
    trace = parse(HEADER + '\r\n{"op": "free", "request": "a\u2028\u0085b"}\r\n')
    assert trace.lines[0].op == ops.Free("a\u2028\u0085b")


@given(names, st.integers(0, 2**40), st.integers(0, 20), st.integers(0, 20))
def test_a_stream_is_a_function_of_its_name_and_index(name: str, start: int, first: int, second: int) -> None:
    whole = stream_tokens(name, start, first + second)
    assert whole == stream_tokens(name, start, first) + stream_tokens(name, start + first, second)
    assert all(0 <= token < 2**31 for token in whole)


def test_streams_of_two_names_differ_and_ours_never_change() -> None:
    assert not set(stream_tokens("u1", 0, 1000)) & set(stream_tokens("u2", 0, 1000))
    assert stream_tokens("u1", 2**40, 2) == (257166041, 1628345801)


def test_the_schema_itself_is_one_and_names_every_operation() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    properties = [part.get("properties", {}) for part in SCHEMA["$defs"].values()]
    assert {part["op"]["const"] for part in properties if "op" in part} == set(OPERATIONS)


def test_a_file_keeps_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    save(sample(), path)
    assert load(path) == sample()


@pytest.mark.parametrize("config", [Config(8, 4), Config(3, 1, prefix_cache=False, swap_blocks=2, max_requests=None)])
def test_a_header_gives_back_the_configuration(config: Config) -> None:
    assert Header.of(config, seed=3).config() == config


# --- the sample -----------------------------------------------------------------------------------------------------


def observe(state: State, operation: ops.Operation, outcomes: tuple[Outcome, ...]) -> dict[str, object]:
    refused = next((outcome for outcome in outcomes if isinstance(outcome, Refused)), None)
    done = [outcome for outcome in outcomes if isinstance(outcome, Ok)]
    name = operation.child if isinstance(operation, Fork) else getattr(operation, "request", None)
    request = state.requests.get(name)
    return {
        "outcome": "refused" if refused else "ok",
        "reason": refused.reason if refused else None,
        "cached_tokens": sum(outcome.cached_tokens for outcome in done),
        "copies": sum(len(outcome.copies) for outcome in done),
        "available_blocks": available(state),
        "length": request.length if request else None,
    }


def replay(trace: Trace, apply: Callable[..., program.Run]) -> list[str]:
    state, problems = State(trace.header.config()), []
    for line in trace.lines:
        try:
            state, outcomes = apply(state, line.op)
        except Misuse as misuse:
            observed: dict[str, object] = {"outcome": "error", "error": misuse.argument}
        else:
            observed = observe(state, line.op, outcomes)
        problems += [f"line {line.number}: {problem}" for problem in mismatches(line.expect, observed)]
    return problems


def test_the_sample_holds_on_the_specification() -> None:
    assert replay(sample(), program.apply) == []


@given(st.randoms(use_true_random=False))
def test_the_sample_holds_whatever_a_legal_allocator_chooses(rng: random.Random) -> None:
    choices = Choices(
        block=lambda state, _request, _logical: rng.choice(list(available_in_order(state))),
        victims=lambda state, count: rng.sample(evictable(state), count),
    )
    assert replay(sample(), lambda state, operation: program.apply(state, operation, choices)) == []


def test_the_sample_has_every_operation_and_every_kind_of_outcome() -> None:
    trace = sample()
    assert {type(line.op) for line in trace.lines} == set(OPERATIONS.values())
    reasons = {line.expect.reason for line in trace.lines} - {None}
    assert reasons == set(Reason) - {Reason.RELEASED}, "released needs a sliding window"
    assert {line.expect.outcome for line in trace.lines} >= {"ok", "refused", "error"}
    first, *rest = (DATA / "sample.jsonl").read_text(encoding="utf-8").splitlines()
    VALID_HEADER.validate(json.loads(first))
    for line in rest:
        VALID_LINE.validate(json.loads(line))


def test_the_sample_notices_a_fork_that_copies_eagerly() -> None:
    def eager(state: State, operation: ops.Operation) -> program.Run:
        run = program.apply(state, operation)
        return program.apply(run.state, ops.Admit("copy", (1,))) if isinstance(operation, Fork) else run

    told = "available_blocks: the trace has 6, the specification says 5"
    assert any(told in problem for problem in replay(sample(), eager))


@pytest.mark.parametrize(
    ("expect", "observed", "problem"),
    [
        (Expect(copies=1), {"copies": 1}, None),
        (Expect(copies=1), {"copies": 2}, "copies: the trace has 1, the specification says 2"),
        (Expect(copies=Range(1, 2)), {"copies": 2}, None),
        (Expect(copies=Range(1, 2)), {"copies": 0}, "copies: the trace has 1 to 2, the specification says 0"),
        (Expect(copies=Range(max=2)), {"copies": 3}, "copies: the trace has at most 2, the specification says 3"),
        (Expect(copies=Range(min=2)), {"copies": 1}, "copies: the trace has at least 2, the specification says 1"),
        (Expect(length=3), {}, "length: the trace has 3, the specification says nothing"),
        (Expect(reason=Reason.CAPACITY), {"reason": "capacity"}, None),
    ],
)
def test_mismatches_says_what_was_expected(expect: Expect, observed: dict[str, object], problem: str | None) -> None:
    assert mismatches(expect, observed) == ([problem] if problem else [])
