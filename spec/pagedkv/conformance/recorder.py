"""Recording a live engine: its calls become a trace, which replays without the engine.

`Recorder` stands in front of a block manager of the kit's shape. `Log` is for engines of any other: it is told what
happens, from wherever the engine knows it, and writes it down.

A line is written before the operation is carried out, and what came of it is added to the line afterwards. So the file
is a whole trace at any time, and after a crash its last line is the operation that the engine died of. It is handed to
the system at once, and outlives the process, though not a power failure.
"""

import threading
import time
from collections.abc import Sequence
from operator import index
from pathlib import Path
from typing import Any, Final, Self

from pagedkv.conformance.differential.compare import subject_call
from pagedkv.conformance.process.by_value import ByValue
from pagedkv.conformance.process.names import Names, is_text
from pagedkv.conformance.process.protocol import Json, header_json, operation_json, write
from pagedkv.spec import Batch, Block, Config, Fork, Free, Misuse, Ok, Operation, Outcome, Refused
from pagedkv.spec.expectation import Expect
from pagedkv.spec.subject import BlockManagerSubject, Capabilities, Snapshot
from pagedkv.spec.trace_fields import read_header

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
        self._requests, self._others = Names(is_text), Names(is_text)
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115  # closed by close
        self._file.write(write(header))
        self._start = time.monotonic() if times else None
        self._writer = 0
        """The thread that wrote the last line."""

    def run(self, operation: Operation) -> Sequence[Outcome]:
        """Write a line."""
        line = self._spelled(operation_json(operation))
        with self._lock:
            if self._start is not None:
                line["t"] = round(time.monotonic() - self._start, 6)
            self._file.write(write(line))
            self._writer = threading.get_ident()
            for row in operation.rows if isinstance(operation, Batch) else (operation,):
                if isinstance(row, Free):
                    self._requests.forget(row.request)
        return (Ok(),)

    def permute(self, new_block: Sequence[Block]) -> Outcome:
        """Writes nothing: a trace knows no physical blocks, and a relabelling changes nothing else."""
        return Ok()

    def expect(self, **fields: Any) -> bool:
        """Add to the last line what is to be observed in every replay: fields of `pagedkv.spec.trace.Expect`.

        With a prefix cache, what is found depends on what was evicted before, which an implementation may choose.
        False: another thread has written a line since, and nothing is added.
        """
        Expect(**fields)  # a field that there is not is an error
        return self._add({"expect": fields})

    def _add(self, more: Json) -> bool:
        with self._lock:
            if self._writer != threading.get_ident():
                return False
            self._file.seek(-2, 1)  # the brace and the end of the line, until there is something in their place
            self._file.write(b"," + write(more)[1:])
            self._writer = 0
            return True

    def _spelled(self, line: Json) -> Json:
        """In the form of a trace: ids are text, and numbers integers."""
        for key, value in line.items():
            if key in _REQUESTS:
                line[key] = self._requests.text(value)
            elif key in ("namespace", "step"):
                line[key] = self._others.text(value)
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
            self._note(operation, _summary(outcomes))
            return outcomes

    def permute(self, new_block: Sequence[Block]) -> Outcome:
        """Pass on; see `Log`."""
        return self.subject.permute(new_block)

    def observe(self, requests: Sequence[Any] | None = None) -> Snapshot:
        """Of the subject."""
        return self.subject.observe(requests)

    def _note(self, operation: Operation, seen: Json, **more: str) -> None:
        if self._observes:
            of = operation.child if isinstance(operation, Fork) else getattr(operation, "request", None)
            shown = self.subject.observe([] if of is None else [of])
            seen["available_blocks"] = shown.available_blocks
            if of in shown.lengths:
                seen["length"] = shown.lengths[of].length
        self._add({self._key: seen, **more})


def _summary(outcomes: Sequence[Outcome]) -> Json:
    """In the words of an `Expect`."""
    refused = next((outcome for outcome in outcomes if isinstance(outcome, Refused)), None)
    done = [outcome for outcome in outcomes if isinstance(outcome, Ok)]
    said: Json = {"outcome": "refused", "reason": refused.reason} if refused else {"outcome": "ok"}
    cached, copies = sum(o.cached_tokens for o in done), sum(len(o.copies) for o in done)
    return said | ({"cached_tokens": cached} if cached else {}) | ({"copies": copies} if copies else {})
