"""`pagedkv attention`: what it prints, its exit codes, and what it says to a subject or a case that is none."""

import argparse
import json
from dataclasses import replace
from typing import Any

import pytest
from pagedkv.cli import attention
from pagedkv.cli.inputs import BadInput
from pagedkv.reference.attention import ReferenceAttention
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem

HERE = "tests.tools.test_attention_verb"
SMALL = ["--size", "tiny", "--fix", "head_dim=16", "--fix", "block_size=4"]
DECODES = AttentionCapabilities(returns_lse=True)


class Decodes(ReferenceAttention):
    """Decodes in float32 only."""

    capabilities = DECODES


class Longer(Decodes):
    """Reads one position too many."""

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        print("told by a subject")
        return super().attend(replace(problem, seq_lens=problem.seq_lens + 1))


class Undeclared(Decodes):
    capabilities = "window"  # type: ignore[assignment]  # what a subject may get wrong


class Silent:
    name = "says nothing of itself"


def verb(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    attention.configure(parser)
    return attention.run(parser.parse_args([*arguments]))


def test_a_subject_that_keeps_every_law(capsys: pytest.CaptureFixture[str]) -> None:
    assert verb("--subject", f"{HERE}:Decodes", *SMALL) == 0
    told = capsys.readouterr()
    assert "float32 plain" in told.out
    assert "FAILED" not in told.out
    assert "attention 1/1" in told.err


def test_a_broken_law_is_told_and_its_case_runs_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert verb("--subject", f"{HERE}:Longer", *SMALL, "--json", "--first") == 1
    out, told = capsys.readouterr()
    assert "told by a subject" in told
    (failure,) = json.loads(out)["failures"]
    again = ("--subject", f"{HERE}:{{}}", "--law", failure["law"], "--case", failure["case"])
    assert verb(*(each.format("Longer") for each in again)) == 1
    assert capsys.readouterr().out.startswith(f"VIOLATED {failure['law']}: ")
    assert verb(*(each.format("Decodes") for each in again), "--json") == 0
    assert json.loads(capsys.readouterr().out)["holds"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--subject", f"{HERE}:Nobody"], "has no attribute 'Nobody'"),
        (["--subject", "nowhere"], "expected module:function"),
        (["--subject", f"{HERE}:Silent"], "makes a Silent, which has no capabilities, rounding, attend"),
        (["--subject", f"{HERE}:Undeclared"], "capabilities of type str: expected AttentionCapabilities"),
        (["--subject", f"{HERE}:Decodes", "--fix", "window=3"], "expected FIELD=VALUE, a field of block_size"),
        (["--subject", f"{HERE}:Decodes", "--fix", "head_dim=0"], "expected FIELD=VALUE"),
        (["--subject", f"{HERE}:Decodes", "--law", "poison"], "--law and --case go together"),
        (["--subject", f"{HERE}:Decodes", "--law", "poison", "--case", "Case(9)"], "expected Case"),
        (["--subject", f"{HERE}:Decodes", "--law", "poison", "--case", "print()"], "expected Case"),
        (["--subject", f"{HERE}:Decodes", "--law", "poison", "--case", "Case(length=9)"], "expected Case"),
    ],
)
def test_what_is_no_subject_shape_or_case_is_misuse(arguments: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        verb(*arguments)
