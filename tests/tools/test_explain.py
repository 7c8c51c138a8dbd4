"""`pagedkv explain`: what is drawn, what is marked, and that an expectation is held against the specification."""

import json
from pathlib import Path

import pytest

from pagedkv.cli.main import main
from pagedkv.spec.trace import load

from tests.tools.test_command import HEADER, SAMPLE, trace_file


def test_explain_draws_the_sample_as_expected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", SAMPLE]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "NOT AS EXPECTED" not in printed.out
    assert printed.out.count("\n    pool  ") == len(load(SAMPLE).lines)


def test_explain_marks_what_an_operation_changed_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admit = '{"op": "admit", "request": "%s", "tokens": [1, 2, 3]}'
    path = trace_file(
        tmp_path,
        admit % "a",
        '{"op": "commit", "request": "a", "computed": 3}',
        '{"op": "fork", "parent": "a", "child": "b"}',
        '{"op": "append", "request": "b", "tokens": [9]}',
    )
    assert main(["explain", path]) == 0
    last = capsys.readouterr().out.split("\n\n")[-1]
    assert "append request=b tokens=[9] -> ok: slot 5, copy block 1 to 2" in last
    assert "    a  length 3 reserved 3 computed 3  0[##] 1[#.]" in last
    assert "  * b  length 4 reserved 4 computed 3  0[##] *2[#o]" in last
    assert "    pool    2i   *1   *1    .\n" in last


def test_a_question_changes_nothing_so_nothing_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    admit = '{"op": "admit", "request": "a", "tokens": [1, 2, 3]}'
    path = trace_file(tmp_path, admit, '{"op": "lookup", "tokens": [1, 2]}')
    assert main(["explain", path]) == 0
    assert "*" not in capsys.readouterr().out.split("\n\n")[-1]


def test_explain_shows_refusal_and_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace_file(
        tmp_path,
        '{"op": "admit", "request": "a", "tokens": [1, 2, 3, 4, 5, 6, 7, 8, 9]}',
        '{"op": "free", "request": "a"}',
    )
    assert main(["explain", path]) == 0
    text = capsys.readouterr().out
    assert "-> refused: unservable" in text
    assert "-> misuse: request='a'" in text


def test_an_expectation_that_is_not_met_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace_file(
        tmp_path, '{"op": "admit", "request": "a", "tokens": [1], "expect": {"available_blocks": 4, "length": 1}}'
    )
    assert main(["explain", path]) == 1
    assert "NOT AS EXPECTED available_blocks: the trace has 4, the specification says 3" in capsys.readouterr().out
    assert main(["explain", "--json", path]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["holds"] is False
    assert document["steps"][0]["not_as_expected"] == ["available_blocks: the trace has 4, the specification says 3"]
    assert document["steps"][0]["tables"] == {"a": [0]}


def test_colour_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", SAMPLE])
    assert "\x1b[" not in capsys.readouterr().out
    main(["explain", "--color", "always", SAMPLE])
    assert "\x1b[1m" in capsys.readouterr().out


def test_a_large_block_is_drawn_by_its_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large.jsonl"
    admit = '{"op": "admit", "request": "a", "tokens": [1, 2, 3]}\n{"op": "commit", "request": "a", "computed": 2}\n'
    reserve = '{"op": "reserve", "request": "a", "length": 1001}\n'
    path.write_text(HEADER.replace('"block_size": 2', '"block_size": 1000') + admit + reserve)
    assert main(["explain", str(path)]) == 0
    last = capsys.readouterr().out.split("\n\n")[-1]
    assert "a  length 3 reserved 1001 computed 2  0[2# 1o 997.] *1[1000.]" in last


def test_a_large_pool_is_drawn_by_its_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large.jsonl"
    admits = "".join(f'{{"op": "admit", "request": "r{i}", "tokens": [{i}]}}\n' for i in range(20))
    path.write_text(HEADER.replace('"num_blocks": 4', '"num_blocks": 1000') + admits)
    assert main(["explain", str(path)]) == 0
    last = capsys.readouterr().out.split("\n\n")[-1]
    assert "  * r19  length 1 reserved 1 computed 0  19[o.]" in last
    assert "19 more requests, unchanged" in last
    assert "pool, changed blocks: 19:1" in last
