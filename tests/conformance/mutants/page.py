"""The page about the mutants, written from the results: `docs/mutants.md`."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from tests.conformance.mutants.campaign import CANARY, ROOT
from tests.conformance.mutants.catalogue import CATALOGUE, FAMILIES
from tests.conformance.mutants.records import ORACLES, STATUSES, Family, Result

PAGE: Final = ROOT / "docs" / "mutants.md"

_INTRODUCTION: Final = """\
# Mutants

<!-- written by: make mutants -->

A test suite is worth what it notices. This is a catalogue of {mutants} named ways to break pagedkv, each a fault that
means something: a lost reference, a window off by one, a mask on keys and not on values. A mutant replaces text that
occurs exactly once, in memory, as its module is imported; no file is touched (loops of the CPU are compiled from a copy
elsewhere). `make mutants` hunts every one of them with no hint of where to look, from seed {seed}, and writes this page
and [mutants.json](mutants.json). Of {mutants}, whatever became of them:
{statuses}.

The first program of a run has to notice a canary, `{canary}`; where it lives the alarm does not ring, and the
run ends there. All of it took {minutes} minutes of one core.

| oracle | what it holds the mutant against |
|---|---|
{oracles}

In the tables an oracle's cell is what it had run when it noticed: operations of random programs, transitions between
states, calls of the pool, checks of the attention kit, tests. An empty cell means: not noticed within what it was
given. Of kernels, *breaks* lists the laws of the attention kit that are expected to notice. *Trace* is the number of
operations of the minimal program. Those traces are in [tests/corpus/mutants](../tests/corpus/mutants),
and every test run replays each on its mutant, which must break that law at that line, and on what is intact, which
must hold. One of them alone, to be replayed on your own block manager:

    python -m tests.conformance.mutants.traces "reference/leak_on_free" > leak.jsonl
    pagedkv replay leak.jsonl --subject module:factory

## Families

| family | mutants | killed | median to the first kill | median trace | killed by |
|---|--:|--:|---|--:|---|
"""


def page(found: Mapping[str, Result], seed: int) -> str:
    """The whole text."""
    every = [found[key] for key in CATALOGUE if key in found]
    counts = ", ".join(f"{sum(each.status == status for each in every)} {status}" for status in STATUSES)
    oracles = "\n".join(f"| {name} | {what} |" for name, what in ORACLES.items())
    known = {"mutants": len(every), "seed": seed, "statuses": counts, "oracles": oracles, "canary": CANARY}
    minutes = math.ceil(sum(each.cpu_seconds for each in every) / 60)
    lines = [_INTRODUCTION.format(**known, minutes=minutes).rstrip("\n")]
    grouped = {family: [each for each in every if each.family == name] for name, family in FAMILIES.items()}
    lines += [_summary(family, results) for family, results in grouped.items() if results]
    lines.append(_summary(None, every))
    for family, results in grouped.items():
        if results:
            lines += ["", *_table(family, results)]
    return "\n".join(lines) + "\n"


def _summary(family: Family | None, results: Sequence[Result]) -> str:
    killed = [each for each in results if each.status == "killed"]
    first = [each.operations for each in killed if each.operations is not None]
    traces = [each.trace_length for each in killed if each.trace_length is not None]
    by = {oracle: sum(each.by(oracle) is not None for each in killed) for oracle in ORACLES}
    said = ", ".join(f"{oracle} {count}" for oracle, count in by.items() if count)
    name = f"[{family.title}](#{family.name})" if family else "all"
    middle = f"{median(first):g} ({family.counted})" if family and first else ""
    return (
        f"| {name} | {len(results)} | {len(killed)} | {middle} | {f'{median(traces):g}' if traces else ''} | {said} |"
    )


def _table(family: Family, results: Sequence[Result]) -> Iterator[str]:
    oracles = [oracle for oracle in ORACLES if any(each.by(oracle) for each in results)]
    traced = any(each.trace_length is not None for each in results)
    odd = any(each.status != "killed" for each in results)
    heads = ["mutant", "breaks", *oracles, *(["trace"] if traced else []), "named by", *(["status"] if odd else [])]
    yield f'<h2 id="{family.name}">{family.title[0].upper()}{family.title[1:]}</h2>\n'
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join('--:' if head in ORACLES or head == 'trace' else '---' for head in heads)}|"
    for each in results:
        cells = [str(kill.operations) if (kill := each.by(oracle)) else "" for oracle in oracles]
        cells += [str(each.trace_length or "")] if traced else []
        status = [f"{each.status} {each.detail}".strip() if each.status != "killed" else ""] if odd else []
        row = [_cell(each.name), _cell(each.breaks), *cells, _cell(_named(each)), *map(_cell, status)]
        yield f"| {' | '.join(row)} |"


def _named(result: Result) -> str:
    """The laws that noticed, the quickest oracle first; the exhaustive search says the same of the ledger."""
    quickest = sorted(result.kills, key=lambda kill: kill.operations)
    told = [kill.law for kill in quickest if kill.oracle != "exhaustive"] or [kill.law for kill in quickest]
    return ", ".join(dict.fromkeys(map(readable, told)))


def readable(law: str) -> str:
    """A law as pages have it: what was read in compiled code is told of its kernel, not of a module that was made up.

    >>> readable("<pagedkv.optimized.kernels.gather__mutant_39>:64: arith.muli of an id and a stride in 32 bits")
    'code of `gather`: the product of an id and a stride in 32 bits'
    """
    found = re.fullmatch(r"<[\w.]*?(\w+)__mutant_\d+>:\d+: (.*)", law)
    return f"code of `{found[1]}`: {found[2].replace('arith.muli of', 'the product of')}" if found else law


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
