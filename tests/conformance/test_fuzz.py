"""Random programs: what they cover, that they pass what is right, and that they find what is wrong."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, cast

import pytest
from pagedkv.conformance.differential.model import ModelSubject
from pagedkv.conformance.failures.shrinking import Failure
from pagedkv.conformance.importing import BUILT_IN
from pagedkv.conformance.programs.choosing import Dice, weighted
from pagedkv.conformance.programs.generator import MAKE
from pagedkv.conformance.programs.plans import NEEDS
from pagedkv.conformance.search import exhaustive, fuzz
from pagedkv.conformance.search.fuzz import FuzzReport
from pagedkv.conformance.search.slices import SLICES
from pagedkv.conformance.subjects import subject
from pagedkv.spec import Config, Misuse, Outcome, Reason, RequestId, Token
from pagedkv.spec.subject import Capabilities, Snapshot, SubjectFactory

from tests.conformance.illegal import ILLEGAL
from tests.conformance.legal import LEGAL


ON_THE_DEVICE = (
    "reserve", "prefix_cache", "lookup", "pins", "evict", "reports_index", "publish", "dedup", "preempt", "swap",
    "overlapped_steps", "policy",
)  # fmt: skip
"""What stays the host's."""


@pytest.fixture(scope="module")
def seed(request: pytest.FixtureRequest) -> int:
    """As for the property tests: it follows the commit, so that every commit tries other programs."""
    return int(request.config.getoption("--hypothesis-seed") or 0)


@pytest.mark.parametrize("name", BUILT_IN)
def test_our_implementations_hold(name: str, seed: int) -> None:
    report = fuzz.run(subject(name), seed=seed, programs=200, steps=60)
    assert report.violation is None, report.violation
    assert report.enough
    assert report.holds, report.not_exercised
    assert report.undeclared == (ON_THE_DEVICE if name == "device" else ("publish", "dedup"))


@pytest.mark.parametrize("name", LEGAL)
def test_no_legal_allocator_is_rejected(name: str, seed: int) -> None:
    report = fuzz.run(LEGAL[name], seed=seed, programs=25, steps=60)
    assert report.violation is None, report.violation


IN_A_SLICE = {"waiting_for_what_is_hit": "steps"}
"""What random programs come upon once in some thousand, and where the exhaustive check has it at once."""


@pytest.mark.parametrize(("name", "part"), IN_A_SLICE.items())
def test_what_random_programs_hardly_find_is_in_a_small_pool(name: str, part: str) -> None:
    found = exhaustive.run(ILLEGAL[name].load(), SLICES[part]).violation
    assert found is not None
    assert found.law == "the reason of a refusal"


@pytest.fixture(scope="module")
def on_the_model() -> FuzzReport:
    """Programs on the specification itself."""
    return fuzz.run(ModelSubject, seed=1, programs=150, steps=60)


def test_programs_are_mostly_valid_and_cover_everything(on_the_model: FuzzReport) -> None:
    operations = on_the_model.operations
    total = sum(sum(by_outcome.values()) for by_outcome in operations.values())
    misuse = sum(by_outcome["misuse"] for by_outcome in operations.values())
    assert 0.02 < misuse / total < 0.10
    assert sum(by_outcome["ok"] for by_outcome in operations.values()) > 0.5 * total
    assert set(operations) == set(MAKE) == set(NEEDS)
    assert all(by_outcome["ok"] > 20 for by_outcome in operations.values())
    cannot_be_misuse = {"reset_prefix_index"}
    assert {kind for kind, by_outcome in operations.items() if not by_outcome["misuse"]} <= cannot_be_misuse
    assert set(on_the_model.refusals) == set(Reason)
    assert on_the_model.share_depth_max >= 4
    assert min(on_the_model.copy_on_writes, on_the_model.swaps, on_the_model.evictions, on_the_model.hits) > 20
    assert on_the_model.not_exercised == ()


def test_a_report_is_plain_data(on_the_model: FuzzReport) -> None:
    assert json.loads(json.dumps(on_the_model.as_json()))["holds"] is True
    broken = fuzz.run(ILLEGAL["leak_on_free"].load(), seed=0, programs=50)
    assert broken.violation is not None
    assert json.loads(json.dumps(broken.as_json()))["violation"]["law"] == broken.violation.law


