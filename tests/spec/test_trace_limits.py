"""What no trace may hold: numbers, texts, nestings and sizes that would stop whoever reads or runs it."""

import json
import time

import pytest

from pagedkv.spec import operations as ops
from pagedkv.spec.expectation import Range
from pagedkv.spec.streams import MAX_COUNT, MAX_STREAMED, Stream, Streamed
from pagedkv.spec.trace import Header, Line, Trace, TraceError, dumps, parse
from pagedkv.spec.trace_fields import MAX_BLOCKS, MAX_SLOTS, MAX_SWAP_BLOCKS
from pagedkv.spec.words import Config, Misuse
from tests.spec.trace_strategies import HEADER, SCHEMA, VALID_HEADER

FREE = '{"op": "free", "request": "a", '


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (FREE + '"t": ' + "9" * 5_000 + "}", "one JSON object"),
        (FREE + '"t": ' + "9" * 400 + "}", "a number"),
        (FREE + '"t": -' + "9" * 400 + "}", "a number"),
        ('{"op": "evict", "blocks": ' + "9" * 5_000 + "}", "one JSON object"),
        (FREE + '"x-deep": ' + "[" * 100_000 + "]" * 100_000 + "}", "one JSON object"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, "one JSON object"),
        (FREE + '"expect": {"copies": {"min": 3, "max": 1}}}', "max=1 is not allowed: expected at least 3"),
        ('{"op": "free", "request": "\\ud800"}', "a string of Unicode characters"),
        ('{"op": "lookup", "tokens": [], "namespace": "a\\udfff"}', "a string of Unicode characters"),
        ('{"op": "lookup", "tokens": {"stream": "\\ud800", "start": 0, "count": 1}}', "a string of Unicode"),
    ],
    ids=lambda text: text[:40],
)
def test_what_would_stop_the_reader_is_an_error_with_its_line(line: str, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        parse(f"{HEADER}\n{line}\n", "bug.jsonl")
    assert (caught.value.file, caught.value.line) == ("bug.jsonl", 2)
    assert len(str(caught.value)) < 700


def test_whole_surrogate_pairs_are_text() -> None:
    assert parse(HEADER + '\n{"op": "free", "request": "\\ud83d\\ude00"}').lines[0].op == ops.Free("\U0001f600")


def test_a_reason_is_told_in_plain_words() -> None:
    with pytest.raises(TraceError, match="expected one of 'unservable', 'max_requests', 'released'"):
        parse(f'{HEADER}\n{FREE}"expect": {{"reason": "full"}}}}')


def test_an_object_of_many_keys_is_read_in_linear_time() -> None:
    many = json.dumps({f"x-{i}": 0 for i in range(200_000)})
    start = time.perf_counter()
    parse(f"{HEADER}\n{FREE}{many[1:]}")
    assert time.perf_counter() - start < 10, "quadratic takes minutes"


def test_a_range_that_holds_no_count_is_misuse() -> None:
    assert 2 in Range(2, 2)
    with pytest.raises(Misuse, match=r"max=1 .* at least 3"):
        Range(3, 1)


@pytest.mark.parametrize(
    ("num_blocks", "block_size", "swap_blocks", "argument"),
    [
        (MAX_BLOCKS + 1, 1, 0, "header.num_blocks"),
        (10**12, 1, 0, "header.num_blocks"),
        (1, MAX_SLOTS + 1, 0, r"header.num_blocks \* block_size"),
        (MAX_BLOCKS, MAX_SLOTS // MAX_BLOCKS + 1, 0, r"header.num_blocks \* block_size"),
        (1, 1, MAX_SWAP_BLOCKS + 1, "header.options.swap_blocks"),
    ],
)
def test_a_pool_that_no_machine_should_make_is_refused(
    num_blocks: int, block_size: int, swap_blocks: int, argument: str
) -> None:
    config = Config(num_blocks, block_size, swap_blocks=swap_blocks)
    fields = {"pagedkv_trace": 1, "num_blocks": num_blocks, "block_size": block_size}
    header = {**fields, "options": {"swap_blocks": swap_blocks}}
    with pytest.raises(TraceError, match=f"<trace>:1: {argument}=.* at most"):
        parse(json.dumps(header))
    with pytest.raises(Misuse, match=argument):
        dumps(Trace(Header.of(config), ()))
    assert VALID_HEADER.is_valid(header) == (num_blocks <= MAX_BLOCKS and block_size <= MAX_SLOTS and not swap_blocks)


def test_the_schema_has_the_same_limits() -> None:
    header = SCHEMA["$defs"]["header"]["properties"]
    assert header["num_blocks"]["maximum"] == MAX_BLOCKS
    assert header["block_size"]["maximum"] == MAX_SLOTS
    assert header["options"]["properties"]["swap_blocks"]["maximum"] == MAX_SWAP_BLOCKS


def test_the_streams_of_a_trace_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is expanded once they are too long together."""
    expanded: list[int] = []

    def note(name: str, start: int, count: int) -> tuple[int, ...]:
        expanded.append(count)
        return ()

    monkeypatch.setattr("pagedkv.spec.streams.stream_tokens", note)
    part = f'{{"stream": "u", "start": 0, "count": {MAX_COUNT}}}'
    uses = MAX_STREAMED // MAX_COUNT
    lookup = f'{{"op": "lookup", "tokens": {part}}}\n'
    parse(f"{HEADER}\n{lookup * uses}")
    assert expanded == [MAX_COUNT] * uses
    rows = ", ".join([f'{{"op": "append", "request": "a", "tokens": [{part}]}}'] * 100)
    for lines, number in (
        (lookup * (uses + 1), uses + 2),
        (f'{{"op": "lookup", "tokens": [{", ".join([part] * 100)}]}}', 2),
        (f'{{"op": "batch", "ops": [{rows}]}}', 2),
        (lookup.replace(str(MAX_COUNT), f"{MAX_COUNT}.0") * (uses + 1), uses + 2),
    ):
        expanded.clear()
        with pytest.raises(TraceError, match=r"tokens of all streams=.* at most") as caught:
            parse(f"{HEADER}\n{lines}")
        assert caught.value.line == number
        assert sum(expanded) <= MAX_STREAMED
    line = Line(ops.Lookup(Streamed((Stream("u", 0, MAX_COUNT),))))
    with pytest.raises(Misuse, match="tokens of all streams"):
        dumps(Trace(Header(8, 4), (line,) * (uses + 1)))
