"""The page about bugs of other projects, written from what the tests know of them.

    python -m tests.tools.bugs_page

writes it anew after a trace, a record or a fact has changed.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.conformance.mutants.campaign import results
from tests.conformance.mutants.catalogue import FAMILIES
from tests.conformance.mutants.page import readable
from tests.conformance.mutants.records import Result
from tests.conformance.real_bugs.collected import RECORDS
from tests.conformance.real_bugs.kernels import CLASSES, KERNELS, KernelRecord
from tests.conformance.real_bugs.records import KERNEL_FACTS, Fact, Record, facts

PAGE: Final = Path(__file__).parents[2] / "docs" / "bugs.md"
MANAGERS: Final = tuple(facts())
OF_KERNELS: Final = tuple(facts(KERNEL_FACTS))

_INTRODUCTION: Final = """\
# Bugs of others

<!-- written by: python -m tests.tools.bugs_page -->

Block managers, prefix caches and attention kernels have been wrong in many ways, in public. This is what is known here
of {bugs} such bugs of other projects, in our own words, and what was made of each:

* {traces} are [in the corpus](#in-the-corpus). A trace sets the bug off and says what is right, for every legal
  allocator; it holds on the specification, the reference and the optimized manager. A mutant of the reference has the
  cause of the bug, as nearly as our design can have it, and the law in the last column notices at that line.
* {kernels} are [bugs of kernels](#in-kernels) that a mutant of our kernels re-creates, and the attention kit notices.
* {own} need [a test of their own](#by-a-test-of-their-own), because no trace and no mutant can show them.
* {never} [cannot arise](#what-cannot-arise) in a manager, or in kernels, of our kind.

`pagedkv replay --corpus --subject module:factory` asks your block manager the same. What the table says of
another project is a reading of the linked pages at one time; "not known" and "not confirmed" mean just that. The ids
are ours, with gaps where a bug concerns an engine alone.

Nothing has to be known in advance to find them. *Found after* is what `make mutants` needed when it hunted the mutants
with no hint: operations of random programs on managers, checks of the attention kit on kernels; see
[mutants](mutants.md).

## Classes

| class | what it is about | bugs | mutants | found after |
|---|---|--:|--:|---|
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _bug(fact: Fact) -> str:
    links = ", ".join(f"[#{link.rpartition('/')[2]}]({link})" for link in fact.links)
    return f"{fact.id} {fact.project} {links}"


def key_of(record: Record) -> str:
    """Where the catalogue has its mutant: causes that the reference's own mutants have are among those."""
    family = next(name for name in ("reference", "bugs") if record.mutant in FAMILIES[name].mutants)
    return f"{family}/{record.mutant.name}"


def keys_of(kind: str) -> list[str]:
    """The mutants of a class of bugs, by key."""
    of_kind = {fact.id for fact in (*MANAGERS, *OF_KERNELS) if fact.kind == kind}
    keys = [key_of(record) for record in RECORDS if record.bug in of_kind]
    keys += [key for record in KERNELS if record.bug in of_kind for key in record.mutants]
    return list(dict.fromkeys([*keys, *CLASSES[kind][1]]))


def _found(result: Result) -> str:
    """What it took, and whom."""
    if not result.kills:
        return result.status
    kill = result.by("ledger") or min(result.kills, key=lambda kill: kill.operations)
    return f"{kill.operations}" if kill.oracle == "ledger" else f"{kill.operations} ({kill.oracle})"


def _of_class(kind: str, known: dict[str, Result]) -> str:
    keys = keys_of(kind)
    bugs = sum(fact.kind == kind for fact in (*MANAGERS, *OF_KERNELS))
    soonest = sorted((known[key] for key in keys), key=lambda result: result.operations or 10**9)
    told = ", ".join(f"`{each.name}` {_found(each)}" for each in soonest[:2])
    return f"| {kind} | {CLASSES[kind][0]} | {bugs} | {len(keys)} | {told} |"


def _recorded(fact: Fact, record: Record, sharing: int, found: Result) -> str:
    path = record.trace
    trace = f"[{path.stem.partition('_')[2].replace('_', ' ')}](../spec/pagedkv/conformance/corpus/{path.name})"
    nearest = [record.nearest] if record.nearest else []
    shared = [f"shared by {sharing} bugs of one cause"] if sharing > 1 else []
    mutant = "; ".join([f"`{record.mutant.name}`", *shared, *nearest])
    cells = [_bug(fact), _cell(fact.wrong), trace, _cell(mutant), f"line {record.at_line}: {record.law}", _found(found)]
    return f"| {' | '.join(cells)} |"


def _of_kernels(fact: Fact, record: KernelRecord, known: dict[str, Result]) -> str:
    mutants = ", ".join(f"`{key}`" for key in record.mutants) + (f"; {record.nearest}" if record.nearest else "")
    found = [known[key] for key in record.mutants]
    laws = ", ".join(
        dict.fromkeys(readable(min(each.kills, key=lambda kill: kill.operations).law) for each in found if each.kills)
    )
    after = ", ".join(map(_found, found))
    return f"| {_bug(fact)} | {_cell(fact.wrong)} | {_cell(mutants)} | {_cell(laws)} | {after} |"


def _reasons(known: Sequence[Fact], name: str) -> list[str]:
    told = [(fact, getattr(fact, name)) for fact in known]
    return [f"| {_bug(fact)} | {_cell(fact.wrong)} | {_cell(reason)} |" for fact, reason in told if reason]


def page() -> str:
    """The whole text."""
    known, records = [*MANAGERS, *OF_KERNELS], {record.bug: record for record in RECORDS}
    by_id, found = {fact.id: fact for fact in known}, results()
    sharing = Counter(record.mutant.name for record in RECORDS)
    own, never = _reasons(known, "own_test"), _reasons(known, "cannot_arise")
    counts = {"bugs": len(known), "traces": len(records), "kernels": len(KERNELS), "own": len(own), "never": len(never)}
    lines = [
        _INTRODUCTION.format(**counts).rstrip("\n"),
        *(_of_class(kind, found) for kind in CLASSES),
        "\n## In the corpus\n",
        "| bug | what went wrong there | trace | mutant here | noticed at | found after |",
        "|---|---|---|---|---|--:|",
        *(
            _recorded(by_id[bug], record, sharing[record.mutant.name], found[key_of(record)])
            for bug, record in records.items()
        ),
        "\n## In kernels\n",
        "| bug | what went wrong there | mutants here | noticed by | found after |",
        "|---|---|---|---|---|",
        *(_of_kernels(by_id[record.bug], record, found) for record in KERNELS),
        "\n## By a test of their own\n",
        "| bug | what went wrong there | the test |",
        "|---|---|---|",
        *own,
        "\n## What cannot arise\n",
        "| bug | what went wrong there | why not here |",
        "|---|---|---|",
        *never,
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
