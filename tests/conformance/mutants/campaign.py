"""The hunt for all mutants, and what is written of it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pagedkv.conformance.search import fuzz
from pagedkv.conformance.failures.replay import replay
from pagedkv.spec.trace import Trace

from tests.conformance.mutants.catalogue import CATALOGUE, Entry
from tests.conformance.mutants.mutation import MutationError
from tests.conformance.mutants.records import Result
from tests.conformance.mutants.traces import Stored, stored
from tests.conformance.mutants.workers import Answer, answers

ROOT: Final = Path(__file__).parents[3]
DATA: Final = ROOT / "docs" / "mutants.json"
CANARY: Final = "reference/leak_on_free"
"""A fault that no program can miss, since every program ends with all blocks given back."""


class Report(NamedTuple):
    """A result, and the trace to be stored with it."""

    result: Result
    stored: Stored | None = None


def alarm_rings(seed: int) -> bool:
    """Whether the first program of a seed notices the canary. If not, no run with this seed says anything."""
    entry = CATALOGUE[CANARY]
    assert entry.family.subject is not None
    return fuzz.run(entry.family.subject(entry.mutant), seed=seed, programs=1, minimal=False).violation is not None


def hunted(key: str, seed: int) -> Report:
    """Hunt one mutant, in this process."""
    entry, start = CATALOGUE[key], sum(os.times()[:4])
    result = Result(entry.family.name, entry.name, entry.breaks, "survived", digest=entry.digest)
    try:
        entry.applies()
        hunt = entry.family.hunt(entry.mutant, seed)
    except MutationError as error:
        return Report(replace(result, status="dead anchor", detail=str(error)))
    length = None if hunt.trace is None else len(hunt.trace.lines)
    result = replace(result, kills=hunt.kills, trace_length=length)
    shown = None if hunt.trace is None else _shown(entry, hunt.trace)
    cpu_seconds = round(sum(os.times()[:4]) - start, 1)  # of what was started, too
    return Report(replace(result, status="killed" if hunt.kills else "survived", cpu_seconds=cpu_seconds), shown)


def _shown(entry: Entry, trace: Trace) -> Stored:
    """The trace with the law and the line at which it shows the mutant; or the stored one, if that is no longer."""
    assert entry.family.subject is not None
    broken = entry.family.subject(entry.mutant)
    report = replay(trace, broken)
    found = Stored(entry.name, report.law, report.at_line, trace)
    old = next((old for old in stored(entry.family.name) if old.name == entry.name), None)
    if old is None or len(old.text()) > len(found.text()):
        return found
    report = replay(old.trace, broken)
    return old if (report.law, report.at_line) == (old.law, old.at_line) else found


def run(keys: Sequence[str], seed: int, jobs: int) -> Iterator[Report]:
    """Hunt them, in processes of their own."""
    for answer in answers(partial(hunted, seed=seed), keys, jobs):
        yield _reported(answer)


def _reported(answer: Answer) -> Report:
    if answer.error:
        entry = CATALOGUE[answer.key]
        return Report(Result(entry.family.name, entry.name, entry.breaks, "crashed", (), None, answer.error))
    report: Report = answer.value
    return report


def results() -> dict[str, Result]:
    """What is written of each mutant, by key; nothing yet: empty."""
    if not DATA.exists():
        return {}
    written = [Result.of_json(values) for values in json.loads(DATA.read_text(encoding="utf-8"))["mutants"]]
    return {result.key: result for result in written}


def write(found: Mapping[str, Result], seed: int) -> None:
    """Write the results of all mutants that there are, in the order of the catalogue, one a line."""
    rows = [json.dumps(found[key].as_json()) for key in CATALOGUE if key in found]
    DATA.write_text(f'{{"seed": {seed}, "mutants": [\n' + ",\n".join(rows) + "\n]}\n", encoding="utf-8")
