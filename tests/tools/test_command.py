"""The command as its user meets it: exit codes, what goes to which stream, and JSON with the documented keys."""

import json
from pathlib import Path

import pytest

from pagedkv.cli.fuzz import _outcomes
from pagedkv.cli.inputs import BadInput, subject_factory
from pagedkv.cli.main import VERBS, main
from pagedkv.conformance.search.slices import SLICES
from pagedkv.reference import BlockManager
from pagedkv.spec import Outcome, RequestId
from pagedkv.spec.trace import DATA, load
from pagedkv.spec.words import Ok

SAMPLE = str(DATA / "sample.jsonl")
HEADER = '{"pagedkv_trace": 1, "num_blocks": 4, "block_size": 2}\n'
BROKEN = "tests.tools.test_command:Broken"


class Broken(BlockManager):
    """Says of every `free` that it evicted."""

    def free(self, request: RequestId) -> Outcome:
        super().free(request)
        return Ok(evicted=1)


def trace_file(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "program.jsonl"
    path.write_text(HEADER + "".join(line + "\n" for line in lines))
    return str(path)


# --- exit codes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["explain"],
        ["explain", "no/such/file"],
        ["exhaust", "--slice", "everything"],
        ["exhaust", "--max-states", "0"],
        ["exhaust", "--subject", "nobody"],
        ["exhaust", "--subject", "no_such_module:Manager"],
        ["exhaust", "--subject", "pagedkv.reference.manager:Nobody"],
        ["exhaust", "--subject", "pagedkv.reference.manager:__name__"],
        ["exhaust", "--subject", "builtins:repr"],
        ["verify", "--only", "nothing"],
        ["verify", "--seed", "-1"],
    ],
)
def test_misuse_ends_with_2_and_says_why(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "error: " in printed.err


def test_help_ends_with_0_and_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert all(name in capsys.readouterr().out for name in ["0 holds"])
    for name in VERBS:
        assert main([name, "--help"]) == 0


def test_an_unknown_subject_is_told_what_is_allowed() -> None:
    with pytest.raises(BadInput, match=r"'nobody'.*reference, optimized, device, module:factory"):
        subject_factory("nobody")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"op": "admit", "request": "a"', "JSON"),
        ('{"op": "evict"}', "'blocks'"),
        ('{"op": "leap", "request": "a"}', "leap"),
        ('{"op": "free", "request": "a", "blocks": 2}', "blocks"),
        ('{"op": "free", "request": 7}', "a string"),
    ],
)
def test_a_bad_line_is_named_with_file_and_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, expected: str
) -> None:
    path = trace_file(tmp_path, '{"op": "admit", "request": "a", "tokens": [1]}', line)
    assert main(["explain", path]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"{path}:3:" in printed.err
    assert expected in printed.err


@pytest.mark.parametrize(
    "verb", [["fuzz", "--programs", "1"], ["exhaust", "--slice", "core", "--max-states", "2"], ["replay", SAMPLE]]
)
def test_who_forgets_the_subject_is_told_first_what_is_held(
    verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("no --subject: holding pagedkv's own optimized manager\n")
    assert json.loads(printed.out)["subject"] == "optimized"
    assert main([*verb, "--subject", "optimized"]) == 0
    assert "no --subject" not in capsys.readouterr().err


# --- exhaust --------------------------------------------------------------------------------------------------------


def test_exhaust_reports_states_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exhaust", "--subject", "reference", "--slice", "core", "--max-states", "30", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["holds"] is True
    (found,) = document["slices"]
    assert set(found) == {"slice", "holds", "states", "transitions", "refused", "excused", "complete", "elapsed_s"}
    assert found["states"] == 30
    assert "exhaust core" in printed.err, "progress is on stderr"


def test_a_subject_without_a_prefix_cache_is_asked_what_it_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exhaust", "--subject", "device", "--max-states", "10", "--json"]) == 0
    assert [found["slice"] for found in json.loads(capsys.readouterr().out)["slices"]] == [
        "core",
        "rewind",
        "siblings",
        "rolling",
    ]


def test_a_violation_ends_with_1_and_is_written_as_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["exhaust", "--subject", BROKEN, "--slice", "core", "--out", str(tmp_path), "--no-minimize", "--json"]
    assert main(arguments) == 1
    (found,) = json.loads(capsys.readouterr().out)["slices"]
    assert "evict" in found["law"]
    trace = load(found["trace"])
    assert trace.header.config() == SLICES["core"].config
    assert found["law"] in trace.header.note
    assert main(arguments[:-2]) == 1
    printed = capsys.readouterr().out
    assert "VIOLATED in core" in printed
    assert f"pagedkv replay {found['trace']} --subject {BROKEN}" in printed
    assert load(found["trace"]).header.num_blocks == 1, "it was made minimal"


def test_a_failure_that_cannot_be_written_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["exhaust", "--subject", BROKEN, "--slice", "core", "--out", str(tmp_path / "file")]) == 2
    assert "nothing can be written" in capsys.readouterr().err


# --- fuzz -----------------------------------------------------------------------------------------------------------

FUZZ = ["fuzz", "--subject", "reference", "--seed", "3"]


def test_fuzz_reports_operations_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([*FUZZ, "--programs", "100", "--steps", "20", "--out", str(tmp_path), "--json"])
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert code == (0 if document["holds"] else 1)
    assert document["violation"] is None
    assert document["programs"] == 100
    assert sum(document["operations"]["admit"].values()) > 0
    assert {"copy_on_writes", "preemptions", "share_depth_max", "refusals", "not_exercised"} <= set(document)
    assert "100 of 100 programs" in printed.err, "progress is on stderr"


def test_fuzz_prints_what_was_exercised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*FUZZ, "--programs", "5", "--out", str(tmp_path)])
    text = capsys.readouterr().out
    assert all(word in text for word in ("5 programs", "refused", "refusals by reason", "copy-on-writes", "owners"))


