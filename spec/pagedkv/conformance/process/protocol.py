"""The lines that a subject in a process of its own is asked with, and those that it answers with.

What is asked is a trace: its header, then one operation a line, compact and in ASCII, a line for a line (see
`docs/protocol.md`, which says what a subject may rely on). It differs from a trace file in three things:

* "observe" asks with the operation for what is to be seen after it: true for everything, or a list of requests.
  `{"op": "observe"}` asks for that alone.
* `permute` has the bijection itself as "new_block", for a subject need not have Python's random numbers.
* A stretch of a token stream is written out.

An answer has the words of a trace's "expect": "outcome" is "ok", "refused" with a "reason", or "error" with the
argument that was misused; a batch has such answers as "rows". What is observed stands beside it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from json import JSONEncoder
from operator import index
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from pagedkv.spec import Config, Copy, Identity, Misuse, Ok, Operation, Outcome, Reason, Refused, RequestId
from pagedkv.spec.subject import Capabilities, Lengths, Snapshot
from pagedkv.spec.trace_fields import NAMES, OPERATIONS, VERSION
from pagedkv.spec.trace_json import Reader, array, decode, at_least, boolean, integer, one_of, record, string
from pagedkv.spec.trace_records import Header

Json: TypeAlias = dict[str, Any]

_encode = JSONEncoder(separators=(",", ":"), default=index).encode  # an integer of NumPy is one, too


def write(value: Json) -> bytes:
    """A value as a line."""
    return _encode(value).encode("ascii") + b"\n"


def read(line: bytes) -> Json:
    """The object that a line is. Raises `Misuse`."""
    try:
        value = decode(line.decode())
    except UnicodeDecodeError as error:
        raise Misuse("line", line[:200].decode(errors="backslashreplace"), f"UTF-8 ({error.reason})") from error
    if not isinstance(value, dict):
        raise Misuse("line", line[:200].decode(errors="backslashreplace"), "one JSON object")
    return value


# --- what is asked --------------------------------------------------------------------------------------------------


def header_json(config: Config) -> Json:
    """The first line: the pool, with the options that are not the default."""
    header = Header.of(config)
    sizes = {"num_blocks": header.num_blocks, "block_size": header.block_size}
    return {"pagedkv_trace": VERSION, **sizes, "options": dict(header.options)}


_FIELDS: Final = {kind: [(part.name, part.default) for part in fields(kind)] for kind in OPERATIONS.values()}


def operation_json(operation: Operation) -> Json:
    """An operation, with the fields that are not at their default."""
    line: Json = {"op": NAMES[type(operation)]}
    for name, default in _FIELDS[type(operation)]:
        value = getattr(operation, name)
        if name == "rows":
            line["ops"] = [operation_json(row) for row in value]
        elif value != default:
            line[name] = value
    return line


# --- what is answered to the header ---------------------------------------------------------------------------------


def capabilities_json(capabilities: Capabilities, *, restarts: bool) -> Json:
    """The answer to a header. `restarts`: another header may follow at any time, and starts afresh."""
    declared = {f.name: getattr(capabilities, f.name) for f in fields(Capabilities)}
    shown = {f.name: declared[f.name] for f in fields(Capabilities) if declared[f.name] != f.default}
    return {"capabilities": shown, **({"restarts": True} if restarts else {})}


_CAPABILITIES: Final[Mapping[str, Reader]] = {
    **{part.name: boolean for part in fields(Capabilities)},
    "publish": one_of(("commit", "schedule")),
    "policy": one_of(("any", "lru")),
}


class Broken(NamedTuple):
    """The subject's own report of a law that it broke, as that it raised an exception."""

    law: str
    detail: str
    kind: str = ""
    """As of a `Violation`."""


class Hello(NamedTuple):
    """What a subject says to a header that it accepts."""

    capabilities: Capabilities
    restarts: bool


def read_hello(line: bytes) -> Hello | Misuse | Broken:
    """The answer to a header: what it has, or which option it has not, or how it failed. Raises `Misuse`, which says
    what is wrong with the line."""
    value = read(line)
    if "outcome" in value:
        answer = _read_outcome(value)
        if isinstance(answer, Ok | Refused):
            raise Misuse("outcome", value["outcome"], "'error', or capabilities, in the answer to a header")
        return answer
    values = record("line", value, {"capabilities": _read_capabilities, "restarts": boolean}, ("capabilities",))
    return Hello(values["capabilities"], values.get("restarts", False))


def _read_capabilities(name: str, value: object) -> Capabilities:
    return Capabilities(**record(name, value, _CAPABILITIES))


# --- what is answered to an operation -------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a subject says to an operation."""

    outcomes: tuple[Outcome, ...] | Misuse | Broken
    seen: Snapshot | None = None


def answer_json(answer: Answer, *, batch: bool) -> Json:
    """The line that answers an operation."""
    match answer.outcomes:
        case Misuse() as misuse:
            line: Json = {"outcome": "error", "error": misuse.argument, "message": str(misuse)}
        case Broken(law, detail, kind):
            line = {"outcome": "violation", "law": law, "detail": detail} | ({"kind": kind} if kind else {})
        case outcomes if batch:
            line = {"rows": [_outcome_json(outcome) for outcome in outcomes]}
        case outcomes:
            line = _outcome_json(outcomes[0])
    return line if answer.seen is None else {**line, **_snapshot_json(answer.seen)}


_OK: Final = [(part.name, part.default) for part in fields(Ok)]


def _outcome_json(outcome: Outcome) -> Json:
    if isinstance(outcome, Refused):
        return {"outcome": "refused", "reason": str(outcome.reason)}
    said = {name: value for name, default in _OK if (value := getattr(outcome, name)) != default}
    return {"outcome": "ok", **said}


