"""What both attention parts share: run the kit on a subject, and sum its configurations up in a few lines."""

from collections.abc import Sequence
from typing import Literal

from pagedkv.cli.parts import Options
from pagedkv.cli.report import Section, columns, verdict
from pagedkv.conformance.attention import AttentionReport, ConfigurationReport, run
from pagedkv.spec.attention_subject import AttentionSubject


def attention_section(subject: AttentionSubject, how: str, size: Literal["tiny", "full"], options: Options) -> Section:
    """Hold a subject to every law that its capabilities call for. `how` says how it was run."""

    def tell(line: str) -> None:
        options.say(f"{line} ({how})")

    report = run(subject, seed=options.seed, size=size, progress=tell)
    data = {**report.as_json(), "how": how}
    return Section("attention", verdict(report.ok), tuple(report_lines(report, how)), data)


def report_lines(report: AttentionReport, how: str) -> list[str]:
    """A line a dtype, with its worst configuration; then what was violated."""
    rows: list[tuple[object, ...]] = [
        ("dtype", "configurations", "relations", "probes", "bounds", "worst rho", "   in", "visible")
    ]
    for dtype in dict.fromkeys(each.dtype for each in report.configurations):
        rows.append(_row([each for each in report.configurations if each.dtype == dtype]))
    lines = [f"{report.subject}: {how}, {report.launches:,} launches, {report.size} shapes", *columns(rows)]
    for failure in report.failures:
        lines += [f"VIOLATED {failure.kind} {failure.law}: {failure.detail}", f"  {failure.case}"]
    if report.not_exercised:
        lines.append(f"not tested, because the subject does not declare it: {', '.join(report.not_exercised)}")
    return lines


def _row(each: Sequence[ConfigurationReport]) -> tuple[object, ...]:
    """The configurations of one dtype."""
    worst = max(each, key=lambda configuration: configuration.worst_rho)
    seen = [configuration.visibility for configuration in each if configuration.visibility is not None]
    counts = [
        sum(getattr(configuration, kind).checked for configuration in each)
        for kind in ("relations", "probes", "bounds")
    ]
    name = "+".join(worst.features) or "decode"
    visible = f"{min(seen):.0%}" if seen else "-"
    return (worst.dtype, len(each), *counts, round(worst.worst_rho, 3), f"   {name}", visible)
