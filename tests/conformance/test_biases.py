"""The generator's variants can still be measured, and the page has a row for each."""

import re
from pathlib import Path

import pytest
from pagedkv.reference import BlockManager

from tests.conformance.bias_variants import VARIANTS, Variant
from tests.conformance.biases import AS_IT_IS

PAGE = (Path(__file__).parents[2] / "docs" / "fuzzing_evidence.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_variant_draws_programs(variant: Variant) -> None:
    """What it replaces is there, exactly once."""
    report = variant.load().run(BlockManager, seed=1, programs=2, steps=40)
    assert report.violation is None
    assert report.steps


def test_the_page_has_every_variant() -> None:
    measured = set(re.findall(r"^\| (.*?) \| \d+ of \d+ \|", PAGE, re.MULTILINE))
    assert measured == {AS_IT_IS, *(variant.name for variant in VARIANTS)}
