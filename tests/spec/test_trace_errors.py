"""A bad trace is an error that gives file, line and what was expected; the JSON Schema rejects the same lines."""

import json
from pathlib import Path

import pytest

from pagedkv.spec import operations as ops
from pagedkv.spec.trace import Header, Line, Trace, TraceError, dumps, load, parse
from pagedkv.spec.words import Misuse
from tests.spec.trace_strategies import HEADER, VALID_HEADER, VALID_LINE

BAD_LINES: list[tuple[str, str]] = [
    ('{"op": "alloc", "request": "a"}', "expected one of admit, reserve"),
    ('{"request": "a"}', "op=None"),
    ("[1]", "op=None"),
    ('{"op": "free"}', "'request' among them"),
    ('{"op": "free", "request": 1}', "request=1 .* a string"),
    ('{"op": "free", "request": "a", "expct": {}}', "expct"),
    ('{"op": "append", "request": "a", "tokens": [1, true]}', r"tokens\[1\]=True .* an integer"),
    ('{"op": "append", "request": "a", "tokens": [1.5]}', "an integer"),
    ('{"op": "append", "request": "a", "tokens": 3}', "a list"),
    ('{"op": "append", "request": "a", "tokens": [9007199254740993]}', "an integer"),
    ('{"op": "append", "request": "a", "tokens": {"stream": "u", "start": 0}}', "'count' among them"),
    ('{"op": "append", "request": "a", "tokens": {"stream": "u", "start": -1, "count": 2}}', ">= 0"),
    ('{"op": "append", "request": "a", "tokens": {"stream": "u", "start": 0, "count": 16777217}}', "at most 16777216"),
    ('{"op": "evict", "blocks": "2"}', "an integer"),
    ('{"op": "evict", "blocks": null}', "an integer"),
    ('{"op": "batch", "ops": [{"op": "fork", "parent": "a", "child": "b"}]}', r"ops\[0\] op='fork'"),
    ('{"op": "batch", "ops": {"op": "free", "request": "a"}}', "a list"),
    ('{"op": "batch", "ops": [{"op": "free", "request": "a", "expect": {}}]}', "expect"),
    ('{"op": "attend", "requests": "a", "query_lens": [1]}', "a list"),
    ('{"op": "free", "request": "a", "expect": {"outcome": "fine"}}', "expect.outcome='fine' .* 'ok', 'refused'"),
    ('{"op": "free", "request": "a", "expect": {"reason": "full"}}', "'unservable'"),
    ('{"op": "free", "request": "a", "expect": {"copies": {}}}', "min or max"),
    ('{"op": "free", "request": "a", "expect": {"copies": -1}}', ">= 0"),
    ('{"op": "free", "request": "a", "expect_policy": {"fifo": {}}}', "one of lru"),
    ('{"op": "free", "request": "a", "t": "now"}', "a number"),
]
BAD_TEXT: list[tuple[str, str]] = [
    ('{"op": "free", "request": "a"', "one JSON object"),
    ('{"op": "free", "request": "a", "request": "b"}', "each key once"),
    ('{"op": "free", "request": "a", "t": NaN}', "a finite number"),
    ('{"op": "free", "request": "a", "t": 1e999}', "a number"),
]
BAD_HEADERS: list[tuple[str, str]] = [
    ('{"op": "free", "request": "a"}', "one of pagedkv_trace"),
    ('{"num_blocks": 8, "block_size": 4}', "'pagedkv_trace' among them"),
    ('{"pagedkv_trace": 2, "num_blocks": 8, "block_size": 4}', "version 1"),
    ('{"pagedkv_trace": 1, "num_blocks": 0, "block_size": 4}', "num_blocks=0"),
    (HEADER[:-1] + ', "options": {"cache": true}}', "cache"),
    (HEADER[:-1] + ', "options": {"prefix_cache": 1}}', "true or false"),
    (HEADER[:-1] + ', "options": {"publish": "never"}}', "'commit' or 'schedule'"),
    (HEADER[:-1] + ', "requires": ["forks"]}', "one of 'fork'"),
    (HEADER[:-1] + ', "attention": {"heads": 4}}', "num_q_heads"),
    (HEADER[:-1] + ', "attention": {"num_q_heads": 4, "num_kv_heads": 4}}', "'head_dim' among them"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES + BAD_TEXT)
def test_a_bad_line_is_an_error_with_file_line_and_what_was_expected(line: str, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        parse(f"{HEADER}\n\n{line}\n", "bug.jsonl")
    assert (caught.value.file, caught.value.line) == ("bug.jsonl", 3)
    assert str(caught.value).startswith("bug.jsonl:3: ")


@pytest.mark.parametrize(("line", "message"), BAD_HEADERS)
def test_a_bad_header_is_an_error(line: str, message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        parse(line)
    assert caught.value.line == 1


def test_the_schema_rejects_what_the_parser_rejects() -> None:
    assert not [line for line, _ in BAD_LINES if VALID_LINE.is_valid(json.loads(line))]
    assert not [line for line, _ in BAD_HEADERS if VALID_HEADER.is_valid(json.loads(line))]


def test_an_empty_or_undecodable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="expected a header"):
        parse("\n")
    path = tmp_path / "latin1.jsonl"
    path.write_bytes((HEADER + '\n{"op": "free", "request": "\xe9"}').encode("latin-1"))
    with pytest.raises(TraceError, match="UTF-8") as caught:
        load(path)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    "operation",
    [ops.Free(1), ops.Free(("a", 1)), ops.Append("a", (True,)), ops.Lookup((1,), None), ops.EndStep(2**60)],
    ids=repr,
)
def test_what_could_not_be_read_back_is_not_written(operation: ops.Operation) -> None:
    with pytest.raises(Misuse):
        dumps(Trace(Header(8, 4), (Line(operation),)))
