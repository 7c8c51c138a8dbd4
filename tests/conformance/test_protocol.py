"""The protocol: everything survives it, what is no answer is told, and the page about it is what is tested."""

import json
import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pagedkv.conformance.process.names import Names, is_text, is_word
from pagedkv.conformance.process.protocol import (
    Answer, Broken, Hello, answer_json, capabilities_json, header_json, operation_json, read, read_answer, read_hello,
    write,
)  # fmt: skip
from pagedkv.conformance.process.running import SURVIVES
from pagedkv.conformance.search import fuzz
from pagedkv.conformance.subjects import subject
from pagedkv.spec import HOLE, Batch, Copy, Identity, Misuse, Ok, Reason, Refused, RequestId
from pagedkv.spec.subject import Capabilities, Lengths, Snapshot
from pagedkv.spec.trace_fields import OPERATIONS, read_header, read_operation

from tests.spec.trace_strategies import headers, names, operations_of

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "protocol" / "subject.rs"
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")

numbers = st.integers(0, 2**40)
pairs = st.lists(st.builds(Copy, numbers, numbers), max_size=3).map(tuple)
tokens = st.lists(numbers, max_size=4).map(tuple)
oks = st.builds(Ok, numbers, tokens, pairs, pairs, pairs, numbers)
outcomes = oks | st.builds(Refused, st.sampled_from(Reason))
tables = st.lists(st.just(HOLE) | numbers, max_size=4).map(tuple)
lengths = st.builds(Lengths, numbers, numbers, numbers, st.booleans())
operations = st.sampled_from(list(OPERATIONS.values())).flatmap(operations_of)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    known: dict[RequestId, Lengths] = dict(draw(st.dictionaries(names, lengths, max_size=3)))
    shown = draw(st.sets(st.sampled_from(sorted(known, key=str)))) if known else set()
    index = st.dictionaries(numbers, st.builds(Identity, names, tokens), max_size=3)
    return Snapshot(
        tables={name: draw(tables) for name in sorted(shown, key=str)},
        lengths=known,
        available_blocks=draw(numbers),
        references=draw(st.none() | st.dictionaries(numbers, numbers, max_size=3)),
        index=draw(st.none() | index),
    )


@given(operations)
def test_every_operation_is_read_as_it_was_written(operation: Any) -> None:
    line = write(operation_json(operation))
    assert read_operation("line", read(line)) == operation
    assert line.isascii()
    assert line.count(b"\n") == 1


@given(headers)
def test_every_pool_is_read_as_it_was_written(header: Any) -> None:
    assert read_header("header", read(write(header_json(header.config())))).config() == header.config()


@given(st.lists(outcomes, min_size=1, max_size=3).map(tuple), st.none() | snapshots())
def test_every_answer_is_read_as_it_was_written(answered: Any, seen: Snapshot | None) -> None:
    for batch in {True, len(answered) > 1}:
        answer = Answer(answered, seen)
        assert read_answer(write(answer_json(answer, batch=batch)), batch=batch) == answer


@given(names, names, st.none() | snapshots(), st.booleans())
def test_misuse_and_broken_laws_are_read_as_they_were_written(
    one: str, other: str, seen: Snapshot | None, batch: bool
) -> None:
    misuse = Misuse(one, other, "something else")
    back = read_answer(write(answer_json(Answer(misuse, seen), batch=batch)), batch=batch)
    assert isinstance(back.outcomes, Misuse)
    assert (back.outcomes.argument, str(back.outcomes), repr(back.outcomes)) == (one, str(misuse), repr(misuse))
    assert back.seen == seen
    broken = Answer(Broken(one, other), seen)
    assert read_answer(write(answer_json(broken, batch=batch)), batch=batch) == broken


def test_a_copy_of_a_plain_pair_is_not_a_copy() -> None:
    assert Copy(1, 2) == (1, 2)  # equal, which is why the form is asked for by type


