"""Recording a live engine: its calls become a trace, which replays without the engine.

`Recorder` stands in front of a block manager of the kit's shape. `Log` is for engines of any other: it is told what
happens, from wherever the engine knows it, and writes it down.

A line is written before the operation is carried out, and what came of it is added to the line afterwards. So the file
is a whole trace at any time, and after a crash its last line is the operation that the engine died of. It is handed to
the system at once, and outlives the process, though not a power failure.
"""

import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, Final, Self

from pagedkv.conformance.differential.by_value import ByValue
from pagedkv.conformance.differential.compare import subject_call
from pagedkv.conformance.differential.form import malformed_answer
from pagedkv.conformance.process.names import Names, is_text
from pagedkv.conformance.process.protocol import Json, header_json, operation_json, write
from pagedkv.spec import (
    Admit, Append, Batch, BeginStep, Block, Config, EndStep, Free, Lookup, Misuse, Ok, Operation, Outcome, Pin, Reserve,
    Resume,
)  # fmt: skip
from pagedkv.spec.expectation import Range, answered, spoken_of
from pagedkv.spec.misuse import shown
from pagedkv.spec.operations import rows_of
from pagedkv.spec.subject import BlockManagerSubject, Capabilities, Snapshot
from pagedkv.spec.trace_fields import read_header, read_line

_REQUESTS: Final = ("request", "parent", "child")


