"""Every trace that the records can express, and the JSON Schema that describes them."""

import json
from dataclasses import fields
from typing import Any

import jsonschema
from hypothesis import strategies as st

from pagedkv.spec import operations as ops
from pagedkv.spec.operations import Batch
from pagedkv.spec.trace import DATA, Attention, Expect, Header, Line, Range, Stream, Streamed, Trace
from pagedkv.spec.trace_fields import OPERATIONS
from pagedkv.spec.trace_records import CAPABILITIES
from pagedkv.spec.words import Reason

HEADER = '{"pagedkv_trace": 1, "num_blocks": 8, "block_size": 4}'
SCHEMA = json.loads((DATA / "trace.schema.json").read_text(encoding="utf-8"))


def schema_for(part: str) -> Any:
    """A validator for one kind of line (the library is untyped)."""
    return jsonschema.Draft202012Validator({**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{part}"}]})


VALID_HEADER, VALID_LINE = schema_for("header"), schema_for("line")

names = st.text(max_size=4)
integers = st.integers(-(2**40), 2**40)
naturals = st.integers(0, 2**40)
streams = st.builds(Stream, names, st.integers(0, 2**40), st.integers(0, 5))
plain_tokens = st.lists(integers, max_size=4).map(tuple)
streamed_tokens = st.lists(integers | streams, min_size=1, max_size=3).map(lambda parts: Streamed(tuple(parts)))
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("request", "parent", "child", "namespace", "mode"), names),
    **dict.fromkeys(("length", "computed", "blocks", "seed"), integers),
    "reserve": st.none() | integers,
    "tokens": plain_tokens | streamed_tokens,
    "requests": st.lists(names, max_size=3).map(tuple),
    "query_lens": st.lists(integers, max_size=3).map(tuple),
}


def operations_of(kind: type) -> st.SearchStrategy[Any]:
    if kind is Batch:
        rows = st.one_of([operations_of(row) for row in (ops.Append, ops.Reserve, ops.Commit, ops.Free)])
        return st.builds(Batch, st.lists(rows, max_size=3).map(tuple), st.none() | names)
    of_field = {field.name: FIELDS.get(field.name, names) for field in fields(kind)}
    return st.builds(kind, **of_field)


bounds = st.tuples(naturals, naturals).map(sorted)
counts = naturals | st.builds(Range, naturals) | st.builds(Range, st.none(), naturals) | bounds.map(lambda b: Range(*b))
expects = st.builds(
    Expect,
    st.none() | st.sampled_from(["ok", "refused", "error"]),
    st.none() | st.sampled_from(Reason),
    st.none() | names,
    *[st.none() | counts] * 4,
)
lines = st.builds(
    Line,
    st.one_of([operations_of(kind) for kind in OPERATIONS.values()]),
    expects,
    st.dictionaries(st.just("lru"), expects),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
options = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("prefix_cache", "overlapped_steps", "dedup"), st.booleans()),
        **dict.fromkeys(("sink_tokens", "max_rollback"), naturals),
        "swap_blocks": st.integers(0, 2**24),
        **dict.fromkeys(("sliding_window", "max_requests"), st.none() | st.integers(1, 2**40)),
        "publish": st.sampled_from(["commit", "schedule"]),
    },
).filter(lambda chosen: not (chosen.get("dedup") and chosen.get("publish") == "schedule"))
positive = st.integers(1, 2**20)
attentions = st.builds(
    Attention, positive, positive, positive, st.sampled_from(["float32", "float16", "bfloat16"]), st.booleans(),
    st.none() | positive, st.floats(0, 1e3), st.booleans(), st.booleans(),
)  # fmt: skip
capabilities = st.lists(st.sampled_from(CAPABILITIES), max_size=3).map(tuple)
sizes = st.sampled_from([(1, 2**25), (2**5, 2**20), (2**20, 2**5)]) | st.tuples(*[st.integers(1, 2**12)] * 2)
headers = st.builds(
    lambda size, *rest: Header(*size, *rest),
    sizes, integers, options, capabilities, names, st.none() | attentions,
)  # fmt: skip
traces = st.builds(Trace, headers, st.lists(lines, max_size=4).map(tuple))