def test_an_odd_number_of_kinds_leaves_a_place_empty() -> None:
    counts = dict.fromkeys(("ok", "refused", "misuse"), 1)
    _, first, last = _outcomes({"admit": counts, "free": counts, "append": counts})
    assert first.split() == ["admit", "1", "1", "1", "append", "1", "1", "1"]
    assert last.split() == ["free", "1", "1", "1"]


def test_a_capability_that_no_program_exercised_is_a_violation_if_enough_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = [*FUZZ, "--programs", "1", "--steps", "1", "--out", str(tmp_path)]
    assert main(few) == 0
    assert "not exercised yet, in fewer than " in capsys.readouterr().out
    monkeypatch.setattr("pagedkv.conformance.search.fuzz.ENOUGH", 1)
    assert main(few) == 1
    assert "exercised by no program: " in capsys.readouterr().out


def test_fuzz_writes_the_shortest_failing_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folder"
    assert main(["fuzz", "--subject", BROKEN, "--programs", "3", "--out", str(out), "--json"]) == 1
    violation = json.loads(capsys.readouterr().out)["violation"]
    assert "evict" in violation["law"]
    assert str(out) in violation["path"]
    assert len(load(violation["path"]).lines) <= 2, "to admit and to free is enough"
    (tmp_path / "file").write_text("")
    assert main(["fuzz", "--subject", BROKEN, "--programs", "3", "--out", str(tmp_path / "file")]) == 2


# --- replay ---------------------------------------------------------------------------------------------------------

ADMIT = '{"op": "admit", "request": "a", "tokens": [1, 2, 3]}'


@pytest.mark.parametrize("subject", ["reference", "optimized"])
def test_replay_holds_the_sample(subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", SAMPLE, "--subject", subject]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{SAMPLE}: holds, 50 operations\n{subject}: HOLDS\n"
    assert "replay" in printed.err


def test_replay_names_the_line_and_the_law(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace_file(tmp_path, ADMIT, '{"op": "free", "request": "a"}')
    assert main(["replay", path, SAMPLE, "--subject", BROKEN, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["holds"] is False
    assert [each["trace"] for each in document["traces"]] == [path, SAMPLE]
    assert document["traces"][0]["at_line"] == 3
    assert "evict" in document["traces"][0]["law"]
    assert main(["replay", path, "--subject", BROKEN]) == 1
    assert f"VIOLATED at {path}:3: evict" in capsys.readouterr().out


def test_replay_holds_a_subject_to_what_the_trace_expects(tmp_path: Path) -> None:
    path = trace_file(tmp_path, ADMIT[:-1] + ', "expect": {"available_blocks": 3}}')
    assert main(["replay", path, "--subject", "reference"]) == 1


def test_a_trace_that_does_not_apply_is_no_violation_but_nothing_else_is_misuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dedup.jsonl"
    path.write_text(HEADER.replace("}", ', "options": {"dedup": true}}') + ADMIT + "\n")
    assert main(["replay", str(path), "--subject", "optimized"]) == 2
    printed = capsys.readouterr()
    assert "not applicable" in printed.out
    assert "none of the traces applies" in printed.err
    assert main(["replay", str(path), trace_file(tmp_path, ADMIT), "--subject", "optimized"]) == 0


def test_a_bad_trace_among_good_ones_stops_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace_file(tmp_path, "{}")
    assert main(["replay", SAMPLE, path, "--subject", "reference"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"{path}:2:" in printed.err


def test_what_fuzz_has_written_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["fuzz", "--subject", BROKEN, "--programs", "3", "--out", str(tmp_path)])
    (path,) = tmp_path.iterdir()
    assert main(["replay", str(path), "--subject", BROKEN]) == 1
    assert main(["replay", str(path), "--subject", "reference"]) == 0
    capsys.readouterr()
