"""Part of `verify`: every reachable state of small pools."""

from typing import Any

from pagedkv.cli.exhaust import slice_data, slice_lines
from pagedkv.cli.inputs import subject_factory
from pagedkv.cli.parts import Options
from pagedkv.cli.report import Section, verdict
from pagedkv.conformance.counted import counted
from pagedkv.conformance.programs.plans import declared
from pagedkv.conformance.search import exhaustive
from pagedkv.spec.subject import SubjectFactory

QUICK_STATES = 300


def run(options: Options) -> Section:
    """All slices that the subject's capabilities allow; `quick` stops each after some states."""
    factory = subject_factory(options.subject)
    limit = QUICK_STATES if options.quick else None
    results = held_slices("exhaustive", factory, options, limit)
    lines = slice_lines(results) + ([f"quick: a sample of at most {counted(limit, 'states')} a slice"] if limit else [])
    holds = all(result["holds"] for result in results)
    return Section("exhaustive slices", verdict(holds), tuple(lines), {"slices": results, "max_states": limit})


def held_slices(name: str, factory: SubjectFactory, options: Options, limit: int | None) -> list[dict[str, Any]]:
    """Each slice that the subject's capabilities allow, as plain values; `name` is the part that says so."""
    results = []
    for part in exhaustive.slices_for(declared(factory)):
        options.say(f"{name}: {part.name}")
        report = exhaustive.run(factory, part, seed=options.seed, max_states=limit)
        results.append(slice_data(report, options.out))
    return results
