"""Chapter 22. Traces: programs of operations as JSON Lines, version 1.

The unit of exchange of the fuzzer, the replayer, the simulator, the viewer and bug reports. The first line is the
header, then one operation a line, its key "op" and the fields of `pagedkv.spec.operations` (a batch's rows are "ops").

* Logical ids only: request ids, namespaces and step ids are strings, and a physical block never appears. `permute`
  stores the seed of its bijection. Keys and values are never stored: they are functions of seed and tokens.
* "tokens" is a list of integers; a stretch of a named stream (`pagedkv.spec.streams`) is written
  `{"stream": "u1", "start": 0, "count": 1024}`, in place of the list or inside it.
* "expect" says what must be observed under every legal allocator, "expect_policy" what a subject must show that
  declares the policy, "t" (seconds) places the operation on a timeline.
* A key starting "x-" is ignored. Any other unknown key or operation, a key given twice, a missing key or a wrong type
  is a `TraceError` with file and line. A *value* that no operation allows is no error here: misuse can be recorded.
* Sizes: at most 2**20 blocks, 2**25 slots (num_blocks * block_size) and 2**24 swap blocks; a stretch of a stream has at
  most 2**24 tokens, all of a trace 2**25. Integers lie within +-2**53, and ids are text: no halves of surrogate pairs.
* "requires" lists capabilities; to a subject that lacks one, the whole trace does not apply.

`data/trace.schema.json` says the same as a JSON Schema; `data/sample.jsonl` has every operation, and can be replayed.

>>> trace = parse('''{"pagedkv_trace": 1, "num_blocks": 8, "block_size": 4}
... {"op": "admit", "request": "a", "tokens": [1, 2, 3, 4, 5], "expect": {"available_blocks": 6}}''')
>>> trace.lines[0].op
Admit(request='a', tokens=(1, 2, 3, 4, 5), namespace='', reserve=None)
>>> parse(dumps(trace)) == trace
True
>>> parse('{"pagedkv_trace": 1, "num_blocks": 8, "block_size": 4}\\n{"op": "evict"}', "bug.jsonl")
Traceback (most recent call last):
...
pagedkv.spec.trace_json.TraceError: bug.jsonl:2: line keys='op' is not allowed: expected 'blocks' among them
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from pagedkv.spec.expectation import Expect, Range, mismatches
from pagedkv.spec.streams import Stream, Streamed, check_streamed, stream_tokens
from pagedkv.spec.trace_fields import NAMES, VERSION, read_header, read_line
from pagedkv.spec.trace_json import TraceError, decode
from pagedkv.spec.trace_records import Attention, Header, Line, Trace
from pagedkv.spec.words import Misuse

__all__ = [
    "Attention", "Expect", "Header", "Line", "Range", "Stream", "Streamed", "Trace", "TraceError",
    "dumps", "load", "mismatches", "parse", "sample", "save", "stream_tokens",
]  # fmt: skip

DATA = Path(__file__).parent / "data"


def parse(text: str, file: str = "<trace>") -> Trace:
    """The trace written in `text`; errors are `TraceError` and name `file`. Blank lines are skipped."""
    header, lines, streamed = None, [], 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            if header is None:
                header = read_header("header", decode(line))
            else:
                value = decode(line)
                streamed = check_streamed([value], streamed)
                lines.append(read_line("line", value, number))
        except Misuse as problem:
            raise TraceError(file, number, str(problem)) from problem
    if header is None:
        raise TraceError(file, 1, "no line at all: expected a header")
    return Trace(header, tuple(lines))


def load(path: str | Path) -> Trace:
    """The trace in a UTF-8 file."""
    try:
        return parse(Path(path).read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise TraceError(str(path), line, f"expected UTF-8 text ({error.reason})") from error


def dumps(trace: Trace) -> str:
    """The trace as text, one line each; `parse(dumps(trace)) == trace`. What could not be read back is misuse."""
    header = {"pagedkv_trace": VERSION, **_set_fields(trace.header)}
    lines = [_line(line) for line in trace.lines]
    read_header("header", header)
    check_streamed(lines)
    for number, line in enumerate(lines, start=1):
        read_line(f"lines[{number}]", line)
    return "".join(json.dumps(line) + "\n" for line in (header, *lines))


def save(trace: Trace, path: str | Path) -> None:
    """Write the trace to a file."""
    Path(path).write_text(dumps(trace), encoding="utf-8")


def sample() -> Trace:
    """The sample that ships with the specification: every operation, with expectations that every subject meets."""
    return load(DATA / "sample.jsonl")


def _line(line: Line) -> dict[str, Any]:
    rest = _set_fields(line)
    return {**rest.pop("op"), **{key: value for key, value in rest.items() if key != "number"}}


def _set_fields(value: Any) -> dict[str, Any]:
    """The fields of a record that are not at their default (an empty container is one), as JSON values."""
    result = {}
    for field in fields(value):
        item = getattr(value, field.name)
        if item != field.default and not (field.default_factory is dict and not item):
            result["ops" if field.name == "rows" else field.name] = _json(item)
    return result


def _json(value: Any) -> Any:
    """A value of a record as JSON."""
    if isinstance(value, Streamed):
        single = len(value.parts) == 1 and isinstance(value.parts[0], Stream)
        return _json(value.parts[0] if single else list(value.parts))
    if isinstance(value, tuple | list):
        return [_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _json(item) for key, item in value.items()}
    if not is_dataclass(value):
        return value
    return {"op": NAMES[type(value)], **_set_fields(value)} if type(value) in NAMES else _set_fields(value)