_declared = st.fixed_dictionaries(
    {
        **{f.name: st.booleans() for f in fields(Capabilities) if isinstance(f.default, bool)},
        "publish": st.sampled_from(("commit", "schedule")),
        "policy": st.sampled_from(("any", "lru")),
    }
)


def consistent(declared: dict[str, Any]) -> Capabilities:
    """Without what means nothing alone."""
    evict, sinks = (
        declared["evict"] and declared["reports_index"],
        declared["sink_tokens"] and declared["sliding_window"],
    )
    return Capabilities(**{**declared, "evict": evict, "sink_tokens": sinks})


@given(_declared.map(consistent), st.booleans())
def test_all_capabilities_are_read_as_they_were_written(capabilities: Capabilities, restarts: bool) -> None:
    assert read_hello(write(capabilities_json(capabilities, restarts=restarts))) == Hello(capabilities, restarts)


OBSERVED = '"available_blocks":1,"requests":{"a":{"length":1,"computed":0,"table":[0]}}'


def test_what_may_be_left_out_and_ignored() -> None:
    line = f'{{ "outcome" : "ok", "x-note": [{{}}], {OBSERVED} }}\r\n'.encode()
    answer = read_answer(line, batch=False)
    assert answer == Answer((Ok(),), Snapshot({"a": (0,)}, {"a": Lengths(1, 1, 0)}, 1))
    assert str(read_hello(b'{"outcome":"error","error":"dedup"}')) == "dedup is not allowed"


@pytest.mark.parametrize(
    "line",
    [
        "", "null", "[]", "{", '{"outcome":"ok"} {}', "\udcff", '{"outcome":"yes"}', "{}", '{"outcome":["ok"]}',
        '{"outcome":"ok","slots":[1.5]}', '{"outcome":"ok","slots":[true]}', '{"outcome":"ok","slots":3}',
        '{"outcome":"ok","copies":[[1]]}', '{"outcome":"ok","copies":[1,2]}', '{"outcome":"ok","cached_tokens":"4"}',
        '{"outcome":"ok","reason":"capacity"}', '{"outcome":"refused"}', '{"outcome":"refused","reason":"tired"}',
        '{"outcome":"error"}', '{"outcome":"ok","available_blocks":1}', '{"outcome":"ok","requests":{}}',
        '{"outcome":"ok","available_blocks":1.5,"requests":{}}', '{"outcome":"ok","available_blocks":1,"requests":[]}',
        '{"outcome":"ok","available_blocks":1,"requests":{"a":{"length":1}}}',
        '{"outcome":"ok","available_blocks":1,"requests":{"a":[1,1,0]}}',
        '{"outcome":"ok","available_blocks":1,"requests":{},"index":[[0,"",1]]}',
        '{"outcome":"ok","available_blocks":1,"requests":{},"references":{"0":1}}',
        '{"outcome":"ok","available_blocks":1,"requests":{},"references":[[0,2],[0,1]]}',
        '{"outcome":"ok","available_blocks":1,"requests":{},"index":[[0,"",[1]],[0,"a",[1]]]}',
        '{"rows":[{"outcome":"ok"}]}', '{"outcome":"ok","evicted":NaN}', '{"outcome":"ok","outcome":"ok"}',
        '{"outcome":"ok","evicted":1e400}', "[" * 100_000, '{"x-a":' * 100_000,
        '{"outcome":"ok","evicted":' + "1" * 5_000,
    ],
)  # fmt: skip
def test_what_is_no_answer_is_told(line: str) -> None:
    with pytest.raises(Misuse):
        read_answer(line.encode(errors="surrogateescape"), batch=False)


@pytest.mark.parametrize("line", ['{"outcome":"ok"}', '{"rows":[1]}', '{"rows":[{"outcome":"error","error":"a"}]}'])
def test_what_is_no_answer_to_a_batch_is_told(line: str) -> None:
    with pytest.raises(Misuse):
        read_answer(line.encode(), batch=True)


