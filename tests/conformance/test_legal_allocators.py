"""Conformance rejects no legal allocator: the specification itself, under every kind of choice, always passes."""

import pytest

from pagedkv.conformance.differential.model import LEGAL_CHOICES, ModelSubject
from pagedkv.conformance.search.fuzz import run
from pagedkv.spec import Config
from pagedkv.spec.subject import BlockManagerSubject


@pytest.mark.parametrize("reports_index", [True, False], ids=["index seen", "index hidden"])
@pytest.mark.parametrize("choices", LEGAL_CHOICES)
def test_every_legal_choice_passes(choices: str, reports_index: bool) -> None:
    def factory(config: Config) -> BlockManagerSubject:
        return ModelSubject(config, LEGAL_CHOICES[choices](7), reports_index=reports_index)

    report = run(factory, seed=3, programs=40, steps=60)
    assert report.violation is None, report.violation
