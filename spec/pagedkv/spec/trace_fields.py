"""Traces, the fields: how each part of a trace is read from JSON values, and written to them."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Final

from pagedkv.spec import operations as ops
from pagedkv.spec.expectation import OUTCOMES, Expect, Range
from pagedkv.spec.streams import MAX_COUNT, Stream, Streamed
from pagedkv.spec.trace_json import Reader, array, at_least, boolean, integer, nullable, number, one_of, record, string
from pagedkv.spec.trace_records import CAPABILITIES, OPTIONS, POLICIES, Attention, Header, Line
from pagedkv.spec.words import Misuse, Reason

VERSION: Final = 1

MAX_BLOCKS, MAX_SWAP_BLOCKS, MAX_SLOTS = 2**20, 2**24, 2**25
"""Of the pool of a trace, slots being num_blocks * block_size: a `reserve` can name as many."""

OPERATIONS: Final[Mapping[str, type]] = {
    "admit": ops.Admit, "reserve": ops.Reserve, "append": ops.Append, "commit": ops.Commit, "fork": ops.Fork,
    "truncate": ops.Truncate, "free": ops.Free, "preempt": ops.Preempt, "resume": ops.Resume, "lookup": ops.Lookup,
    "pin": ops.Pin, "unpin": ops.Unpin, "evict": ops.Evict, "reset_prefix_index": ops.ResetPrefixIndex,
    "begin_step": ops.BeginStep, "end_step": ops.EndStep, "permute": ops.Permute, "batch": ops.Batch,
    "attend": ops.Attend,
}  # fmt: skip
NAMES: Final[Mapping[type, str]] = {operation: name for name, operation in OPERATIONS.items()}
ROWS: Final = ("append", "reserve", "commit", "free")
"""The operations that a batch may consist of."""


def read_tokens(name: str, value: object) -> tuple[int, ...]:
    """A list of tokens and streams, or one stream."""
    if isinstance(value, dict):
        return Streamed((_read_stream(name, value),))
    items = array(lambda where, item: (_read_stream if isinstance(item, dict) else integer)(where, item))(name, value)
    return Streamed(items) if any(isinstance(item, Stream) for item in items) else items


def _read_stream(name: str, value: object) -> Stream:
    index = at_least(0)
    readers = {"stream": string, "start": index, "count": index}
    result = Stream(**record(name, value, readers, tuple(readers)))
    if result.count > MAX_COUNT:
        raise Misuse(f"{name}.count", result.count, f"at most {MAX_COUNT} tokens")
    return result


def read_count(name: str, value: object) -> int | Range:
    """An integer or {"min": …, "max": …}, one of which may be left out."""
    if not isinstance(value, dict):
        count: int = at_least(0)(name, value)
        return count
    bounds = record(name, value, {"min": at_least(0), "max": at_least(0)})
    if not bounds:
        raise Misuse(name, value, "min or max or both")
    return Range(**bounds)


def read_expect(name: str, value: object) -> Expect:
    """The "expect" of a line."""
    counts = ("cached_tokens", "copies", "available_blocks", "length")
    readers: dict[str, Reader] = {"outcome": one_of(OUTCOMES), "reason": one_of(tuple(Reason)), "error": string}
    values = record(name, value, {**readers, **dict.fromkeys(counts, read_count)})
    if "reason" in values:
        values["reason"] = Reason(values["reason"])
    return Expect(**values)


FIELD_READERS: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(("request", "parent", "child", "namespace", "step", "mode"), string),
    **dict.fromkeys(("length", "computed", "blocks", "seed"), integer),
    "reserve": nullable(integer),
    "tokens": read_tokens,
    "requests": array(string),
    "query_lens": array(integer),
    "rows": array(lambda name, value: read_operation(name, value, ROWS)),
}
"""How a field of an operation is read; a field name means one thing in all operations."""
OPTION_READERS: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(OPTIONS, integer),
    **dict.fromkeys(("sliding_window", "max_requests"), nullable(integer)),
    **dict.fromkeys(("prefix_cache", "overlapped_steps", "dedup"), boolean),
    "publish": string,
}
"""`Config` itself judges the values."""
LINE_READERS: Final[Mapping[str, Reader]] = {
    "expect": read_expect,
    "expect_policy": lambda name, value: record(name, value, dict.fromkeys(POLICIES, read_expect)),
    "t": number,
}


def _key(item: Field[Any]) -> str:
    return "ops" if item.name == "rows" else item.name


def _reader(item: Field[Any]) -> Reader:
    reader = FIELD_READERS[item.name]
    return nullable(reader) if item.default is None else reader


def read_operation(name: str, value: object, allowed: tuple[str, ...] = tuple(OPERATIONS), /, **more: Reader) -> Any:
    """An operation; with `more` keys allowed, the pair of it and their values."""
    kind = value.get("op") if isinstance(value, dict) else None
    if not isinstance(value, dict) or kind not in allowed:
        raise Misuse(f"{name} op", kind, "one of " + ", ".join(allowed))
    parts = fields(OPERATIONS[kind])
    readers = {"op": string, **{_key(part): _reader(part) for part in parts}, **more}
    required = ("op", *(_key(part) for part in parts if part.default is MISSING))
    values = record(name, value, readers, required)
    operation = OPERATIONS[kind](**{part.name: values[_key(part)] for part in parts if _key(part) in values})
    return (operation, {key: values[key] for key in more if key in values}) if more else operation


def read_line(name: str, value: object, line_number: int = 0) -> Line:
    """A line after the first."""
    operation, rest = read_operation(name, value, **LINE_READERS)
    return Line(operation, number=line_number, **rest)


def read_header(name: str, value: object) -> Header:
    """The first line."""
    readers: dict[str, Reader] = {
        "pagedkv_trace": integer, "num_blocks": integer, "block_size": integer, "seed": integer,
        "options": lambda where, item: record(where, item, OPTION_READERS), "requires": array(one_of(CAPABILITIES)),
        "note": string, "attention": nullable(_read_attention),
    }  # fmt: skip
    values = record(name, value, readers, ("pagedkv_trace", "num_blocks", "block_size"))
    if (version := values.pop("pagedkv_trace")) != VERSION:
        raise Misuse(f"{name}.pagedkv_trace", version, f"version {VERSION}")
    header = Header(**values)
    config = header.config()  # raises for options that no pool can have
    for key, size, most in (
        ("num_blocks", config.num_blocks, MAX_BLOCKS), ("options.swap_blocks", config.swap_blocks, MAX_SWAP_BLOCKS),
        ("num_blocks * block_size", config.num_blocks * config.block_size, MAX_SLOTS),
    ):  # fmt: skip
        if size > most:
            raise Misuse(f"{name}.{key}", size, f"at most {most}")
    return header


def _read_attention(name: str, value: object) -> Attention:
    natural = at_least(1)
    readers: dict[str, Reader] = {
        "num_q_heads": natural, "num_kv_heads": natural, "head_dim": natural,
        "dtype": one_of(("float32", "float16", "bfloat16")), "causal": boolean, "window": nullable(natural),
        "softcap": number, "alibi": boolean, "sinks": boolean,
    }  # fmt: skip
    return Attention(**record(name, value, readers, ("num_q_heads", "num_kv_heads", "head_dim")))