class Log(ByValue):
    """Writes operations to a trace file. Its methods are the operations, each called before it is carried out; they
    answer Ok, which means nothing. Ids and namespaces may be any hashable values, tokens any integers.

    Threads may share a log: lines stay whole, and are in the order in which they were written. `times` notes when.
    """

    def __init__(self, path: str | Path, config: Config, *, note: str = "", times: bool = False) -> None:
        header = {**header_json(config), "note": note}
        read_header("header", header)  # a pool that no trace can have is misuse
        self._lock = threading.RLock()
        self._requests, self._namespaces, self._steps = Names(is_text), Names(is_text), Names(is_text)
        self._begun = set[Hashable]()
        """Steps in flight."""
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115  # closed by close
        self._file.write(write(header))
        self._start = time.monotonic() if times else None
        self._writer = 0
        """The thread that wrote the last line, unless that has its expectation."""

    def run(self, operation: Operation) -> Sequence[Outcome]:
        """Write a line."""
        line = self._spelled(operation_json(operation))
        with self._lock:
            if self._start is not None:
                line["t"] = round(time.monotonic() - self._start, 6)
            self._file.write(write(line))
            self._writer = threading.get_ident()
            self._forget(operation)
        return (Ok(),)

    def _forget(self, operation: Operation) -> None:
        """Ids that are not used any more. Namespaces are, as long as anything of theirs may be cached."""
        for row in rows_of(operation):
            if isinstance(row, Free):
                self._requests.forget(row.request)
        match operation:
            case BeginStep(step):
                self._begun.add(step)
            case EndStep(step):
                self._begun.discard(step)
                self._steps.forget(step)
            case Batch(_, step) if step not in self._begun:  # a label, which no other line refers to
                self._steps.forget(step)

    def permute(self, new_block: Sequence[Block]) -> Outcome:
        """Writes nothing: a trace knows no physical blocks, and a relabelling changes nothing else."""
        return Ok()

    def expect(self, **fields: Any) -> bool:
        """Add to the last line what is to be observed in every replay: fields of `pagedkv.spec.trace.Expect`.

        With a prefix cache, what is found depends on what was evicted before, which an implementation may choose.
        False: nothing is added. The last line has an expectation already, or it is another thread's, or there is none.
        """
        spelled = {name: _expected(value) for name, value in fields.items() if value is not None}
        read_line("expect", {"op": "lookup", "tokens": [], "expect": spelled})  # a trace that cannot be read is none
        return self._add({"expect": spelled})

    def _add(self, more: Json) -> bool:
        with self._lock:
            if self._writer != threading.get_ident():
                return False
            text = b"," + write(more)[1:]
            self._file.seek(-2, 1)  # the brace and the end of the line
            self._file.write(text)
            self._writer = 0
            return True

    def _spelled(self, line: Json) -> Json:
        """In the form of a trace: ids are text, and numbers integers."""
        for key, value in line.items():
            if key in _REQUESTS:
                line[key] = self._requests.text(value)
            elif key == "namespace":
                line[key] = self._namespaces.text(value)
            elif key == "step":
                line[key] = self._steps.text(value)
            elif key == "requests":
                line[key] = [self._requests.text(name) for name in value]
            elif key in ("tokens", "query_lens"):
                line[key] = value if set(map(type, value)) <= {int} else [_integer(key, token) for token in value]
            elif key == "ops":
                line[key] = [self._spelled(row) for row in value]
            elif not isinstance(value, str):
                line[key] = _integer(key, value)
        return line

    def close(self) -> None:
        """Close the file; what is told afterwards is an error."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _integer(name: str, value: Any) -> int:
    try:
        return index(value)  # of NumPy and torch, too
    except TypeError:
        raise Misuse(name, value, "an integer, to be recorded") from None


def _expected(value: Any) -> Any:
    if not isinstance(value, Range):
        return value
    return {name: bound for name, bound in (("min", value.min), ("max", value.max)) if bound is not None}


_MATTERS: Final[Mapping[type, str]] = {
    **dict.fromkeys((Admit, Resume, Lookup, Pin), "cached_tokens"),
    **dict.fromkeys((Append, Reserve, Batch), "copies"),
}
"""What an operation may answer with, so that 0 is an answer, too."""


class Recorder(Log):
    """A block manager that passes everything on to `subject`, and records it with what was answered.

    `observe`: each line also has the number of available blocks and the length of the request. Without a prefix cache
    every legal implementation answers the same, and a replay expects it. With one, what is evicted is free, and what is
    found follows from it: then what was seen stands under "x-seen", for the reader. `strict` expects it all the same,
    of the same implementation, or to see where another one first differs.
    """

    def __init__(
        self, subject: BlockManagerSubject, config: Config, path: str | Path, *, observe: bool = False,
        strict: bool = False, note: str = "", times: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(path, config, note=note, times=times)
        self.subject, self.config, self._observes = subject, config, observe
        cached = config.prefix_cache and subject.capabilities.prefix_cache
        self._key = "expect" if strict or not cached else "x-seen"

    @property
    def capabilities(self) -> Capabilities:
        """The subject's."""
        return self.subject.capabilities

    def run(self, operation: Operation) -> Sequence[Outcome]:
        """Pass on and record."""
        with self._lock:
            super().run(operation)
            try:
                outcomes = subject_call(self.subject, operation, self.config)
            except Misuse as misuse:
                self._note(operation, {"outcome": "error"}, **{"x-misuse": str(misuse)})  # others name it otherwise
                raise
            if malformed_answer(outcomes, len(rows_of(operation))):
                self._add({"x-answer": shown(outcomes)})
                return outcomes
            matters = _MATTERS.get(type(operation), "")
            said = {key: value for key, value in answered(outcomes).items() if value or key == matters}
            self._note(operation, said)
            return outcomes

    def permute(self, new_block: Sequence[Block]) -> Outcome:
        """Pass on; see `Log`."""
        return self.subject.permute(new_block)

    def observe(self, requests: Sequence[Any] | None = None) -> Snapshot:
        """Of the subject."""
        return self.subject.observe(requests)

    def _note(self, operation: Operation, seen: Json, **more: str) -> None:
        if self._observes:
            of = spoken_of(operation)
            shown = self.subject.observe([] if of is None else [of])
            seen["available_blocks"] = shown.available_blocks
            if of in shown.lengths:
                seen["length"] = shown.lengths[of].length
        self._add({self._key: seen, **more})