@pytest.mark.parametrize(
    "line",
    ['{"outcome":"ok"}', "{}", '{"capabilities":{"wings":true}}', '{"capabilities":[]}',
     '{"capabilities":{"evict":true}}'],
)  # fmt: skip
def test_what_is_no_answer_to_a_header_is_told(line: str) -> None:
    with pytest.raises(Misuse):
        read_hello(line.encode())


@given(st.lists(names | st.integers() | st.tuples(st.integers(), names), max_size=8))
def test_names_are_told_apart_and_found_again(ids: list[Any]) -> None:
    for plain in (is_word, is_text):
        spelled = Names(plain)
        texts = [spelled.text(name) for name in ids]
        assert len(set(texts)) == len(set(ids))
        assert [spelled.id(text) for text in texts] == ids
        assert all(is_word(text.replace("~", "")) or plain(text) for text in texts)
        for name in ids:
            spelled.forget(name)
        assert [spelled.text(name) for name in dict.fromkeys(ids)] == list(dict.fromkeys(texts))


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_page_shows_the_example() -> None:
    (shown,) = re.findall(r"```rust\n(.*?)```", PAGE, re.DOTALL)
    assert shown == EXAMPLE.read_text(encoding="utf-8")


def test_the_lines_on_the_page_are_lines_of_the_protocol() -> None:
    asked, hello, *answers = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    header, *questions = asked.splitlines()
    assert write(header_json(read_header("header", json.loads(header)).config())).decode().strip() == header
    for question in questions:
        value = json.loads(question)
        observe = {"observe": value.pop("observe")}
        operation = read_operation("line", value)
        assert write({**operation_json(operation), **observe}).decode().strip() == question
    assert isinstance(read_hello(hello.encode()), Hello)
    for line in "".join(answers).splitlines():
        read_answer(line.encode(), batch=False)


def test_the_page_names_every_operation_and_key() -> None:
    for name in (*OPERATIONS, *(f.name for f in fields(Ok)), *(f.name for f in fields(Snapshot) if f.name[0] in "air")):
        assert f"`{name}`" in PAGE or name in ("attend", "tables", "lengths"), name
    for kind in OPERATIONS.values():
        for part in fields(kind) if kind is not Batch else ():
            assert f"`{part.name}`" in PAGE or part.name in ("seed", "requests", "query_lens"), part.name
    assert all(f"`{reason}`" in PAGE for reason in Reason)


# --- the example ----------------------------------------------------------------------------------------------------

RUSTC = shutil.which("rustc") or shutil.which("rustc", path=str(Path.home() / ".cargo" / "bin"))
no_compiler = pytest.mark.skipif(RUSTC is None, reason="the example is in Rust, and there is no rustc")
UNCHECKED = ('if need > pool.free.len() { return refused("capacity") }', "")


def built(folder: Path, change: tuple[str, str] = ("", "")) -> str:
    """The name of the example as a subject, with a change of its text."""
    source = EXAMPLE.read_text(encoding="utf-8")
    assert change[0] in source
    (folder / "subject.rs").write_text(source.replace(*change) if change[0] else source, encoding="utf-8")
    subprocess.run([str(RUSTC), "-D", "warnings", "subject.rs"], cwd=folder, check=True)
    return f"command:{folder / 'subject'}"


@no_compiler
def test_the_example_holds(tmp_path: Path) -> None:
    report = fuzz.run(subject(built(tmp_path)), seed=0, programs=15)
    assert report.holds, report.violation
    assert set(report.operations) == {"admit", "append", "commit", "free"}


@no_compiler
def test_a_crash_of_the_example_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "1")  # what it says first stands before a long trace
    found = fuzz.run(subject(built(tmp_path, UNCHECKED)), seed=0, programs=15).violation
    assert found is not None
    assert found.law == SURVIVES
    assert "exited with code 101" in found.detail
    assert "out of range" in found.detail
    assert len(found.trace.lines) <= 2