def test_the_same_seed_runs_the_same_programs() -> None:
    runs = [fuzz.run(ModelSubject, seed=seed, programs=5, steps=30) for seed in (7, 7, 8)]
    first, second, other = (replace(run, seconds=0.0, seed=0) for run in runs)
    assert first == second != other


def test_a_declared_capability_that_saw_no_event_fails_a_run_that_was_long_enough() -> None:
    report = fuzz.run(ModelSubject, seed=0, programs=1, steps=1)
    assert report.violation is None
    assert "swap" in report.not_exercised
    assert report.holds
    assert not replace(report, steps=fuzz.ENOUGH).holds
    assert replace(report, steps=fuzz.ENOUGH, not_exercised=()).holds


def test_what_is_known_is_counted_and_passed_over() -> None:
    """Every failing program is known: all run, and the intact ones are as many as of the intact manager."""
    known: list[Failure] = []

    def excuse(failure: Failure) -> str:
        known.append(failure)
        return "a leak"

    broken = ILLEGAL["leak_on_free"].load()
    report = fuzz.run(broken, seed=0, programs=30, excuse=excuse)
    assert report.programs == 30
    assert report.excused == {"a leak": len(known)}
    assert len(known) > 20
    assert report.violation is None


def test_a_failing_program_is_left_as_it_is_on_demand() -> None:
    broken = ILLEGAL["leak_on_free"].load()
    long, short = (fuzz.run(broken, seed=0, minimal=minimal).violation for minimal in (False, True))
    assert long is not None
    assert short is not None
    assert (long.law, long.program) == (short.law, short.program)
    assert len(long.trace.lines) > len(short.trace.lines)


def test_a_report_tells_how_far_programs_got(on_the_model: FuzzReport) -> None:
    programs = on_the_model.programs
    assert sum(on_the_model.share_depths.values()) == sum(on_the_model.fork_depths.values()) == programs
    assert max(on_the_model.share_depths) == on_the_model.share_depth_max
    assert max(on_the_model.fork_depths) >= 3, "grandchildren of children"
    assert on_the_model.exhausted > programs / 2
    assert set(on_the_model.lengths) == {"admit", "append", "reserve", "truncate"}
    assert all(count for by_place in on_the_model.lengths.values() for count in by_place.values())


@pytest.mark.parametrize("size", [{"programs": 0}, {"steps": 0}])
def test_a_run_of_nothing_is_misuse(size: dict[str, Any]) -> None:
    with pytest.raises(Misuse, match="=0 is not allowed"):
        fuzz.run(ModelSubject, seed=0, **size)


class Least:
    """Admit, append, commit, free and observe, and nothing else."""

    capabilities = Capabilities()

    def __init__(self, config: Config) -> None:
        if config.prefix_cache:
            raise Misuse("prefix_cache", True, "False")
        assert not config.overlapped_steps
        assert config.sliding_window is None
        self._model = ModelSubject(config)

    def admit(self, request: RequestId, tokens: Sequence[Token], namespace: object = "") -> Outcome:
        return self._model.admit(request, tokens, namespace)

    def append(self, request: RequestId, tokens: Sequence[Token]) -> Outcome:
        return self._model.append(request, tokens)

    def commit(self, request: RequestId, computed: int) -> Outcome:
        return self._model.commit(request, computed)

    def free(self, request: RequestId) -> Outcome:
        return self._model.free(request)

    def observe(self, requests: Sequence[RequestId] | None = None) -> Snapshot:
        return replace(self._model.observe(requests), references=None, index=None)


def test_a_subject_is_asked_for_nothing_that_it_does_not_declare() -> None:
    report = fuzz.run(cast(SubjectFactory, Least), seed=0, programs=60)
    assert report.holds, report.violation
    assert set(report.operations) == {"admit", "append", "commit", "free"}
    assert set(report.undeclared) == {field.name for field in fields(Capabilities)}


def test_most_lengths_are_next_to_the_end_of_a_block(on_the_model: FuzzReport) -> None:
    """Blocks are small, so nothing has to be done for it."""
    for places in on_the_model.lengths.values():
        assert sum(places.values()) - places["other"] > 0.8 * sum(places.values())


def test_weights_are_followed() -> None:
    dice = Dice(0)
    drawn = [weighted(dice, (3, 0, 1)) for _ in range(400)]
    assert 250 < drawn.count(0) < 350
    assert drawn.count(1) == 0
