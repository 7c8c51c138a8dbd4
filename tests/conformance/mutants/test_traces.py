"""Every stored trace shows its mutant, to anybody; and random programs still find mutants, and the canary, unaided."""

import random

import pytest
from pagedkv.conformance.failures.replay import replay

from tests.conformance.mutants import campaign
from tests.conformance.mutants.catalogue import CATALOGUE, FAMILIES
from tests.conformance.mutants.managers import by_programs
from tests.conformance.mutants.traces import file_of, main, stored
from pagedkv.spec.trace import parse

OF_PROGRAMS = [name for name, family in FAMILIES.items() if family.subject]
"""Families on which the kit runs programs."""
TRACES = {f"{name}/{trace.name}": trace for name in OF_PROGRAMS for trace in stored(name)}
DRAWN = 5
"""Mutants that are hunted anew in every run."""


@pytest.mark.parametrize("key", TRACES)
def test_a_trace_breaks_its_law_on_the_mutant_and_none_on_what_is_intact(key: str) -> None:
    """Repair: `make mutants ARGS="--only KEY"`."""
    kept, entry = TRACES[key], CATALOGUE[key]
    assert entry.family.subject
    assert entry.family.intact
    report = replay(kept.trace, entry.family.subject(entry.mutant))
    assert (report.verdict, report.law, report.at_line) == ("violation", kept.law, kept.at_line)
    assert replay(kept.trace, entry.family.intact()).verdict == "holds"


def test_whatever_programs_notice_has_a_trace() -> None:
    noticed = {key for key, result in campaign.results().items() if result.trace_length is not None}
    assert set(TRACES) == noticed


def found_soon() -> list[str]:
    """Mutants that random programs need few operations for, so that not finding one is no bad luck."""
    kills = {key: campaign.results()[key].by("ledger") for key in TRACES}
    return [key for key, kill in kills.items() if kill and kill.operations < 2_000]


def test_programs_of_another_seed_find_mutants_too(pytestconfig: pytest.Config) -> None:
    """The seed follows the commit: every commit draws other mutants, and other programs."""
    seed = int(pytestconfig.getoption("--hypothesis-seed") or 0)
    for key in random.Random(seed).sample(found_soon(), DRAWN):
        entry = CATALOGUE[key]
        assert entry.family.subject
        found, trace = by_programs(entry.family.subject(entry.mutant), seed, programs=3_000, steps=60)
        assert found is not None, f"{key} was not found with seed {seed}"
        assert trace is not None
        assert entry.family.intact
        assert replay(trace, entry.family.intact()).verdict == "holds"


def test_the_alarm_rings(pytestconfig: pytest.Config) -> None:
    """The canary dies in the first program. If it does not, nothing that the other tests found is worth anything."""
    assert campaign.alarm_rings(int(pytestconfig.getoption("--hypothesis-seed") or 0))


@pytest.mark.parametrize("family", OF_PROGRAMS)
def test_a_file_of_traces_is_read_as_it_was_written(family: str) -> None:
    assert "\n".join(trace.text() for trace in stored(family)) == file_of(family).read_text(encoding="utf-8")


def test_one_trace_is_printed_for_pagedkv_replay(capsys: pytest.CaptureFixture[str]) -> None:
    main([campaign.CANARY])
    assert parse(capsys.readouterr().out) == TRACES[campaign.CANARY].trace
    with pytest.raises(SystemExit, match="2"):
        main(["reference/no such mutant"])
    assert "no trace is stored of reference/no such mutant: " in capsys.readouterr().err
