"""The page about the command shows what the command prints: its cheap samples are run and compared."""

import re

import pytest

from pagedkv.cli.main import VERBS
from tests.tools.page_samples import PAGE, Sample, printed, samples

CHEAP = [sample for sample in samples() if not sample.mark]
TIME = re.compile(r"\b[\d,.]+(?= s\b| a second\b)|\b\d+\.\d$", re.MULTILINE)
"""What differs from run to run: seconds and speeds; at the end of a line, a number with one decimal is one."""


def comparable(text: str) -> str:
    return TIME.sub("#", "\n".join(line.rstrip() for line in text.strip().splitlines()))


@pytest.mark.parametrize("sample", CHEAP, ids=[sample.command for sample in CHEAP])
def test_a_sample_is_what_the_command_prints(sample: Sample) -> None:
    assert comparable(printed(sample.command)) == comparable(sample.output)


def test_every_verb_has_a_chapter_and_a_sample() -> None:
    assert re.findall(r"^## (\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == list(VERBS)
    assert {sample.command.split()[0] for sample in samples()} == set(VERBS)


def test_the_comparison_sees_a_difference() -> None:
    assert comparable("core  307  1.2\n") == comparable("core  307  19.9")
    assert comparable("core  307  1.2") != comparable("core  308  1.2")
    assert comparable("computed 5") != comparable("computed 6")
