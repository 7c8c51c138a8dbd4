"""The page about bugs of other projects, written from what the tests know of them.

    python -m tests.tools.bugs_page

writes it anew after a trace, a record or a fact has changed.
"""

from collections import Counter
from pathlib import Path
from typing import Final

from tests.conformance.real_bugs.collected import RECORDS
from tests.conformance.real_bugs.records import Fact, Record, facts

PAGE: Final = Path(__file__).parents[2] / "docs" / "bugs.md"

_INTRODUCTION: Final = """\
# Bugs of others

<!-- written by: python -m tests.tools.bugs_page -->

Block managers and prefix caches have been wrong in many ways, in public. This is what is known here of {bugs} such
bugs of other projects, in our own words, and what was made of each:

* {traces} are [in the corpus](#in-the-corpus). A trace sets the bug off and says what is right, for every legal
  allocator; it holds on the specification, the reference and the optimized manager. A mutant of the reference has the
  cause of the bug, as nearly as our design can have it, and the law in the last column notices at that line.
* {own} need [a test of their own](#by-a-test-of-their-own), because no trace can show them.
* {never} [cannot arise](#what-cannot-arise) in a manager of our kind.

`pagedkv replay tests/corpus/*.jsonl --subject module:factory` asks your block manager the same. What the table says of
another project is a reading of the linked pages at one time; "not known" and "not confirmed" mean just that. The ids
are ours, with gaps where a bug concerns kernels or an engine alone.
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _bug(fact: Fact) -> str:
    links = ", ".join(f"[#{link.rpartition('/')[2]}]({link})" for link in fact.links)
    return f"{fact.id} {fact.project} {links}"


def _recorded(fact: Fact, record: Record, sharing: int) -> str:
    path = record.trace
    trace = f"[{path.stem.partition('_')[2].replace('_', ' ')}](../tests/corpus/{path.name})"
    nearest = [record.nearest] if record.nearest else []
    shared = [f"shared by {sharing} bugs of one cause"] if sharing > 1 else []
    mutant = "; ".join([f"`{record.mutant.name}`", *shared, *nearest])
    return f"| {_bug(fact)} | {_cell(fact.wrong)} | {trace} | {_cell(mutant)} | line {record.at_line}: {record.law} |"


def page() -> str:
    """The whole text."""
    known, records = [*facts()], {record.bug: record for record in RECORDS}
    sharing = Counter(record.mutant.name for record in RECORDS)
    own = [fact for fact in known if fact.own_test]
    never = [fact for fact in known if fact.cannot_arise]
    counts = {"bugs": len(known), "traces": len(records), "own": len(own), "never": len(never)}
    lines = [
        _INTRODUCTION.format(**counts),
        "## In the corpus\n",
        "| bug | what went wrong there | trace | mutant here | noticed at |",
        "|---|---|---|---|---|",
        *(_recorded(f, records[f.id], sharing[records[f.id].mutant.name]) for f in known if f.id in records),
        "\n## By a test of their own\n",
        "| bug | what went wrong there | the test |",
        "|---|---|---|",
        *(f"| {_bug(fact)} | {_cell(fact.wrong)} | {_cell(fact.own_test)} |" for fact in own),
        "\n## What cannot arise\n",
        "| bug | what went wrong there | why not here |",
        "|---|---|---|",
        *(f"| {_bug(fact)} | {_cell(fact.wrong)} | {_cell(fact.cannot_arise)} |" for fact in never),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
