"""The page about bugs is what the records and facts say."""

from tests.conformance.real_bugs.collected import RECORDS
from tests.conformance.real_bugs.records import FACTS, KERNEL_FACTS, facts
from tests.tools.bugs_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    """If not: python -m tests.tools.bugs_page."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_bug_is_on_the_page_and_in_no_section_twice() -> None:
    seen: list[str] = []
    for section in page().split("\n## "):
        ids = [line.split()[1] for line in section.splitlines() if line.startswith("| B")]
        assert len(set(ids)) == len(ids), section.partition("\n")[0]
        seen += ids
    assert set(seen) == {fact.id for path in (FACTS, KERNEL_FACTS) for fact in facts(path)}
    assert sum(".jsonl)" in line for line in page().splitlines() if line.startswith("| B")) == len(RECORDS)
