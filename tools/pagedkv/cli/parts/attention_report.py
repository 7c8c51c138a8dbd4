"""What the attention parts share: run the kit on a subject, and show each of its configurations on a line."""

from collections.abc import Sequence
from typing import Literal

from pagedkv.cli.parts import Options
from pagedkv.cli.report import Section, columns, verdict
from pagedkv.conformance.attention import AttentionReport, Configuration, ConfigurationReport, run
from pagedkv.conformance.attention.cases import SHAPES
from pagedkv.conformance.counted import counted
from pagedkv.spec.attention_subject import AttentionSubject


def attention_section(
    subject: AttentionSubject,
    how: str,
    size: Literal["tiny", "full"],
    options: Options,
    only: Sequence[Configuration] | None = None,
) -> Section:
    """Hold a subject to every law that its capabilities call for, or `only` in some configurations.

    `how` says how it was run.
    """

    def tell(line: str) -> None:
        options.say(f"{line} ({how})")

    report = run(subject, seed=options.seed, size=size, only=only, progress=tell)
    data = {**report.as_json(), "how": how}
    return Section("attention", verdict(report.ok), tuple(report_lines(report, how)), data)


def report_lines(report: AttentionReport, how: str) -> list[str]:
    """A line a configuration, with its worst rho by class of requests; then what was violated."""
    rows: list[tuple[object, ...]] = [
        ("configuration", *(f"rho {shape}" for shape in SHAPES), "relations", "probes", "bounds", "visible")
    ]
    rows += [_row(each) for each in report.configurations]
    launches = counted(report.launches, "launches")
    lines = [
        f"{report.subject}: {how}, {launches}, {report.size} shapes, {report.elapsed_s:.1f} s",
        *columns(rows),
    ]
    for failure in report.failures:
        lines += [f"VIOLATED {failure.law} ({failure.kind}): {failure.detail}", f"  {failure.case}"]
    if report.undeclared:
        lines.append(f"not tested, because the subject does not declare it: {', '.join(report.undeclared)}")
    return lines


def _row(each: ConfigurationReport) -> tuple[object, ...]:
    rhos = (f"{each.rhos[shape]:.3f}" if shape in each.rhos else "-" for shape in SHAPES)
    counts = (each.relations.checked, each.probes.checked, each.bounds.checked)
    visible = "-" if each.visibility is None else f"{each.visibility:.0%}"
    return (each.name, *rhos, *counts, visible)
