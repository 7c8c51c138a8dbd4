"""Part of `verify`: the device pool on the CPU, as a subject of its own."""

import torch

from pagedkv.cli.exhaust import slice_lines
from pagedkv.cli.fuzz import run_programs
from pagedkv.cli.inputs import subject_factory
from pagedkv.cli.parts import Options
from pagedkv.cli.parts.exhaustive import held_slices
from pagedkv.cli.report import Section, verdict

PROGRAMS, QUICK_PROGRAMS = 250, 40
STEPS = 60
QUICK_STATES = 60


def run(options: Options) -> Section:
    """Its slices, every state of which is loaded by `import_`, and random programs."""
    torch.set_num_threads(1)  # vectors are short: a second thread would only wait
    factory = subject_factory("device")
    limit, programs = (QUICK_STATES, QUICK_PROGRAMS) if options.quick else (None, PROGRAMS)
    results = held_slices("device", factory, options, limit)
    options.say("device: random programs")
    found = run_programs(factory, options.seed, programs, STEPS, options.out, lambda done, operations: None)
    holds = found.report.holds and all(result["holds"] for result in results)
    data = {"slices": results, "max_states": limit, "programs": found.as_json()}
    return Section("device pool", verdict(holds), (*slice_lines(results), *found.lines()), data)
