"""What the command does with a violation: minimal traces, known failures, budgets."""

import json
from pathlib import Path

import pytest
from pagedkv.cli.main import main
from pagedkv.conformance.search.slices import SLICES
from pagedkv.conformance.suite.profiles import PROFILES
from pagedkv.spec.trace import load

from tests.tools.test_command import ADMIT, BROKEN, trace_file

KNOWN = '[[known]]\ntrace = "{trace}"\nline = {line}\nlaw = "{law}"\nreason = "not yet"\n'
LONG = (
    ADMIT,
    '{"op": "admit", "request": "b", "tokens": [3, 4, 5]}',
    '{"op": "commit", "request": "b", "computed": 3}',
    '{"op": "commit", "request": "a", "computed": 1}',
    '{"op": "free", "request": "b"}',
)


def test_replay_makes_a_violation_minimal_and_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = trace_file(tmp_path, *LONG), tmp_path / "minimal"
    assert main(["replay", path, "--subject", BROKEN, "--minimize", "--out", str(out)]) == 1
    text = capsys.readouterr().out
    (written,) = out.iterdir()
    assert len(load(written).lines) < len(LONG)
    assert f"pagedkv replay {written} --subject {BROKEN}" in text
    assert all(line in text for line in written.read_text().splitlines()[1:]), "nobody has to open the file"
    assert main(["replay", str(written), "--subject", BROKEN]) == 1
    assert main(["replay", str(written), "--subject", "reference"]) == 0


def test_an_expectation_that_is_not_met_breaks_no_law(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace_file(tmp_path, ADMIT[:-1] + ', "expect": {"available_blocks": 3}}')
    assert main(["replay", path, "--subject", "reference", "--minimize", "--out", str(tmp_path / "minimal")]) == 1
    assert "not made minimal: no law is broken" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["fuzz", "exhaust"])
def test_a_known_failure_is_passed_over(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--programs", "3"] if verb == "fuzz" else ["--slice", "core", "--max-states", "20"]
    run = [verb, *size, "--subject", BROKEN, "--out", str(tmp_path / "out")]
    assert main([*run, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    found = document["violation"] if verb == "fuzz" else document["slices"][0]
    trace = found["path"] if verb == "fuzz" else found["trace"]
    known = tmp_path / "known.toml"
    known.write_text(KNOWN.format(trace=trace, line=len(load(trace).lines) + 1, law=found["law"]))
    assert main([*run, "--known-failures", str(known)]) == 0
    assert "1 of 1 fail as pinned" in capsys.readouterr().out
    assert main(["replay", trace, "--subject", BROKEN, "--known-failures", str(known)]) == 0
    assert "fails as pinned" in capsys.readouterr().out
    assert main([verb, *size, "--subject", "reference", "--known-failures", str(known)]) == 1
    assert "pinned as a known failure and holds now" in capsys.readouterr().out
    assert main(["replay", trace, "--subject", "reference", "--known-failures", str(known)]) == 1


def test_profiles_are_budgets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[int, int]] = []

    def recorded(*_: object, programs: int, steps: int, **__: object) -> None:
        asked.append((programs, steps))
        raise OSError

    monkeypatch.setattr("pagedkv.cli.fuzz.fuzz", recorded)
    fuzz = ["fuzz", "--subject", "reference", "--out", str(tmp_path)]
    for more in ([], ["--profile", "nightly"], ["--profile", "nightly", "--programs", "7"], ["--steps", "9"]):
        assert main([*fuzz, *more]) == 2
    pr, nightly = PROFILES["pr"], PROFILES["nightly"]
    assert asked == [(pr.programs, pr.steps), (nightly.programs, nightly.steps), (7, nightly.steps), (pr.programs, 9)]


def test_a_limit_is_for_what_runs_in_a_process_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "--subject", "reference", "--limit-s", "1"]) == 2
    assert "process:reference" in capsys.readouterr().err


def test_states_that_were_reached_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pagedkv.cli.fuzz.slices_for", lambda capabilities: [SLICES["rolling"]])
    fuzz = ["fuzz", "--subject", "reference", "--programs", "3", "--steps", "10", "--states", "--out", str(tmp_path)]
    assert main([*fuzz, "--json"]) == 0
    (states,) = json.loads(capsys.readouterr().out)["states"]
    assert 0 < states["reached"] < states["states"] == 94
    assert main(fuzz) == 0
    assert "reached" in capsys.readouterr().out
