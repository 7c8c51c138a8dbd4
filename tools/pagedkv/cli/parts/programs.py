"""Part of `verify`: random programs."""

from pagedkv.cli.fuzz import run_programs
from pagedkv.cli.inputs import subject_factory
from pagedkv.cli.parts import Options
from pagedkv.cli.report import Section, verdict
from pagedkv.conformance.counted import counted

PROGRAMS, QUICK_PROGRAMS = 1_000, 100
STEPS = 60


def run(options: Options) -> Section:
    """As many programs as fit in well under a minute."""

    def tell(programs: int, operations: int) -> None:
        if programs % 200 == 0:
            options.say(f"programs: {counted(programs, 'programs')}, {counted(operations, 'operations')}")

    programs = QUICK_PROGRAMS if options.quick else PROGRAMS
    fuzzed = run_programs(subject_factory(options.subject), options.seed, programs, STEPS, options.out, tell)
    return Section("random programs", verdict(fuzzed.report.holds), tuple(fuzzed.lines()), fuzzed.as_json())