def _snapshot_json(seen: Snapshot) -> Json:
    requests: dict[RequestId, Json] = {}
    for request, lengths in seen.lengths.items():
        requests[request] = {"length": lengths.length, "reserved": lengths.reserved, "computed": lengths.computed}
        if not lengths.resident:
            requests[request]["resident"] = False
    for request, table in seen.tables.items():
        requests[request]["table"] = table
    line: Json = {"available_blocks": seen.available_blocks, "requests": requests}
    if seen.references is not None:
        line["references"] = list(seen.references.items())
    if seen.index is not None:
        line["index"] = [(block, *identity) for block, identity in seen.index.items()]
    return line


def read_answer(line: bytes, *, batch: bool) -> Answer:
    """What a line says that answers an operation. Raises `Misuse`, which says what is wrong with it."""
    value = read(line)
    seen: Json = {key: value.pop(key) for key in _SEEN if key in value}
    snapshot = _read_snapshot(seen) if seen else None
    if batch and "rows" in value:
        rows = record("line", value, {"rows": array(_read_row)}, ("rows",))["rows"]
        return Answer(rows, snapshot)
    if batch and value.get("outcome") not in ("error", "violation"):
        raise Misuse("line keys", ", ".join(value), "'rows' among them, for a batch")
    outcome = _read_outcome(value)
    return Answer((outcome,) if isinstance(outcome, Ok | Refused) else outcome, snapshot)


def _read_row(name: str, value: object) -> Outcome:
    outcome = _read_outcome(value if isinstance(value, dict) else {}, name)
    if not isinstance(outcome, Ok | Refused):
        raise Misuse(name, value, "ok or refused: misuse is of the whole batch")
    return outcome


def _read_outcome(value: Json, name: str = "line") -> Outcome | Misuse | Broken:
    kind = one_of(tuple(_OUTCOMES))(f"{name} outcome", value.get("outcome"))
    readers, required = _OUTCOMES[kind]
    said = record(name, value, readers, required)
    del said["outcome"]
    match kind:
        case "ok":
            return Ok(**said)
        case "refused":
            return Refused(Reason(said["reason"]))
        case "violation":
            return Broken(said["law"], said["detail"], said.get("kind", ""))
    return _misuse(said["error"], said.get("message", f"{said['error']} is not allowed"))


def _misuse(argument: str, message: str) -> Misuse:
    """As the subject tells it: the value, and what would have been allowed, do not come with it."""
    misuse = Misuse(argument, None, "what the message says")
    misuse.args = (message,)  # what is shown of an exception
    return misuse


def _integers(name: str, value: object) -> tuple[int, ...]:
    if type(value) is not list or not set(map(type, value)) <= {int}:
        raise Misuse(name, value, "a list of integers")
    return tuple(value)


def _pairs(name: str, value: object) -> tuple[Copy, ...]:
    if type(value) is not list or not all(type(pair) is list and len(pair) == 2 for pair in value):
        raise Misuse(name, value, "a list of pairs of integers")
    return tuple(Copy(*_integers(name, pair)) for pair in value)


_OUTCOMES: Final[Mapping[str, tuple[Mapping[str, Reader], tuple[str, ...]]]] = {
    "ok": (
        {"outcome": string, "cached_tokens": integer, "slots": _integers, "copies": _pairs, "remapped": _pairs,
         "swapped": _pairs, "evicted": integer},
        (),
    ),
    "refused": ({"outcome": string, "reason": one_of(tuple(Reason))}, ("reason",)),
    "error": ({"outcome": string, "error": string, "message": string}, ("error",)),
    "violation": ({"outcome": string, "law": string, "detail": string, "kind": string}, ("law", "detail")),
}  # fmt: skip

_REQUEST: Final[Mapping[str, Reader]] = {
    **dict.fromkeys(("length", "reserved", "computed"), integer),
    "resident": boolean,
    "table": _integers,
}


def _read_snapshot(value: Json) -> Snapshot:
    requests = value.get("requests")
    if "available_blocks" not in value or type(requests) is not dict:
        raise Misuse("line keys", ", ".join(value), "both available_blocks and requests, an object")
    tables, lengths = {}, {}
    for request, shown in requests.items():
        said = record(f"requests.{request}", shown, _REQUEST, ("length", "computed"))
        said.setdefault("reserved", said["length"])
        if "table" in said:
            tables[request] = said.pop("table")
        lengths[request] = Lengths(**said)
    return Snapshot(
        tables=tables,
        lengths=lengths,
        available_blocks=integer("available_blocks", value["available_blocks"]),
        references=_by_block("references", value, _pairs),
        index=_by_block("index", value, _entries),
    )


Shown = TypeVar("Shown")


def _by_block(
    name: str, value: Json, read_pairs: Callable[[str, object], Sequence[tuple[int, Shown]]]
) -> dict[int, Shown] | None:
    """What is said of each block, if it is: once, for of what is said twice one would be lost."""
    if name not in value:
        return None
    pairs = read_pairs(name, value[name])
    by_block = dict(pairs)
    if len(by_block) != len(pairs):
        [(block, _)] = Counter(block for block, _ in pairs).most_common(1)
        raise Misuse(name, f"block {block} more than once", "each block once")
    return by_block


def _entries(name: str, value: object) -> Sequence[tuple[int, Identity]]:
    if type(value) is not list or not all(type(item) is list and len(item) == 3 for item in value):
        raise Misuse(name, value, "a list of [block, namespace, tokens]")
    block = at_least(0)
    return [
        (block(f"{name} block", b), Identity(string(f"{name} namespace", ns), _integers(f"{name} tokens", tokens)))
        for b, ns, tokens in value
    ]


_SEEN: Final = ("available_blocks", "requests", "references", "index")
