"""The page about bugs is what the records and facts say."""

from tests.conformance.real_bugs.collected import RECORDS
from tests.conformance.real_bugs.records import facts
from tests.tools.bugs_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    """If not: python -m tests.tools.bugs_page."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_bug_is_on_the_page_once() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| B")]
    assert sorted(row.split()[1] for row in rows) == [fact.id for fact in facts()]
    assert sum(".jsonl)" in row for row in rows) == len(RECORDS)
