"""Part of `verify`: random programs."""

from pagedkv.cli.fuzz import report_lines
from pagedkv.cli.inputs import subject_factory
from pagedkv.cli.parts import Options
from pagedkv.cli.report import Section, verdict
from pagedkv.conformance import fuzz

PROGRAMS, QUICK_PROGRAMS = 1_000, 100
STEPS = 60


def run(options: Options) -> Section:
    """As many programs as fit in well under a minute."""

    def tell(programs: int, operations: int) -> None:
        if programs % 200 == 0:
            options.say(f"programs: {programs} programs, {operations:,} operations")

    programs = QUICK_PROGRAMS if options.quick else PROGRAMS
    report = fuzz.run(
        subject_factory(options.subject), seed=options.seed, programs=programs, steps=STEPS,
        out_dir=options.out, progress=tell,
    )  # fmt: skip
    return Section("random programs", verdict(report.holds), tuple(report_lines(report)), report.as_json())
