"""`explain --subject`: the trace as the subject runs it, and at a violation what it did."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pagedkv.cli.main import main
from pagedkv.conformance import corpus
from pagedkv.reference import BlockManager
from pagedkv.spec import Outcome, Reason, Refused, RequestId
from pagedkv.spec.subject import Capabilities, Snapshot

HERE = "tests.tools.test_explain_beside:"
HEADER = (
    '{"pagedkv_trace": 1, "num_blocks": 3, "block_size": 2, "options": {"prefix_cache": false}, "requires": ["fork"]}'
)
PROGRAM = [
    '{"op": "admit", "request": "a", "tokens": [1]}',
    '{"op": "commit", "request": "a", "computed": 1}',
    '{"op": "fork", "parent": "a", "child": "b"}',
    '{"op": "free", "request": "b"}',
    '{"op": "free", "request": "a"}',
]


class Forgets(BlockManager):
    """Frees nothing, and says that it did."""

    def free(self, request: RequestId) -> Outcome:
        entry = self.requests[request]
        outcome = super().free(request)
        self.requests[request] = entry
        return outcome


class Crashes(BlockManager):
    """Has no fork, in truth."""

    def fork(self, parent: RequestId, child: RequestId) -> Outcome:
        raise KeyError(child)


class Small(BlockManager):
    """Another free block than the first."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.pool.free.reverse()


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "fork.jsonl"
    path.write_text("\n".join([HEADER, *PROGRAM]) + "\n", encoding="utf-8")
    return str(path)


def test_what_holds_is_drawn_with_the_blocks_of_the_subject(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", trace, "--subject", HERE + "Small"]) == 0
    told = capsys.readouterr().out
    assert "VIOLATED" not in told
    assert "a  length 1 reserved 1 computed 0  2[o.]" in told


def test_at_a_violation_it_is_told_what_the_subject_did(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", trace, "--subject", HERE + "Forgets"]) == 1
    told = capsys.readouterr().out.splitlines()
    place = next(i for i, line in enumerate(told) if "VIOLATED" in line)
    assert told[place - 1].startswith("5: free request=b")
    assert told[place + 1] == "     the subject answered ok"
    assert any(line.startswith("     the subject shows b  length 1 ") for line in told)
    assert not any(line.startswith("6:") for line in told), "it ends there"


def test_what_gives_no_answer_is_told_as_such(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", trace, "--subject", HERE + "Crashes", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert not document["holds"]
    last = document["steps"][-1]
    assert "KeyError" in last["violated"]
    assert last["subject"] == ["gave no answer that could be used", "showed nothing that could be used"]


def test_a_trace_that_does_not_apply_is_misuse(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(path for path, each in corpus.traces().items() if "swap" in each.header.requires)
    assert main(["explain", str(path), "--subject", "device"]) == 2
    assert "the trace does not apply" in capsys.readouterr().err


@pytest.mark.parametrize("path", corpus.files()[::6], ids=lambda path: path.stem)
def test_the_corpus_is_drawn_on_ours(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(path), "--subject", "optimized"]) == 0
    assert "NOT AS EXPECTED" not in capsys.readouterr().out


class Leaks(BlockManager):
    """Its last block cannot be had, as shows only when the drain asks for all of them."""

    def admit(self, request: RequestId, tokens: Any, namespace: Any = "", reserve: int | None = None) -> Outcome:
        whole = len(tokens) == self.config.num_blocks * self.config.block_size
        return Refused(Reason.CAPACITY) if whole else super().admit(request, tokens, namespace, reserve)


def test_what_fails_at_the_end_only_fails_there(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As with `replay`."""
    arguments = [trace, "--subject", HERE + "Leaks"]
    assert main(["replay", *arguments]) == main(["explain", *arguments]) == 1
    told = capsys.readouterr().out.splitlines()
    assert any(line.startswith("the end, where") for line in told)
    assert any(line.startswith("     VIOLATED refusal is forbidden") for line in told)


class Hidden(BlockManager):
    """Shows no index, and finds what is certainly there only."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, reports_index=False, evict=False, policy="any")

    def observe(self, requests: Any = None) -> Snapshot:
        return replace(super().observe(requests), index=None)


@pytest.mark.parametrize("path", corpus.files(), ids=lambda path: path.stem)
def test_explain_and_replay_say_the_same_of_a_subject(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(path), "--subject", HERE + "Hidden"]
    assert main(["replay", *arguments]) == main(["explain", *arguments])
