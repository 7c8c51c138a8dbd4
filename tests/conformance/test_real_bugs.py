"""Bugs that other projects have had: each is noticed by the kit, and none is in our managers.

What is right is said by the traces of the corpus; what was wrong is said by mutants of the reference.
"""

import re
from collections.abc import Callable
from functools import partial

import pytest
from pagedkv.conformance import corpus
from pagedkv.conformance.differential.model import LEGAL_CHOICES, ModelSubject
from pagedkv.conformance.failures.replay import replay
from pagedkv.conformance.subjects import subject
from pagedkv.reference.manager import BlockManager
from pagedkv.spec import Config
from pagedkv.spec.subject import SubjectFactory
from pagedkv.spec.trace import load

from tests.conformance.real_bugs.collected import RECORDS
from tests.conformance.mutants.campaign import results
from tests.conformance.mutants.catalogue import CATALOGUE, FAMILIES
from tests.conformance.real_bugs.kernels import CLASSES, KERNELS
from tests.conformance.real_bugs.records import KERNEL_FACTS, Fact, Record, facts
from tests.tools.bugs_page import keys_of

FACTS = {fact.id: fact for fact in facts()}
OF_KERNELS = {fact.id: fact for fact in facts(KERNEL_FACTS)}
BOTH = {"B012", "B031"}
"""Bugs of a manager that its kernels have, too."""
OF_BUGS = {path.name[:4] for path in corpus.files() if re.match(r"B\d{3}_", path.name)}
NUM_BUGS = 86
"""Bugs that were collected and concern what a block manager does, whoever's."""
NUM_OF_KERNELS = 51
"""Those that concern kernels; `BOTH` are counted in either."""

every_record = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.trace.stem)
every_fact = pytest.mark.parametrize("fact", [*FACTS.values(), *OF_KERNELS.values()], ids=lambda fact: fact.id)


def _specification(name: str, *, reports_index: bool = True) -> SubjectFactory:
    def make(config: Config) -> ModelSubject:
        return ModelSubject(config, LEGAL_CHOICES[name](1), reports_index=reports_index)

    return make


RIGHT: dict[str, Callable[[], SubjectFactory]] = {
    **{f"specification, {name}": partial(_specification, name) for name in LEGAL_CHOICES},
    "specification, index hidden": partial(_specification, "at random", reports_index=False),
    **{name: partial(subject, name) for name in ("reference", "optimized")},
}
"""Made when they are asked for, so that one that cannot be imported fails alone."""


@pytest.mark.parametrize("name", RIGHT)
@every_record
def test_what_is_right_holds(record: Record, name: str) -> None:
    report = replay(load(record.trace), RIGHT[name]())
    if "hidden" in name and report.verdict == "not applicable":
        assert "evict" in report.detail, "nobody could see what was dropped"
    else:
        assert report.verdict == "holds", report


@every_record
def test_the_bug_is_noticed(record: Record) -> None:
    """By the law and at the line that the record says: what comes before goes well, with the bug as without it."""
    report = replay(load(record.trace), record.mutant.load())
    assert (report.verdict, report.law, report.at_line) == ("violation", record.law, record.at_line), report


@every_record
def test_a_mutant_is_a_manager(record: Record) -> None:
    manager = record.mutant.load()(Config(num_blocks=4, block_size=2))
    assert not isinstance(manager, BlockManager)
    assert manager.admit("a", [1, 2, 3]).cached_tokens == 0
    assert manager.observe().available_blocks == 2


@every_record
def test_a_trace_names_its_source(record: Record) -> None:
    assert FACTS[record.bug].links[0] in load(record.trace).header.note


def test_all_bugs_are_there() -> None:
    assert len(FACTS) == len([*facts()]) == NUM_BUGS
    assert list(FACTS) == sorted(FACTS)


@pytest.mark.parametrize("fact", FACTS.values(), ids=lambda fact: fact.id)
def test_every_bug_stands_in_one_place(fact: Fact) -> None:
    """It has a trace, or cannot arise here, or needs a test of its own."""
    recorded = [record for record in RECORDS if record.bug == fact.id]
    assert len([*recorded, *filter(None, (fact.cannot_arise, fact.own_test))]) == 1


@every_fact
def test_every_bug_can_be_looked_up(fact: Fact) -> None:
    assert fact.links
    assert all(re.fullmatch(r"https://\S+", link) for link in fact.links)
    assert "/" in fact.project
    assert fact.wrong.endswith(".")


def test_every_trace_of_a_bug_belongs_to_a_record() -> None:
    assert {record.bug for record in RECORDS} == OF_BUGS


def test_mutants_of_one_name_are_one() -> None:
    assert len({record.mutant.name for record in RECORDS}) == len({record.mutant for record in RECORDS})


def test_all_bugs_of_kernels_are_there_and_are_shown_or_say_why_not() -> None:
    """By mutants, or by a test of its own, or both; or it cannot arise."""
    recorded = [record.bug for record in KERNELS]
    assert len({*recorded, *OF_KERNELS}) == NUM_OF_KERNELS
    assert len(set(recorded)) == len(recorded)
    assert set(recorded) <= {*OF_KERNELS, *BOTH}
    assert list(OF_KERNELS) == sorted(OF_KERNELS)
    for fact in OF_KERNELS.values():
        assert (fact.id in recorded or bool(fact.own_test)) != bool(fact.cannot_arise), fact.id


def test_a_bug_of_kernels_is_re_created_by_mutants_of_the_catalogue() -> None:
    assert {key for record in KERNELS for key in record.mutants} <= set(CATALOGUE)


def test_a_mutant_of_a_bug_is_in_the_catalogue() -> None:
    known = {entry.mutant for entry in CATALOGUE.values() if entry.family in (FAMILIES["bugs"], FAMILIES["reference"])}
    assert {record.mutant for record in RECORDS} <= known


@pytest.mark.parametrize("kind", CLASSES)
def test_of_every_class_some_mutant_is_found_unaided(kind: str) -> None:
    found = results()
    assert any(found[key].status == "killed" for key in keys_of(kind)), kind


def test_every_class_is_one_of_some_bug() -> None:
    of_bugs = {fact.kind for fact in (*FACTS.values(), *OF_KERNELS.values())}
    assert of_bugs <= set(CLASSES)
    assert set(CLASSES) - of_bugs == {"in-flight-lifetime"}, "its bugs are of engines alone"
