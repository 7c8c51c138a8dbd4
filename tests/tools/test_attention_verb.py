"""`pagedkv attention`: what it prints, its exit codes, and what it says to a subject or a case that is none."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pagedkv.cli import attention
from pagedkv.cli.inputs import BadInput
from pagedkv.cli.main import main
from pagedkv.conformance.attention import Case, with_positions
from pagedkv.conformance.attention.cases import case_of
from pagedkv.reference.attention import ReferenceAttention
from pagedkv.conformance.failures.entries import entry_of
from pagedkv.spec.attention_subject import AttentionCapabilities, Problem
from pagedkv.spec.misuse import Misuse

from tests.conformance.test_attention_pins import LAW, LONG

HERE = "tests.tools.test_attention_verb"
KERNELS = "tests.conformance.kernel_samples"
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


class OwnRows(ReferenceAttention):
    """Lengths count the rows, as an engine's do: others it refuses."""

    capabilities = AttentionCapabilities(causal_prefill=True)

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        if (problem.query_lens > problem.seq_lens).any():
            raise ValueError("rows before position 0")
        return super().attend(problem)


class Fitting(OwnRows):
    """And says so."""

    def fit(self, case: Case) -> Case | None:
        return with_positions(case)


class Grouped(Longer):
    """Takes what no smaller case has."""

    def attend(self, problem: Problem) -> tuple[Any, Any]:
        if problem.query.shape[1] != 6:
            raise ValueError("made for 6 heads")
        return super().attend(problem)


class Unmade(Decodes):
    def __init__(self) -> None:
        raise RuntimeError("no driver")


class Writeless:
    name, attend, rounding = "w", None, None
    capabilities = AttentionCapabilities(writes=True)


def fp8() -> Any:
    return AttentionCapabilities(dtypes=("fp8",))


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
    assert "VIOLATED" not in told.out
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
        (["--subject", f"{HERE}:Nobody"], "expected a function or class in tests.tools.test_attention_verb"),
        (["--subject", "nowhere"], "expected module:factory"),
        (["--subject", f"{HERE}:Silent"], "the Silent has no capabilities, rounding, attend"),
        (
            ["--subject", f"{HERE}:Unmade"],
            r"it raised RuntimeError\('no driver'\) \(test_attention_verb.py:\d+ in __init__\)",
        ),
        (["--subject", f"{HERE}:fp8"], r"it raised .*dtypes=\('fp8',\) is not allowed: .* float32, float16, b"),
        (["--subject", f"{HERE}:Writeless"], "the Writeless has no write_kv, copy_blocks"),
        (["--subject", f"{HERE}:Undeclared"], "one that declares AttentionCapabilities, not a str"),
        (["--subject", f"{HERE}:Decodes", "--fix", "window=3"], "expected FIELD=VALUE, a field of block_size"),
        (["--subject", f"{HERE}:Decodes", "--fix", "head_dim=0"], "expected FIELD=VALUE"),
        (["--subject", f"{HERE}:Decodes", "--law", "poison"], "--law and --case go together"),
        (["--subject", f"{HERE}:Decodes", "--law", "poison", "--case", "Case(9)"], "expected Case"),
        (["--subject", f"{HERE}:Decodes", "--law", "poison", "--case", "Case(lengths=(1,) * 10**9)"], "expected Case"),
        (["--subject", f"{HERE}:Decodes", "--law", "poison", "--case", "print()"], "expected Case"),
        (["--subject", f"{HERE}:Decodes", "--law", "poison", "--case", "Case(length=9)"], "expected Case"),
        (["--subject", f"{HERE}:Decodes", "--law", "poison", "--case", "Case(dtype='fp8')"], "one of float32, float16"),
    ],
)
def test_what_is_no_subject_shape_or_case_is_misuse(arguments: list[str], message: str) -> None:
    with pytest.raises((BadInput, Misuse), match=message):
        verb(*arguments)


def test_a_subject_without_rows_before_position_0_says_so_by_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert verb("--subject", f"{HERE}:OwnRows", *SMALL) == 1
    assert "says so by `fit`, see `with_positions`" in capsys.readouterr().out
    assert verb("--subject", f"{HERE}:Fitting", *SMALL) == 0


def test_what_is_fixed_stays_so_in_the_smallest_case(capsys: pytest.CaptureFixture[str]) -> None:
    fixed = ("--fix", "num_kv_heads=2", "--fix", "group=3")
    assert verb("--subject", f"{HERE}:Grouped", *SMALL, *fixed, "--first", "--json") == 1
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    case = case_of(failure["case"])
    assert (case.num_kv_heads, case.group, len(case.lengths)) == (2, 3, 1)
    assert not failure["detail"].startswith("raised")


def test_known_failures_are_no_violation_as_long_as_they_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known.toml"
    known.write_text(entry_of(law=LAW, case=LONG.case.describe()))
    arguments = ("--size", "tiny", "--known-failures", str(known), "--subject")
    assert verb(*arguments, f"{KERNELS}:WrongIfLong") == 0
    assert f"put down to the known failure {LONG.name}: " in capsys.readouterr().out
    assert verb(*arguments, f"{KERNELS}:WrongIfLong", "--json") == 0
    assert [*json.loads(capsys.readouterr().out)["excused"]] == [LONG.name]
    assert verb(*arguments, f"{KERNELS}:WrongTwice") == 1
    assert f"VIOLATED {LAW} (bound): " in capsys.readouterr().out
    assert verb(*arguments, f"{KERNELS}:Right") == 1
    assert "holds now: remove its entry" in capsys.readouterr().out
    with pytest.raises(BadInput, match="--known-failures is for a whole run"):
        verb(*arguments, f"{KERNELS}:Right", "--law", LAW, "--case", "Case()")
    with pytest.raises(Misuse, match="known_failures='nowhere' is not allowed"):
        verb("--subject", f"{KERNELS}:Right", "--known-failures", "nowhere")


def test_what_was_raised_has_its_traceback_if_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    again = ("--law", "answer", "--case", "Case(lengths=(2,), query_lens=(3,))")
    for debug, expected in (("", 0), ("1", 1)):
        monkeypatch.setenv("PAGEDKV_DEBUG", debug)
        for arguments in (("--first", *SMALL), again):
            assert verb("--subject", f"{HERE}:OwnRows", *arguments) == 1
            out, told = capsys.readouterr()
            assert "ValueError: rows before position 0 (test_attention_verb.py:" in out
            assert told.count("Traceback") == expected


def test_a_law_that_says_nothing_of_a_case_does_not_hold_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert verb("--subject", f"{HERE}:Decodes", "--law", "sharing", "--case", "Case()") == 0
    assert capsys.readouterr().out == "not applicable: sharing says nothing of this case\n"


@pytest.mark.parametrize("name", ["Unmade", "fp8", "Nobody"])
def test_a_subject_that_cannot_be_made_is_one_line_and_exit_code_2(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAGEDKV_DEBUG", raising=False)
    assert main(["attention", "--subject", f"{HERE}:{name}"]) == 2
    out, told = capsys.readouterr()
    assert out == ""
    assert told.count("\n") == 1
    assert told.startswith("pagedkv attention: error: ")
