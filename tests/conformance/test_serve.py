"""The server of Python subjects: it judges them as the driver does, and survives what they do."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pagedkv.conformance.differential.driver import Differential
from pagedkv.conformance.differential.model import ModelSubject
from pagedkv.conformance.differential.violation import ANSWERS, OBSERVED, RAISES, Violation
from pagedkv.conformance.process.protocol import Answer, Broken, header_json, read, read_answer, read_hello, write
from pagedkv.conformance.process.running import SURVIVES
from pagedkv.conformance.process.serve import Server
from pagedkv.reference.manager import BlockManager
from pagedkv.spec import Admit, Append, Commit, Config, Fork, Identity, Misuse, Ok, Outcome, RequestId
from pagedkv.spec.subject import Lengths, Snapshot
from pagedkv.spec.trace import DATA, sample

CONFIG = Config(num_blocks=4, block_size=2)
SERVE = [sys.executable, "-m", "pagedkv.conformance.process.serve"]


class Odd(ModelSubject):
    """Answers an append, and is seen, in its own way."""

    answer: Callable[[Outcome], Any] = staticmethod(lambda outcome: outcome)
    mirror: Callable[[Snapshot], Any] = staticmethod(lambda seen: seen)

    def append(self, request: RequestId, tokens: Sequence[int]) -> Any:
        return self.answer(super().append(request, tokens))

    def observe(self, requests: Sequence[RequestId] | None = None) -> Any:
        return self.mirror(super().observe(requests))


def odd(**how: Any) -> type[Odd]:
    return type("Odd", (Odd,), {name: staticmethod(value) for name, value in how.items()})


def raising(error: BaseException) -> Callable[[Any], Any]:
    def answer(_: Any) -> Any:
        raise error

    return answer


class Theirs(Misuse):
    """Has not what a Misuse has, and cannot be shown."""

    def __init__(self) -> None:
        Exception.__init__(self)

    def __str__(self) -> str:
        raise RuntimeError


WRONG = {
    "raises": (odd(answer=raising(KeyError("x"))), RAISES),
    "exits": (odd(answer=raising(SystemExit(0))), RAISES),
    "answers None": (odd(answer=lambda outcome: None), ANSWERS),
    "answers a fraction": (odd(answer=lambda outcome: Ok(evicted=0.5)), ANSWERS),  # type: ignore[arg-type]  # wrong on purpose
    "observes nothing": (odd(mirror=lambda seen: None), OBSERVED),
    "observes and raises": (odd(mirror=raising(RuntimeError("x"))), OBSERVED),
    "observes and calls it misuse": (odd(mirror=raising(Misuse("a", 1, "b"))), OBSERVED),
    "tables are lists": (odd(mirror=lambda seen: replace(seen, tables={r: [] for r in seen.tables})), OBSERVED),
    "hides its index": (odd(mirror=lambda seen: replace(seen, index=None)), OBSERVED),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_subject_is_judged_as_by_the_driver(name: str) -> None:
    factory, law = WRONG[name]
    differential = Differential(factory, CONFIG)
    with pytest.raises(Violation) as violation:
        [differential.step(operation) for operation in (Admit("a", (1,)), Append("a", (2,)))]
    server = Server(factory)
    server.answer(write(header_json(CONFIG)))
    asked = [b'{"op":"admit","request":"a","tokens":[1],"observe":true}',
             b'{"op":"append","request":"a","tokens":[2],"observe":true}']  # fmt: skip
    answers = [read_answer(server.answer(line), batch=False).outcomes for line in asked]
    assert Broken(violation.value.law, violation.value.detail, violation.value.kind) in answers
    assert violation.value.law == law


def test_a_misuse_of_a_stranger_s_own_is_one_all_the_same() -> None:
    server = Server(odd(answer=raising(Theirs())))
    server.answer(write(header_json(CONFIG)))
    server.answer(b'{"op":"admit","request":"a","tokens":[1]}')
    misuse = read_answer(server.answer(b'{"op":"append","request":"a","tokens":[2]}'), batch=False).outcomes
    assert isinstance(misuse, Misuse)
    assert misuse.argument == "Theirs"


def test_ids_that_are_no_text_are_not_made_text() -> None:
    lengths = {1: Lengths(1, 1, 0)}
    by_number = odd(mirror=lambda seen: replace(seen, tables={}, lengths=lengths))
    in_index = odd(mirror=lambda seen: replace(seen, index={0: Identity(0, (1, 2))}))
    for factory in (by_number, in_index):
        server = Server(factory)
        server.answer(write(header_json(CONFIG)))
        answer = read_answer(server.answer(b'{"op":"observe","observe":true}'), batch=False)
        assert isinstance(answer.outcomes, Broken)
        assert answer.outcomes.law == OBSERVED


@pytest.mark.parametrize(
    "line",
    ["", "[]", '{"op":"fly"}', '{"op":"free"}', '{"op":"free","request":1}', '{"op":"observe","observe":"all"}',
     '{"op":"permute","new_block":["a"]}', '{"pagedkv_trace":2,"num_blocks":1,"block_size":1}'],
)  # fmt: skip
def test_a_line_that_asks_nothing_is_misuse_and_no_end(line: str) -> None:
    server = Server(BlockManager)
    server.answer(write(header_json(CONFIG)))
    assert isinstance(read_answer(server.answer(line.encode()), batch=False).outcomes, Misuse)
    assert read_answer(server.answer(b'{"op":"observe"}'), batch=False) == Answer((Ok(),))


def test_a_header_comes_first_and_another_one_starts_afresh() -> None:
    server = Server(BlockManager)
    assert isinstance(read_answer(server.answer(b'{"op":"observe"}'), batch=False).outcomes, Misuse)
    for _ in range(2):
        assert read_hello(server.answer(write(header_json(CONFIG)))).restarts  # type: ignore[union-attr]  # a Hello, as asserted
        seen = read_answer(server.answer(b'{"op":"observe","observe":true}'), batch=False).seen
        assert seen == Snapshot({}, {}, 4, {}, {})
        server.answer(b'{"op":"admit","request":"a","tokens":[1]}')


def test_what_is_observed_is_what_was_asked_for() -> None:
    server = Server(BlockManager)
    server.answer(write(header_json(CONFIG)))
    for operation in (Admit("a", (1, 2)), Commit("a", 2), Fork("a", "b")):
        kind, more = type(operation).__name__.lower(), vars(operation)
        server.answer(write({"op": kind, **{key: value for key, value in more.items() if value is not None}}))
    some = read_answer(server.answer(b'{"op":"observe","observe":["b","nobody"]}'), batch=False).seen
    assert some is not None
    assert (set(some.lengths), some.index, some.references) == ({"b"}, None, None)
    assert read_answer(server.answer(b'{"op":"observe"}'), batch=False).seen is None


def test_a_trace_file_can_be_its_input() -> None:
    with open(DATA / "sample.jsonl", "rb") as trace:
        run = subprocess.run([*SERVE, "reference"], stdin=trace, capture_output=True, check=True, timeout=60)
    hello, *answers = run.stdout.splitlines()
    assert "capabilities" in read(hello)
    assert len(answers) == len(sample().lines)
    assert run.stderr == b""


def served(*arguments: str, asked: bytes = (DATA / "sample.jsonl").read_bytes()) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*SERVE, *arguments], input=asked, capture_output=True, timeout=60, check=False)


def test_without_a_fork_it_is_the_same_and_the_process_dies_of_what_it_does() -> None:
    alone = served("--no-fork", "reference")
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, served("reference").stdout, b"")
    died = served("--no-fork", "tests.conformance.dying:ExitsWhenObserved", asked=b"".join(_DEADLY))
    assert died.returncode == 7
    assert len(died.stdout.splitlines()) == len(_DEADLY) - 1


STARTS_A_THREAD = """
import threading, warnings
from pagedkv.reference.manager import BlockManager
warnings.resetwarnings()
warnings.simplefilter("error")
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def test_a_module_may_start_threads_whatever_it_makes_of_warnings(tmp_path: Path) -> None:
    """Python 3.12 and later warn of a fork beside threads."""
    (tmp_path / "starts_a_thread.py").write_text(STARTS_A_THREAD, encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    served = subprocess.run(
        [sys.executable, "-W", "error", *SERVE[1:], "starts_a_thread:BlockManager"], input=_DEADLY[0],
        capture_output=True, check=True, timeout=60, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert "capabilities" in read(served.stdout)
    assert served.stderr == b""


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--fork", "reference"], ["reference", "optimized"]])
def test_how_it_is_called_is_told(arguments: list[str]) -> None:
    called = served(*arguments)
    assert (called.returncode, called.stdout) == (1, b"")
    assert called.stderr.startswith(b"usage: ")


_DEADLY = (
    write(header_json(CONFIG)),
    b'{"op":"admit","request":"a","tokens":[1]}\n',
    b'{"op":"commit","request":"a","computed":1}\n',
    b'{"op":"fork","parent":"a","child":"b","observe":true}\n',
)


def test_a_child_that_dies_is_reported_and_replaced() -> None:
    with subprocess.Popen(
        [*SERVE, "tests.conformance.dying:ExitsWhenObserved"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for _ in range(2):
            answers = []
            for line in _DEADLY:
                server.stdin.write(line)
                server.stdin.flush()
                answers.append(server.stdout.readline())
            assert "capabilities" in read(answers[0])
            assert read_answer(answers[-1], batch=False).outcomes == Broken(SURVIVES, *["it exited with code 7"] * 2)
        server.stdin.close()
        assert server.wait(60) == 0
