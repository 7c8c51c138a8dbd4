"""The catalogue is whole, its mutants still apply, and what is written of them is of them as they are."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conformance.mutants.mutation import MutationError

from tests.conformance.mutants import __main__ as command
from tests.conformance.mutants import campaign
from tests.conformance.mutants.catalogue import CATALOGUE, FAMILIES, Entry
from tests.conformance.mutants.page import PAGE, page
from tests.conformance.mutants.records import ORACLES, STATUSES, Result

RESULTS = campaign.results()


def is_dead(entry: Entry) -> bool:
    try:
        entry.applies()
    except MutationError:
        return True
    return False


def test_every_anchor_occurs_once() -> None:
    assert [key for key, entry in CATALOGUE.items() if is_dead(entry)] == []


def test_the_catalogue_is_long_and_keys_are_distinct() -> None:
    assert len(CATALOGUE) == sum(len(family.mutants) for family in FAMILIES.values()) >= 450


def test_every_mutant_has_a_result_and_none_is_of_another_one() -> None:
    """Repair: `make mutants ARGS=--resume`."""
    assert {key: result.digest for key, result in RESULTS.items()} == {
        key: entry.digest for key, entry in CATALOGUE.items()
    }


def test_every_status_is_in_the_denominator_and_every_mutant_is_killed() -> None:
    counts = Counter(result.status for result in RESULTS.values())
    assert sum(counts[status] for status in STATUSES) == len(CATALOGUE)
    assert {key: result.status for key, result in RESULTS.items() if result.status != "killed"} == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_kill_names_its_oracle_its_law_and_what_it_took(family: str) -> None:
    results = [result for result in RESULTS.values() if result.family == family]
    for result in results:
        assert result.kills, result.key
        assert all(kill.oracle in ORACLES and kill.law and kill.operations >= 1 for kill in result.kills)
        assert len({kill.oracle for kill in result.kills}) == len(result.kills)


def test_the_page_is_written_from_the_results() -> None:
    """Repair: `make mutants`."""
    seed = json.loads(campaign.DATA.read_text(encoding="utf-8"))["seed"]
    assert PAGE.read_text(encoding="utf-8") == page(RESULTS, seed)


def test_the_page_counts_whatever_became_of_a_mutant() -> None:
    alive = {
        key: replace(RESULTS[key], status=status, kills=(), detail="why")
        for key, status in zip(CATALOGUE, STATUSES[1:], strict=False)
    }
    text = page({**RESULTS, **alive}, 1)
    assert f"{len(CATALOGUE) - 3} killed, 1 survived, 1 dead anchor, 1 crashed" in text
    assert f"| all | {len(CATALOGUE)} | {len(CATALOGUE) - 3} |" in text
    assert "dead anchor why" in text


def test_a_result_is_plain_data() -> None:
    for result in RESULTS.values():
        assert Result.of_json(json.loads(json.dumps(result.as_json()))) == result


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results and traces are written to a folder that is empty."""
    monkeypatch.setattr(campaign, "DATA", tmp_path / "mutants.json")
    monkeypatch.setattr(command, "PAGE", tmp_path / "mutants.md")
    monkeypatch.setattr("tests.conformance.mutants.traces.FOLDER", tmp_path)
    return tmp_path


def test_the_command_hunts_what_is_left_and_keeps_what_there_is(elsewhere: Path) -> None:
    assert command.main(["--only", "gather/gather_one_head", "merge/merge_not_divided", "--jobs", "1"]) == 0
    assert set(campaign.results()) == {"gather/gather_one_head", "merge/merge_not_divided"}
    assert command.main(["--only", "gather/gather_one_head", "--resume"]) == 0, "there is nothing to do"
    assert "| all | 2 | 2 |" in (elsewhere / "mutants.md").read_text(encoding="utf-8")
    assert command.main(["--only", "no such mutant"]) == 2


def test_a_dead_anchor_is_no_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = CATALOGUE["gather/gather_one_head"]
    dead = replace(entry, mutant=replace(entry.mutant, replacements=(("no such text", ""),)))  # type: ignore[type-var]  # a Mutant
    monkeypatch.setitem(CATALOGUE, entry.key, dead)
    result = campaign.hunted(entry.key, 1).result
    assert (result.status, result.kills) == ("dead anchor", ())
    assert "no such text" in result.detail
